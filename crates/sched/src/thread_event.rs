//! Incidents of a thread: events that are not its own actions.

/// An incident of a thread, or its arrival on a processor, which shows that it has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadEvent {
    /// Time, nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
    /// Processor on which the thread was.
    pub cpu: u32,
    /// Kind of incident.
    pub kind: ThreadEventKind,
}

/// Kind of an incident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadEventKind {
    /// A page was not present.
    PageFault {
        /// The address that the thread accessed.
        address: u64,
        /// Whether the page had to be read from a disk.
        major: bool,
    },
    /// A signal was delivered to the thread.
    Signal {
        /// Signal number.
        number: u32,
    },
    /// The thread was switched in on the processor.
    SwitchedIn,
}
