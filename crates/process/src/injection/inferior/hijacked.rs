//! A hijacked thread, which makes injected calls.

use super::{CALL, Inferior};
use crate::injection::call::Call;
use crate::injection::inject::Failed;
use crate::ptrace::threads::StoppedThread;
use crate::{limits, proc, seccomp};
use calltap_abi::remote;
use std::path::Path;
use std::time::Duration;

/// A stopped thread that makes injected calls. Dropping this restores the bytes at the place of
/// injected code, unless the thread is late and still executes them.
///
/// No other type makes calls, and the thread is borrowed: the bytes are restored on every way out,
/// before the thread is released. A failure to restore them is not reported, as the code then stays
/// until a later calltap removes it.
pub struct Hijacked<'h, 'a> {
    /// The process.
    pub inferior: &'h mut Inferior<'a>,
    /// The thread.
    pub thread: &'h mut StoppedThread,
}

impl<'a> Inferior<'a> {
    /// Prepares a stopped thread to make calls.
    pub fn hijack<'h>(&'h mut self, thread: &'h mut StoppedThread) -> Hijacked<'h, 'a> {
        Hijacked { inferior: self, thread }
    }
}

impl Hijacked<'_, '_> {
    /// Makes the thread call a function. Returns the function's result.
    pub fn call(&mut self, call: &Call<'_>, limit: Duration) -> Result<u64, Failed> {
        let opens_files = call.opens_files && self.needs_opener() && self.may_start_opener();
        let call = Call { opens_files, ..*call };
        // If calltap panics meanwhile, the thread may still execute the code.
        let was_late = std::mem::replace(&mut self.inferior.late, true);
        let done = self.inferior.place.call(&mut self.inferior.text, self.thread, &call, limit);
        self.inferior.late = was_late || matches!(done, Err(Failed::Late | Failed::Thread(_)));
        done
    }

    /// Makes the thread call an operation of the agent.
    pub fn remote(&mut self, operation: u32, path: &Path) -> Result<(), Failed> {
        let function = self.inferior.agent.and_then(|agent| agent.symbol("calltap_remote"));
        let arguments = [u64::from(operation), self.inferior.place.string_address()];
        let call = Call {
            string: path.as_os_str().as_encoded_bytes(),
            opens_files: matches!(operation, remote::JOIN | remote::MAP),
            ..Call::new(function.ok_or(Failed::NoAgent)?, arguments)
        };
        self.call(&call, CALL).map(drop)
    }

    /// Whether an opener has to open files: another thread would see their descriptors, or none is
    /// left. A process of one thread gets no second one otherwise, which would make its own
    /// `unshare` fail until the kernel has removed that thread.
    fn needs_opener(&self) -> bool {
        let pid = self.inferior.target.pid;
        !proc::has_one_thread(pid) || limits::lacks_descriptors(pid)
    }

    /// Whether the thread's seccomp filters allow it to start an
    /// [opener](crate::injection::inject).
    fn may_start_opener(&self) -> bool {
        !proc::is_filtered(self.thread.tid)
            || self.thread.seccomp_filters().is_ok_and(|filters| seccomp::allow_opener(&filters))
    }
}

impl Drop for Hijacked<'_, '_> {
    fn drop(&mut self) {
        let late = self.inferior.late && !self.thread.has_ended();
        if !late {
            self.inferior.place.restore(&mut self.inferior.text);
        }
    }
}
