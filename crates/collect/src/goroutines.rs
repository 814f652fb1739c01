//! Pairs the events of goroutines, whichever threads run them.
//!
//! In the trace each goroutine is a thread of its own. The readers of the threads that run it leave
//! its events here. They wait until no earlier event of the same goroutine can come from another
//! thread, and are then paired and encoded in the order of their times.
//!
//! **When an event may be paired.** One thread at a time runs a goroutine, and another continues it
//! only when its earlier events are in the rings. So once all rings have been read after some
//! moment, all events from before that moment are there, except for at most one per thread that is
//! on its way into a ring: its goroutine has recorded nothing since, and the event comes when all
//! rings are read again.
//!
//! Slots of a goroutine's events are counted from the beginning of its stack, so they stay the same
//! when the stack is copied. What they prove (`pairing.rs`) holds for frames that a panic has left,
//! too.

use crate::metadata::SwitchedOff;
use crate::output::Output;
use crate::pairing::OpenCalls;
use crate::raw::{GoEvents, GoStart, RawEvent, Sink};
use crate::reader::encode::Encode;
use crate::reader::paired_output::PairedOutput;
use crate::reader::switching::Switching;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, GoroutineRun, Loss, Record, SiteId, Thread, ThreadEncoder, ThreadId};
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

/// Name of a goroutine in views; its number follows.
const NAME: &str = "goroutine";
/// Function of the runtime by which a thread begins to run a goroutine.
const EXECUTE: &str = "runtime.execute";
/// Number of waiting events from which all rings are read.
const MAX_WAITING: usize = 1 << 16;

/// Index of a process, and the number of a goroutine in it, or the address of a `g`.
type Key = (u32, u64);

/// A goroutine.
struct GoroutineEvents {
    totals: Loss,
    /// Events that wait.
    held: Vec<HeldEvent>,
    /// Threads that were found to run it and were not handed over.
    goroutine_runs: Vec<GoroutineRun>,
    /// Time of the newest event that was paired.
    last: u64,
    /// Address of its `g`.
    g: u64,
    /// Whether the `g` is noted as this goroutine's.
    noted: bool,
    state: Option<State>,
    switching: Switching,
}

/// An event that waits.
struct HeldEvent {
    raw: RawEvent,
    /// Facts about it that few events have.
    beside: Option<Box<Beside>>,
}

/// Facts about an event that few have.
#[derive(Default)]
struct Beside {
    /// The thread, if it may have run another goroutine before.
    begins_on: Option<ThreadId>,
    values: Box<[u8]>,
}

impl HeldEvent {
    fn beside(&mut self) -> &mut Beside {
        self.beside.get_or_insert_default()
    }
}

/// State of a goroutine that has open calls, or events that were not handed over.
struct State {
    open: OpenCalls,
    encoder: ThreadEncoder,
}

impl State {
    fn new(id: ThreadId) -> State {
        State { open: OpenCalls::on_one_stack(), encoder: ThreadEncoder::new(id) }
    }

    fn pairs(&mut self) -> PairedOutput<'_> {
        PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding: None }
    }
}

impl GoroutineEvents {
    /// `goroutines`: their number.
    fn new(id: ThreadId, off: &[Arc<SwitchedOff>], goroutines: usize) -> GoroutineEvents {
        let mut switching = Switching::default();
        off.iter().for_each(|off| switching.announce(off, goroutines));
        let totals = Loss { thread: id, ..Loss::default() };
        GoroutineEvents {
            totals,
            held: Vec::new(),
            goroutine_runs: Vec::new(),
            last: 0,
            g: 0,
            noted: false,
            state: None,
            switching,
        }
    }

