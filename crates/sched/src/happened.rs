//! What the kernel tells of a thread besides what it does itself.

/// What happened to a thread, and what tells that it has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// When: nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
    /// The processor on which the thread was then.
    pub cpu: u32,
    /// What.
    pub what: Happening,
}

/// What happens to threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A page was not there.
    PageFault {
        /// What the thread wanted.
        address: u64,
        /// It had to be read from a disk.
        major: bool,
    },
    /// A signal reached the thread.
    Signal {
        /// Its number.
        number: u32,
    },
    /// The thread comes to the processor.
    Comes,
}
