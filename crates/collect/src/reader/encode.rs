//! The sink of a thread's events: counts them, holds back those from the time in which functions
//! are disabled, and pairs and encodes the others.

use super::paired_output::PairedOutput;
use super::switching::Switching;
use super::waiting::Waiting;
use crate::governor::Rates;
use crate::pairing;
use crate::raw::{GoEvents, Goroutine, RawEvent, Sink};
use calltap_abi::event::{code, is_nonlocal};
use calltap_trace::Loss;

/// The sink to which a cursor hands the events of a thread.
pub(crate) struct Encode<'a> {
    pub(crate) pairs: PairedOutput<'a>,
    rates: Option<&'a Rates>,
    switching: &'a mut Switching,
    events: u64,
    exits: u64,
    until: u64,
    /// Takes the events of goroutines.
    of_go: Option<&'a mut GoEvents>,
    /// Takes the events that have to wait for other threads.
    waiting: Option<&'a mut Waiting>,
}

impl<'a> Encode<'a> {
    pub(crate) fn new(
        pairs: PairedOutput<'a>,
        rates: Option<&'a Rates>,
        switching: &'a mut Switching,
    ) -> Self {
        Encode { pairs, rates, switching, events: 0, exits: 0, until: u64::MAX, of_go: None, waiting: None }
    }

    /// Leaves out events behind `ticks`.
    pub(crate) fn until(self, ticks: u64) -> Self {
        Encode { until: ticks, ..self }
    }

    /// Collects the events of goroutines in `of_go`.
    pub(crate) fn leaving(self, of_go: &'a mut GoEvents) -> Self {
        Encode { of_go: Some(of_go), ..self }
    }

    /// Collects the events that have to wait for other threads in `waiting`.
    pub(crate) fn waiting(self, waiting: &'a mut Waiting) -> Self {
        Encode { waiting: Some(waiting), ..self }
    }

    /// Whether each event has to be handled singly.
    fn takes_one_by_one(&self) -> bool {
        !self.switching.is_empty() || self.waiting.as_ref().is_some_and(|waiting| waiting.is_on())
    }

    /// Returns the words in front of the first event that is left out.
    fn kept<'w, T>(&self, words: &'w [T], event: impl Fn(&T) -> RawEvent) -> &'w [T] {
        let is_late = |word: &T| event(word).ticks > self.until;
        let end = if self.until == u64::MAX { None } else { words.iter().position(is_late) };
        &words[..end.unwrap_or(words.len())]
    }

    /// Counts events by site for the governor, and the entries of functions that call another one.
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

    /// Adds the numbers of entries and returns to `totals`.
    pub(crate) fn count(self, totals: &mut Loss) {
        totals.entries += self.events - self.exits;
        totals.exits += self.exits;
    }
}

/// `take_graph` and `take_calls` are not inlined: inside the loop over a chunk there are too few
/// registers for them.
impl Sink for Encode<'_> {
    fn take(&mut self, raw: RawEvent, values: &[u8], stack: &[u8]) {
        if raw.ticks > self.until {
            return;
        }
        if let Some(waiting) = &mut self.waiting
            && waiting.hold(raw, values, stack, &self.pairs)
        {
            return;
        }
        if !is_nonlocal(raw.code()) {
            self.events += 1;
            self.exits += u64::from(raw.code() == code::EXIT);
            self.count_rates(&[raw], |raw| *raw);
        }
        if self.switching.is_empty() || !self.switching.hold(raw, values, stack, &mut self.pairs) {
            self.pairs.pair(raw, values, stack);
        }
    }

    fn take_go(&mut self, raw: RawEvent, goroutine: Goroutine, values: Vec<u8>) {
        if goroutine.number == 0 {
            // The event is on the scheduler's stack or that of signal handlers.
            return self.take(raw.on_own_stack(goroutine), &values, &[]);
        }
        if raw.ticks <= self.until {
            let plain = raw.plain();
            self.count_rates(&[plain], |raw| *raw);
            if let Some(of_go) = &mut self.of_go {
                of_go.push(goroutine, plain, values);
            }
        }
    }

    #[inline(never)]
    fn take_go_graph<T>(
        &mut self,
        words: &[T],
        goroutine: Goroutine,
        event: impl Fn(&T) -> RawEvent,
    ) -> usize {
        let is_go = |raw: &RawEvent| matches!(raw.code(), code::GO_ENTRY | code::GO_EXIT);
        if goroutine.number == 0 {
            let other = |raw: RawEvent| RawEvent { low: code::PAD, ..raw };
            return self.take_graph(words, |word| {
                let raw = event(word);
                if is_go(&raw) { raw.on_own_stack(goroutine) } else { other(raw) }
            });
        }
        let words = self.kept(words, &event);
        let Some(of_go) = &mut self.of_go else { return 0 };
        let count = of_go.extend(goroutine, words.iter().map(&event).take_while(is_go).map(RawEvent::plain));
        self.count_rates(&words[..count], |word| event(word).plain());
        count
    }

    #[inline(never)]
    fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        let words = self.kept(words, &event);
        if self.takes_one_by_one() {
            // Takes one event, as the next may not need that. Other events than entries and returns
            // are left to the caller.
            let first = words.first().map(&event).filter(|first| pairing::is_graph(first.code()));
            return first.map(|first| self.take(first, &[], &[])).is_some().into();
        }
        let (count, exits) = self.pairs.open.pair_graph(words, &event, self.pairs.encoder);
        self.count_rates(&words[..count], event);
        self.exits += exits as u64;
        self.events += count as u64;
        count
    }

    #[inline(never)]
    fn take_calls<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        let words = self.kept(words, &event);
        if self.takes_one_by_one() {
            let first = words.first().map(&event).filter(|first| first.code() == code::CALL);
            return first.map(|first| self.take(first, &[], &[])).is_some().into();
        }
        let count = self.pairs.encoder.push_calls(words, |word| {
            let call = event(word);
            (call.code() == code::CALL).then(|| (call.ticks, call.site(), call.parent))
        });
        self.count_rates(&words[..count], event);
        self.events += count as u64;
        count
    }
}
