//! Pairs the events of a thread, and encodes them.

use super::switching::Switching;
use crate::callers::Unwinding;
use crate::governor::Rates;
use crate::pairing::{self, OpenCalls};
use crate::raw::{RawEvent, Sink};
use calltap_abi::event::code;
use calltap_trace::{Loss, ThreadEncoder};

/// Pairs and encodes.
pub(super) struct Encode<'a> {
    pub(super) open: &'a mut OpenCalls,
    pub(super) encoder: &'a mut ThreadEncoder,
    rates: Option<&'a Rates>,
    pub(super) switching: &'a mut Switching,
    /// What unwinds stacks of a process, by its index.
    pub(super) unwinding: Option<(&'a mut Unwinding, u32)>,
    events: u64,
    exits: u64,
}

impl<'a> Encode<'a> {
    pub(super) fn new(
        open: &'a mut OpenCalls,
        encoder: &'a mut ThreadEncoder,
        rates: Option<&'a Rates>,
        switching: &'a mut Switching,
    ) -> Self {
        Encode { open, encoder, rates, switching, unwinding: None, events: 0, exits: 0 }
    }

    /// Pairs an event, and encodes it with its values and the callers that its copy of the stack leads to.
    pub(super) fn pair(&mut self, raw: RawEvent, values: &[u8], stack: &[u8]) {
        if let Some((unwinding, process)) = self.unwinding.as_mut().filter(|_| !stack.is_empty()) {
            // Without other values there is no mask of those that could not be read, either.
            let mut values = if values.is_empty() { vec![0; 2] } else { values.to_vec() };
            unwinding.callers(*process, stack).write(&mut values);
            self.open.pair(raw, &values, self.encoder);
        } else {
            self.open.pair(raw, values, self.encoder);
        }
    }

    fn count_rates<T>(&self, words: &[T], event: impl Fn(&T) -> RawEvent) {
        let Some(rates) = self.rates else { return };
        let mut entered = None;
        for raw in words.iter().map(event) {
            rates.count(raw.site());
            let enters = matches!(raw.code(), code::ENTRY | code::NESTED_ENTRY);
            if enters && let Some(caller) = entered {
                rates.count_calling(caller);
            }
            entered = enters.then(|| raw.site());
        }
    }

    pub(super) fn count(self, totals: &mut Loss) {
        totals.entries += self.events - self.exits;
        totals.exits += self.exits;
    }
}

/// The two loops are functions of their own: inside the loop over a chunk, they have not enough registers.
impl Sink for Encode<'_> {
    fn take(&mut self, raw: RawEvent, values: &[u8], stack: &[u8]) {
        self.events += 1;
        self.exits += u64::from(raw.code() == code::EXIT);
        self.count_rates(&[raw], |raw| *raw);
        if self.switching.is_empty() || !self.hold(raw, values, stack) {
            self.pair(raw, values, stack);
        }
    }

    #[inline(never)]
    fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        if !self.switching.is_empty() {
            // One by one, until that was. What is no event of calls is not for this function.
            let first = words.first().map(&event).filter(|first| pairing::is_graph(first.code()));
            return first.map(|first| self.take(first, &[], &[])).is_some().into();
        }
        let (count, exits) = self.open.pair_graph(words, &event, self.encoder);
        self.count_rates(&words[..count], event);
        self.exits += exits as u64;
        self.events += count as u64;
        count
    }

    #[inline(never)]
    fn take_calls<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        if !self.switching.is_empty() {
            let first = words.first().map(&event).filter(|first| first.code() == code::CALL);
            return first.map(|first| self.take(first, &[], &[])).is_some().into();
        }
        let count = self.encoder.push_calls(words, |word| {
            let call = event(word);
            (call.code() == code::CALL).then(|| (call.ticks, call.site(), call.parent))
        });
        self.count_rates(&words[..count], event);
        self.events += count as u64;
        count
    }
}
