//! The goroutines of events.

use super::RawEvent;
use calltap_abi::event::code;

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

impl RawEvent {
    /// Returns the event with the code that functions of other languages than Go have.
    pub fn plain(self) -> RawEvent {
        let code = match self.code() {
            code::GO_ENTRY => code::ENTRY,
            code::GO_ENTRY_FROM => code::ENTRY_FROM,
            code::GO_EXIT => code::EXIT,
            code::GO_CALL => code::CALL,
            code => code,
        };
        RawEvent { low: self.frame() | code, ..self }
    }

    /// Returns the event of a Go function on a stack of the thread's own as one of a C function
    /// there.
    pub(crate) fn on_own_stack(self, goroutine: Goroutine) -> RawEvent {
        RawEvent { slot: self.slot.wrapping_add(goroutine.at >> 3), ..self.plain() }
    }
}

/// Events of goroutines, in the order in which a thread recorded them.
#[derive(Clone, Debug, Default)]
pub struct GoEvents {
    events: Vec<RawEvent>,
    /// The goroutines that the thread ran, each with the number of its first event.
    runs: Vec<(usize, Goroutine)>,
    /// Values, each with the number of its event.
    values: Vec<(usize, Box<[u8]>)>,
}

impl GoEvents {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds an event and its values.
    pub fn push(&mut self, goroutine: Goroutine, event: RawEvent, values: Vec<u8>) {
        if !values.is_empty() {
            self.values.push((self.events.len(), values.into()));
        }
        self.extend(goroutine, [event]);
    }

    /// Adds events of one goroutine that have no values. Returns their number.
    pub fn extend(&mut self, goroutine: Goroutine, events: impl IntoIterator<Item = RawEvent>) -> usize {
        let first = self.events.len();
        self.events.extend(events);
        let runs_on = |(_, last): &(usize, Goroutine)| last.number == goroutine.number && !goroutine.begins;
        if self.events.len() > first && !self.runs.last().is_some_and(runs_on) {
            self.runs.push((first, goroutine));
        }
        self.events.len() - first
    }

    /// Hands out the events of each goroutine between two switches of the thread, and their values
    /// with the numbers of the events among them. No event is left.
    pub fn drain(
        &mut self,
        mut take: impl FnMut(Goroutine, &[RawEvent], &mut dyn Iterator<Item = (usize, Box<[u8]>)>),
    ) {
        let mut values = self.values.drain(..).peekable();
        let ends = self.runs.iter().skip(1).map(|(next, _)| *next).chain([self.events.len()]);
        for ((first, goroutine), end) in self.runs.iter().zip(ends) {
            let next = || values.next_if(|(at, _)| *at < end).map(|(at, values)| (at - first, values));
            take(*goroutine, &self.events[*first..end], &mut std::iter::from_fn(next));
        }
        drop(values);
        self.events.clear();
        self.runs.clear();
    }
}
