//! How a call ended.

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It returned.
    Returned,
    /// It was entered by a tail call and ended when the frame it shares returned.
    Tail,
    /// Cut: longjmp, an exception or a switch to another stack left it.
    Left,
    /// Not the end of a call, but of the rest of one that was [`Ending::Left`] when its thread went to another stack, and went on when the
    /// thread came back. The call was counted there.
    Resumed,
    /// Cut: tracing of the function was switched off while the call was open.
    SwitchedOff,
    /// Cut: events were lost while it was open, and its return was not recorded.
    Lost,
    /// Cut: the recording ended, and the program went on.
    Detached,
    /// Cut: it was open when its thread ended, and the program went on.
    ThreadEnded,
    /// Cut: it began before the part of the trace that is read, or went on after it.
    Outside,
    /// Cut: it was open when the program ended, or when nothing more was heard of its thread.
    Running,
}

impl Ending {
    /// The time of its end is not known: it has no duration.
    #[inline(always)]
    pub fn is_cut(self) -> bool {
        !matches!(self, Ending::Returned | Ending::Tail)
    }

    /// Is it the end of what was counted as a call? The rest of one that went on is not.
    #[inline(always)]
    pub fn is_of_call(self) -> bool {
        self != Ending::Resumed
    }

    /// Had it not ended when the recording did? Then it has taken its time already; of others that were cut nothing is known but when they began.
    pub fn goes_on(self) -> bool {
        matches!(self, Ending::Running | Ending::Detached)
    }

    /// As views and exports write it.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Returned => "returned",
            Ending::Tail => "tail",
            Ending::Left => "left",
            Ending::Resumed => "resumed",
            Ending::SwitchedOff => "switched_off",
            Ending::Lost => "lost",
            Ending::Detached => "detached",
            Ending::ThreadEnded => "thread_ended",
            Ending::Outside => "outside",
            Ending::Running => "running",
        }
    }
}
