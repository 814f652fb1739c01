//! Why a thread could not be held.

use crate::reason::Reason;
use nix::errno::Errno;

/// Why a thread could not be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHeld {
    /// It has ended.
    Gone,
    /// The system said no.
    Refused(Errno),
    /// It is in the kernel and does not come out.
    Stuck,
    /// This process has the same memory, and threads of its own.
    Shared(u32),
    /// The process was stopped by a signal meanwhile.
    Stopped,
}

impl From<NotHeld> for Reason {
    fn from(why: NotHeld) -> Reason {
        match why {
            NotHeld::Gone => Reason::ThreadGone,
            NotHeld::Stuck => Reason::Stuck,
            NotHeld::Shared(other) => Reason::Shared { other },
            NotHeld::Stopped => Reason::StoppedMeanwhile,
            NotHeld::Refused(errno) => Reason::NotStoppable { errno },
        }
    }
}
