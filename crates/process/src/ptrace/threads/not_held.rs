//! Reasons why a thread could not be held.

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
