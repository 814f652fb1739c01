//! How calls end.

/// The ending of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The call returned.
    Returned,
    /// The call was entered by a tail call and ended when the frame it shares returned.
    Tail,
    /// Cut: longjmp, an exception or a switch to another stack left it.
    Left,
    /// The end of the rest of a call, which was [`Ending::Left`] when its thread went to another
    /// stack, and continued when the thread came back. The call was counted there.
    Resumed,
    /// Cut: tracing of the function was disabled while the call was open.
    SwitchedOff,
    /// Cut: events were lost while it was open, and its return was not recorded.
    Lost,
    /// Cut: the recording ended, and the program continued.
    Detached,
    /// Cut: it was open when its thread ended, and the program continued.
    ThreadEnded,
    /// Cut: it began before the part of the trace that is read, or continued after it.
    Outside,
    /// Cut: it was open when the program ended, or behind the last event of its thread.
    Running,
}

impl Ending {
    /// Whether the time of the end is not known, so that the call has no duration.
    #[inline(always)]
    pub fn is_cut(self) -> bool {
        !matches!(self, Ending::Returned | Ending::Tail)
    }

    /// Whether this ends a counted call; the rest of a continued call is not counted.
    #[inline(always)]
    pub fn is_of_call(self) -> bool {
        self != Ending::Resumed
    }

    /// Whether the call was still open at the end, so that the time that it has taken so far is
    /// known. Of other cut calls only the start is known.
    pub fn goes_on(self) -> bool {
        matches!(self, Ending::Running | Ending::Detached)
    }

    /// Returns the name in views and exports.
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