    /// Pairs the events from before `until`.
    fn release(&mut self, until: u64, output: &mut Output<'_>) {
        if !self.held.is_sorted_by_key(|held| held.raw.ticks) {
            self.held.sort_by_key(|held| held.raw.ticks);
        }
        let count = self.held.partition_point(|held| held.raw.ticks < until);
        let id = self.totals.thread;
        let mut held = take(&mut self.held);
        let mut rest = &mut held[..count];
        // Number of events in front of the next one that has something beside it.
        let mut plain = 0;
        while !rest.is_empty() {
            if plain == 0 {
                plain = rest.iter().position(|held| held.beside.is_some()).unwrap_or(rest.len());
            }
            let state = self.state.get_or_insert_with(|| State::new(id));
            let mut sink = Encode::new(state.pairs(), None, &mut self.switching);
            let mut taken = sink.take_graph(&rest[..plain], |held| held.raw);
            sink.count(&mut self.totals);
            if taken == 0 {
                self.release_one(&mut rest[0]);
                taken = 1;
            }
            let (done, others) = rest.split_at_mut(taken);
            self.last = done[taken - 1].raw.ticks;
            (rest, plain) = (others, plain.saturating_sub(taken));
            if let Some(state) = self.state.as_mut().filter(|state| state.encoder.is_full()) {
                output.events(&mut state.encoder);
            }
        }
        held.drain(..count);
        self.held = held;
        let state = self.state.get_or_insert_with(|| State::new(id));
        self.switching.end_before(until, &mut state.pairs());
    }

    /// Pairs an event by itself.
    fn release_one(&mut self, held: &mut HeldEvent) {
        let Beside { begins_on, values } = held.beside.take().map(|beside| *beside).unwrap_or_default();
        let (raw, id) = (held.raw, self.totals.thread);
        let state = self.state.get_or_insert_with(|| State::new(id));
        self.goroutine_runs.extend(begins_on.map(|on| GoroutineRun { at: raw.ticks, on }));
        if raw.code() == code::CALL && self.switching.is_empty() {
            // A call without a return ends no later call; its slot shows which calls have ended.
            let pops = state.open.leave_before_call(raw);
            let (ticks, site, kind) = (raw.ticks, raw.site(), EventKind::Left { pops });
            (pops > 0).then(|| state.encoder.push(Event { ticks, site, kind }));
        }
        let mut sink = Encode::new(state.pairs(), None, &mut self.switching);
        sink.take(raw, &values, &[]);
        sink.count(&mut self.totals);
    }

    /// Hands over the events that were paired.
    fn flush(&mut self, output: &mut Output<'_>) {
        let Some(state) = &mut self.state else { return };
        output.goroutine_runs(self.totals.thread, &self.goroutine_runs);
        self.goroutine_runs.clear();
        self.switching.release(false, &mut state.pairs());
        output.events(&mut state.encoder);
        if state.open.is_empty() && self.held.is_empty() {
            self.state = None;
        }
    }

    /// Ends the goroutine. `is_over`: another goroutine has its `g`, so it has ended.
    fn end(mut self, is_over: bool, output: &mut Output<'_>) -> Loss {
        self.release(u64::MAX, output);
        if let Some(state) = self.state.as_mut().filter(|state| is_over && !state.open.is_empty()) {
            let (ticks, site) = (self.last, SiteId::default());
            state.encoder.push(Event { ticks, site, kind: EventKind::ThreadEnded });
        }
        self.flush(output);
        output.record(&Record::Loss(self.totals));
        output.end(self.totals.thread);
        self.totals
    }
}

fn sum(all: Loss, one: &Loss) -> Loss {
    let (entries, exits) = (all.entries.saturating_add(one.entries), all.exits.saturating_add(one.exits));
    Loss { entries, exits, ..all }
}

/// The goroutines of a session.
#[derive(Default)]
pub(crate) struct Goroutines {
    lanes: HashMap<Key, GoroutineEvents>,
    /// Number of the goroutine that had a `g` when it was last seen, by process and the address of
    /// the `g`.
    owners: HashMap<Key, u64>,
    /// Goroutines with events that wait or were not handed over; some of them may have none.
    busy: Vec<Key>,
    /// Number of events that wait.
    waiting: usize,
    /// Functions that are being disabled, for goroutines that are not known yet.
    off: Vec<Arc<SwitchedOff>>,
    /// Totals of the goroutines that have ended.
    ended: Loss,
    /// Whether it is noted which threads run them.
    follows: bool,
}

impl Goroutines {
    /// Notes the functions that are recorded: with the one that runs goroutines, the times of runs
    /// can be known.
    pub(crate) fn note(&mut self, record: &Record) {
        if let Record::Sites { sites } = record {
            self.follows |= sites.iter().any(|site| site.name == EXECUTE);
        }
    }

    /// Whether so many events wait that all rings should be read.
    pub(crate) fn are_many(&self) -> bool {
        self.waiting >= MAX_WAITING
    }

