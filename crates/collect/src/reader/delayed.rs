//! An event that is paired later than it is read.

use crate::raw::RawEvent;

/// An event with its values and copy of the stack, of which most events have none.
#[derive(Debug)]
pub(super) struct DelayedEvent {
    pub(super) raw: RawEvent,
    read: Option<Box<(Vec<u8>, Vec<u8>)>>,
}

impl DelayedEvent {
    pub(super) fn new(raw: RawEvent, values: &[u8], stack: &[u8]) -> DelayedEvent {
        let has_read = !values.is_empty() || !stack.is_empty();
        DelayedEvent { raw, read: has_read.then(|| Box::new((values.to_vec(), stack.to_vec()))) }
    }

    /// Returns the values and the copy of the stack.
    pub(super) fn values_and_stack(&self) -> (&[u8], &[u8]) {
        self.read.as_deref().map_or((&[], &[]), |(values, stack)| (values, stack))
    }
}
