//! Completes the events of a thread with unwound callers, pairs them, and encodes them.

use crate::callers::Unwinding;
use crate::pairing::OpenCalls;
use crate::raw::RawEvent;
use calltap_trace::ThreadEncoder;

/// The open calls of a thread, and the encoder of its events.
pub(crate) struct PairedOutput<'a> {
    pub(crate) open: &'a mut OpenCalls,
    pub(crate) encoder: &'a mut ThreadEncoder,
    /// Unwinds copies of the stack; with the index of the process.
    pub(crate) unwinding: Option<(&'a mut Unwinding, u32)>,
}

impl PairedOutput<'_> {
    /// Pairs an event, and encodes it with its values and the callers that its copy of the stack
    /// leads to.
    pub(crate) fn pair(&mut self, raw: RawEvent, values: &[u8], stack: &[u8]) {
        if let Some((unwinding, process)) = self.unwinding.as_mut().filter(|_| !stack.is_empty()) {
            // Without other values, the mask of those that could not be read is empty.
            let mut values = if values.is_empty() { vec![0; 2] } else { values.to_vec() };
            unwinding.callers(*process, stack).write(&mut values);
            self.open.pair(raw, &values, self.encoder);
        } else {
            self.open.pair(raw, values, self.encoder);
        }
    }
}