    /// Whether there are any goroutines.
    pub(crate) fn are_known(&self) -> bool {
        self.waiting > 0 || !self.lanes.is_empty()
    }

    /// Returns the totals of all goroutines.
    pub(crate) fn totals(&self) -> Loss {
        self.lanes.values().map(|lane| &lane.totals).fold(self.ended, sum)
    }

    /// Announces that functions were disabled.
    pub(crate) fn switch_off(&mut self, off: &Arc<SwitchedOff>) {
        let goroutines = self.lanes.len();
        self.lanes.values_mut().for_each(|lane| lane.switching.announce(off, goroutines));
        self.busy = self.lanes.keys().copied().collect();
        self.off.push(Arc::clone(off));
    }

    /// Takes the goroutine events of the thread `on` of a process. `next`: the number of the next
    /// thread of the trace.
    pub(crate) fn take(
        &mut self,
        (process, on): (u32, ThreadId),
        events: &mut GoEvents,
        next: &mut u32,
        output: &mut Output<'_>,
    ) {
        self.waiting += events.len();
        events.drain(|goroutine, run, values| {
            let key = (process, goroutine.number);
            let goroutines = self.lanes.len() + 1;
            let lane = self.lanes.entry(key).or_insert_with(|| {
                let id = ThreadId(*next);
                *next += 1;
                let tid = goroutine.number as u32;
                let started = goroutine
                    .start
                    .map(|GoStart { parent: by, function }| calltap_trace::GoStart { by, function });
                let (comm, goroutine) = (NAME.to_owned(), Some(goroutine.number));
                output.record(&Record::Thread(Thread { id, process, tid, comm, goroutine, started }));
                GoroutineEvents::new(id, &self.off, goroutines)
            });
            lane.g = goroutine.at;
            let first = lane.held.len();
            if first == 0 {
                self.busy.push(key);
            }
            lane.held.extend(run.iter().map(|raw| HeldEvent { raw: *raw, beside: None }));
            for (n, values) in values {
                lane.held[first + n].beside().values = values;
            }
            if goroutine.begins && self.follows {
                lane.held[first].beside().begins_on = Some(on);
            }
        });
    }

    /// Pairs the events from before `until`, a moment from before all rings were read.
    pub(crate) fn release(&mut self, until: u64, output: &mut Output<'_>) {
        self.busy.sort_unstable();
        self.busy.dedup();
        self.waiting = 0;
        for key in &self.busy {
            if let Some(lane) = self.lanes.get_mut(key) {
                lane.release(until, output);
                self.waiting += lane.held.len();
            }
        }
        self.note_owners(output);
        self.off.retain(|off| off.ended_before(until).is_none());
    }

    /// Ends goroutines whose `g` another goroutine has by now.
    fn note_owners(&mut self, output: &mut Output<'_>) {
        for key in &self.busy {
            let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.last > 0 && !lane.noted) else {
                continue;
            };
            lane.noted = true;
            let (g, last) = (lane.g, lane.last);
            let Some(former) = self.owners.insert((key.0, g), key.1).map(|former| (key.0, former)) else {
                continue;
            };
            let Some(other) = self.lanes.get(&former).filter(|_| former != *key) else { continue };
            // Both goroutines may be new: the one with the later event has the `g`.
            let over = if other.last <= last { former } else { *key };
            if over == *key {
                self.owners.insert((key.0, g), former.1);
            }
            if let Some(lane) = self.lanes.remove(&over) {
                self.ended = sum(self.ended, &lane.end(true, output));
            }
        }
    }

    /// Hands over the events that were paired.
    pub(crate) fn flush(&mut self, output: &mut Output<'_>) {
        for key in take(&mut self.busy) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.flush(output);
                if !lane.held.is_empty() {
                    self.busy.push(key);
                }
            }
        }
    }

    /// Ends all goroutines, as the recording ends. Returns their totals.
    pub(crate) fn end(&mut self, output: &mut Output<'_>) -> Loss {
        let mut lanes: Vec<GoroutineEvents> = take(&mut self.lanes).into_values().collect();
        lanes.sort_by_key(|lane| lane.totals.thread);
        for lane in lanes {
            self.ended = sum(self.ended, &lane.end(false, output));
        }
        self.ended
    }
}

#[cfg(test)]
mod tests;
