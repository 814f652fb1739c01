//! A session that is set up and has not begun.

use crate::attach_session::AttachSession;
use crate::error::Error;
use crate::options::{Options, Subject};
use crate::outcome::SessionOutcome;
use crate::prepared::Prepared;
use crate::run::RunOptions;
use calltap_trace::Session;

/// A session that is set up: of a program to start, or of a process to attach to.
pub(crate) enum Ready<'a> {
    /// A program.
    Program(Box<Prepared<'a>>),
    /// A process.
    Process(Box<AttachSession<'a>>),
}

impl<'a> Ready<'a> {
    /// Finds the subject, and creates the session's files and shared memory.
    pub(crate) fn new(options: &'a Options) -> Result<Ready<'a>, Error> {
        Ok(match &options.subject {
            Subject::Program(command) => Ready::Program(Box::new(Prepared::new(options, command)?)),
            Subject::Process { pid, .. } => Ready::Process(Box::new(AttachSession::new(options, *pid)?)),
        })
    }

    /// Returns the session record for the trace.
    pub(crate) fn session(&self) -> &Session {
        match self {
            Ready::Program(prepared) => &prepared.session,
            Ready::Process(session) => &session.session,
        }
    }

    /// Runs the program to its end, or attaches to the process and detaches.
    pub(crate) fn run(self, run: RunOptions<'_>) -> Result<SessionOutcome, Error> {
        match self {
            Ready::Program(prepared) => prepared.run(run),
            Ready::Process(mut session) => session.run(run),
        }
    }
}
