//! The goroutines of events.

use super::RawEvent;

/// The goroutine of an event of a Go function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Goroutine {
    /// Number of the goroutine; 0: the event was on a stack of the thread's own.
    pub number: u64,
    /// Address of its `g`; without a number, the beginning of the thread's stack, from which slots
    /// are counted.
    pub at: u64,
    /// Start of the goroutine, where it was recorded.
    pub start: Option<GoStart>,
    /// Whether the event is the first one behind the words that identify the goroutine: the thread
    /// may have run another one before.
    pub begins: bool,
}

/// The start of a goroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GoStart {
    /// Number of the goroutine that started it; 0: code on a thread's own stack did.
    pub parent: u64,
    /// Address of its first function.
    pub function: u64,
}

/// An event of a Go function in a goroutine.
#[derive(Clone, Debug)]
pub struct GoEvent {
    /// The event.
    pub raw: RawEvent,
    /// The goroutine of the event.
    pub goroutine: Goroutine,
    /// Values that come with it.
    pub values: Box<[u8]>,
}
