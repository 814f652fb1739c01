//! Reasons why a thread could not be held, or did not reach the end of code that it was sent to.

use crate::reason::Reason;
use nix::errno::Errno;
use std::fmt;

/// Why a thread could not be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHeld {
    /// The thread has ended.
    Gone,
    /// The kernel refused the request.
    Refused(Errno),
    /// The thread is in the kernel and does not leave it.
    Stuck,
    /// The process with this id shares the memory and has threads of its own.
    Shared(u32),
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Reason::from(*self).fmt(f)
    }
}

impl From<NotHeld> for Reason {
    fn from(why: NotHeld) -> Reason {
        match why {
            NotHeld::Gone => Reason::ThreadGone,
            NotHeld::Stuck => Reason::Stuck,
            NotHeld::Shared(other) => Reason::Shared { other },
            NotHeld::Refused(errno) => Reason::NotStoppable { errno },
        }
    }
}

/// Why a thread did not reach the end of code that it was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupted {
    /// The thread cannot be controlled any more.
    Lost(NotHeld),
    /// The code raised this signal; the thread has not been moved back.
    Fault(i32),
    /// The code takes too long; the thread goes on with it and finds its way back by itself.
    Late,
}

impl From<NotHeld> for Interrupted {
    fn from(why: NotHeld) -> Interrupted {
        Interrupted::Lost(why)
    }
}
