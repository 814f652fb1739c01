//! The start of a static program, which no dynamic linker loads the agent into.
//!
//! The program is held when its C library has set up the first thread, before its own code runs.
//! The agent is placed and its functions are enabled before it goes on. If the recorder is killed
//! meanwhile, the program runs on untraced.

use crate::error::Error;
use crate::load_agent::Loading;
use crate::plan::directory::Directory;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::go;
use calltap_process::injection::inferior::Inferior;
use calltap_process::injection::placed::owner_word_from_call;
use calltap_process::memory::text::ProcessText;
use calltap_process::ptrace::threads::{NotHeld, StoppedThread};
use calltap_process::target::Target;
use std::path::Path;

/// Maximum number of system calls before the first thread is set up: the C library reads its
/// tunables and allocates memory.
const CALLS: usize = 2000;

/// The start of a program, and the session that it joins.
pub(super) struct StaticStart<'a> {
    pub directory: &'a Directory,
    pub shared: &'a Shared,
    /// Whether the program has no dynamic linker.
    pub is_static: bool,
}

impl StaticStart<'_> {
    /// Waits until the program's first thread is set up, and places the agent. Returns the held
    /// thread: the program goes on when the thread that started it drops this.
    ///
    /// `begin` lets the traced child go on to its execve.
    pub(super) fn hold(&self, pid: u32, begin: &mut dyn FnMut()) -> Result<StoppedThread, Error> {
        let held = StoppedThread::child(pid, begin);
        let target = Target::known(pid)?;
        let mut thread = held.map_err(|why| target.refuse(why))?;
        let mut text = ProcessText::open(pid).map_err(|error| target.refuse(error))?;
        let owner_word = await_thread(&mut thread, &mut text, self.is_static).map_err(|why| match why {
            Some(why) => target.refuse(why),
            None => target.refuse(Reason::StaticStart),
        })?;
        // A thread stopped at a system call cannot execute injected code, so it is released into a
        // loop, and stopped there.
        let mut inferior = Inferior::new(&target)?;
        let back = inferior.place.park(&mut text, &mut thread).map_err(|failed| target.refuse(failed))?;
        drop(thread);
        let mut thread = StoppedThread::take(pid, pid).map_err(|why| target.refuse(why))?;
        match inferior.place.fetch(&mut thread, back) {
            Ok(true) => {
                let loading = Loading { target: &target, directory: self.directory, shared: self.shared };
                loading.start(&mut inferior, thread, owner_word)
            }
            Ok(false) => Err(target.refuse(Reason::Busy).into()),
            Err(failed) => Err(target.refuse(failed).into()),
        }
    }
}

/// Makes the agent of the held program carry out an operation.
pub(super) fn remote(pid: u32, thread: &mut StoppedThread, operation: u32) -> Result<(), Error> {
    let target = Target::known(pid)?;
    let mut inferior = Inferior::new(&target)?;
    let done = inferior.hijack(thread).remote(operation, Path::new(""));
    done.map_err(|failed| target.refuse(failed).into())
}

/// Lets the thread run until its thread library knows where it keeps the thread's id. Returns that
/// offset; None as the error if this never happens.
///
/// A C library passes an address for the id to the kernel. Go's runtime asks for the id and has
/// stored it by its next system call; addresses that a dynamic linker has passed before do not
/// count in a Go program without C. Single steps would be more exact, but would leave a trap behind
/// if calltap were killed.
fn await_thread(
    thread: &mut StoppedThread,
    text: &mut ProcessText,
    is_static: bool,
) -> Result<u64, Option<NotHeld>> {
    let mut id = None;
    for _ in 0..CALLS {
        thread.run_to_system_call()?;
        let has_returned = thread.regs.rax as i64 >= 0;
        match thread.regs.orig_rax as i64 {
            _ if !has_returned => {}
            libc::SYS_set_tid_address if is_static => return owner_word_from_call(thread, text).ok_or(None),
            libc::SYS_gettid => id = Some(thread.regs.rax as u32),
            _ => {
                if let Some(word) = id.and_then(|id| go::owner_word(thread, id, text)) {
                    return Ok(word);
                }
            }
        }
    }
    Err(None)
}
