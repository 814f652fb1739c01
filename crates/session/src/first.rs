//! The first moments of a static program. No dynamic linker loads the agent into it, so it is held when its C library has set up the first thread,
//! before anything of the program's own has run, until the agent is there and its functions are switched on.
//!
//! Should the recorder be killed, the program runs on as untraced.

use crate::enter;
use crate::error::Error;
use crate::plan::directory::Directory;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::go;
use calltap_process::injection::inferior::Inferior;
use calltap_process::injection::placed::owner_word_told;
use calltap_process::memory::text::ProcessText;
use calltap_process::ptrace::threads::{Held, NotHeld};
use calltap_process::target::Target;
use std::path::Path;

/// System calls before that: the C library looks at its tunables, gets memory.
const CALLS: usize = 2000;

/// Waits until the program is so far, and brings the agent in. It goes on when what is returned is dropped; by the thread that has started it.
///
/// Once it is traced, `begin` lets it go on to its execve.
pub fn hold(
    pid: u32,
    begin: &mut dyn FnMut(),
    directory: &Directory,
    shared: &Shared,
    is_static: bool,
) -> Result<Held, Error> {
    let held = Held::child(pid, begin);
    let target = Target::known(pid)?;
    let mut thread = held.map_err(|why| target.refuse(why))?;
    let mut text = ProcessText::open(pid).map_err(|error| target.refuse(error))?;
    let owner_word = await_thread(&mut thread, &mut text, is_static).map_err(|why| match why {
        Some(why) => target.refuse(why),
        None => target.refuse(Reason::StaticStart),
    })?;
    // At a system call it cannot execute injected code. So it is let go, to wait in a loop, and stopped there.
    let mut inferior = Inferior::new(&target)?;
    let back = inferior.place.park(&mut text, &mut thread).map_err(|failed| target.refuse(failed))?;
    drop(thread);
    let mut thread = Held::take(pid, pid).map_err(|why| target.refuse(why))?;
    match inferior.place.fetch(&mut thread, back) {
        Ok(true) => enter::start(&target, directory, shared, &mut inferior, thread, owner_word),
        Ok(false) => Err(target.refuse(Reason::Busy).into()),
        Err(failed) => Err(target.refuse(failed).into()),
    }
}

/// Has the agent of the program, which is held, do something.
pub fn remote(pid: u32, thread: &mut Held, operation: u32) -> Result<(), Error> {
    let target = Target::known(pid)?;
    let mut inferior = Inferior::new(&target)?;
    let done = inferior.remote(thread, operation, Path::new(""));
    inferior.put_back(thread);
    done.map_err(|failed| target.refuse(failed).into())
}

/// Lets it run until its thread library has been told the thread's id: where it will keep that. None: it is not
/// told. Single steps would be more exact, and a trap left behind, should calltap be killed.
///
/// C libraries tell the kernel a place for it. Go's runtime asks for it, and has it when it comes to its next
/// system call; what a dynamic linker was told before, is nothing to a Go program without C.
fn await_thread(thread: &mut Held, text: &mut ProcessText, is_static: bool) -> Result<u64, Option<NotHeld>> {
    let mut id = None;
    for _ in 0..CALLS {
        thread.run_to_system_call()?;
        let has_returned = thread.regs.rax as i64 >= 0;
        match thread.regs.orig_rax as i64 {
            _ if !has_returned => {}
            libc::SYS_set_tid_address if is_static => return owner_word_told(thread, text).ok_or(None),
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
