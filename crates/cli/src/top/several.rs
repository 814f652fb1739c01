//! Processes that one calltap watches, each in a thread of its own; and the messages about them at
//! the end.

use crate::command_line::arguments::Arguments;
use crate::command_line::processes;
use crate::{ended_session, many, session_commands};
use anyhow::{Result, anyhow};
use calltap_session::{Options, SessionOutcome};
use std::thread;

/// A process to watch.
pub struct Watching {
    /// Process id.
    pub pid: u32,
    /// Options of its session.
    pub options: Options,
    /// Whether the process existed at the beginning.
    was_there: bool,
    /// The beginning of lines about the process, empty if there is only one process.
    of: String,
}

/// The result of a thread that watched a process.
type Joined = thread::Result<Result<SessionOutcome>>;

impl Watching {
    /// Returns the processes with their options, from the command line.
    pub fn new(pids: &[u32], arguments: &Arguments) -> Result<Vec<Watching>> {
        if let [pid] = pids {
            processes::tell_of_children(*pid, arguments);
        }
        let is_several = pids.len() > 1;
        let one = |pid: &u32| {
            Ok(Watching {
                pid: *pid,
                options: super::options(*pid, is_several, arguments)?,
                was_there: processes::was_there(*pid),
                of: if is_several { processes::of_one(*pid) } else { String::new() },
            })
        };
        pids.iter().map(one).collect()
    }
}

/// Tells the notes of each session at the end. Returns the outcomes, and an error if one failed or
/// if no process could be watched.
pub fn tell(all: &[Watching], joined: Vec<Joined>) -> (Vec<Option<SessionOutcome>>, Result<()>) {
    let is_several = all.len() > 1;
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for (watching, joined) in all.iter().zip(joined) {
        let Watching { pid, was_there, of, .. } = watching;
        let result = joined.unwrap_or_else(|_| {
            Err(anyhow!("the thread that watches process {pid} failed: this is a bug of calltap"))
        });
        if let Ok(outcome) = &result {
            say(outcome, of);
            if !outcome.whole {
                failed.push(anyhow!("calltap could not remove all of its code from process {pid}: 'calltap detach -p {pid}' tries again"));
            }
        }
        outcomes.push(match result {
            Ok(outcome) => Some(outcome),
            // A listed process may have ended meanwhile.
            Err(error) if is_several && *was_there && many::is_of_ended(&error) => {
                tell!("calltap: {error:#}; skipped");
                None
            }
            Err(error) => {
                failed.push(processes::named_in(error, *pid, is_several));
                None
            }
        });
    }
    if failed.is_empty() && outcomes.iter().all(Option::is_none) {
        failed.push(anyhow!("nothing to do: all named processes had ended"));
    }
    let last = failed.pop();
    failed.iter().for_each(|error| tell!("calltap: {error:#}"));
    (outcomes, last.map_or(Ok(()), Err))
}

fn say(outcome: &SessionOutcome, of: &str) {
    let lines = ended_session::lines(outcome, &|_| false);
    let lines: Vec<String> = lines.iter().map(|line| format!("{of}{line}")).collect();
    session_commands::say(&lines);
}
