//! Goroutines: what each does, whichever threads run it.
//!
//! A goroutine is a thread of the trace of its own. Threads that run it leave its events here, where they wait until no earlier one of the same goroutine can
//! come from another thread, and are then paired and encoded in the order of their times.
//!
//! **When that is.** A goroutine is on one thread at a time. It goes on in another one only when what it has recorded before is in the rings. So where
//! all rings are read after some moment, all events from before that moment are there, but for one of each thread that is on its way into a ring: its
//! goroutine has recorded nothing since, and comes when all rings are read again.
//!
//! Positions of a goroutine's events are counted from the beginning of its stack, so they are the same wherever that is copied to; what they prove
//! (`pairing.rs`) holds for frames that a panic has left, too.

use crate::metadata::SwitchedOff;
use crate::output::Output;
use crate::pairing::OpenCalls;
use crate::raw::{GoEvent, RawEvent, Sink};
use crate::reader::encode::Encode;
use crate::reader::pairs::Pairs;
use crate::reader::switching::Switching;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, Loss, Record, SiteId, Thread, ThreadEncoder, ThreadId};
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

/// What views call a goroutine; its number follows.
const NAME: &str = "goroutine";
/// More events do not wait: all rings are read.
const MANY: usize = 1 << 18;

/// A process, by its index, and the number of a goroutine in it.
type Key = (u32, u64);

/// One goroutine.
struct Lane {
    totals: Loss,
    /// Events that wait, and the time of the last that does not.
    held: Vec<RawEvent>,
    last: u64,
    /// The address of its `g`, and whether that is known to be its own by now.
    g: u64,
    noted: bool,
    state: Option<State>,
    switching: Switching,
}

/// What a goroutine has while it has open calls, or events that were not handed over.
struct State {
    open: OpenCalls,
    encoder: ThreadEncoder,
}

impl State {
    fn new(id: ThreadId) -> State {
        State { open: OpenCalls::new(true), encoder: ThreadEncoder::new(id) }
    }

    fn pairs(&mut self) -> Pairs<'_> {
        Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding: None }
    }
}

impl Lane {
    fn new(id: ThreadId, off: &[Arc<SwitchedOff>]) -> Lane {
        let mut switching = Switching::default();
        off.iter().for_each(|off| switching.announce(off));
        let totals = Loss { thread: id, ..Loss::default() };
        Lane { totals, held: Vec::new(), last: 0, g: 0, noted: false, state: None, switching }
    }

    /// Pairs what has happened before a time.
    fn release(&mut self, until: u64, output: &mut Output<'_>) {
        self.held.sort_by_key(|raw| raw.ticks);
        let count = self.held.partition_point(|raw| raw.ticks < until);
        let id = self.totals.thread;
        let state = self.state.get_or_insert_with(|| State::new(id));
        for raw in self.held.drain(..count) {
            self.last = raw.ticks;
            if raw.code() == code::CALL && self.switching.is_empty() {
                // What never returns ends nothing later: its position shows which calls are over.
                let pops = state.open.leave_before_call(raw);
                let (ticks, site, kind) = (raw.ticks, raw.site(), EventKind::Left { pops });
                (pops > 0).then(|| state.encoder.push(Event { ticks, site, kind }));
            }
            let mut sink = Encode::new(state.pairs(), None, &mut self.switching);
            sink.take(raw, &[], &[]);
            sink.count(&mut self.totals);
            if state.encoder.is_full() {
                output.events(&mut state.encoder);
            }
        }
        self.switching.end_before(until, &mut state.pairs());
    }

    /// Hands over what was paired.
    fn flush(&mut self, output: &mut Output<'_>) {
        let Some(state) = &mut self.state else { return };
        self.switching.release(false, &mut state.pairs());
        output.events(&mut state.encoder);
        if state.open.is_empty() && self.held.is_empty() {
            self.state = None;
        }
    }

    /// It does nothing more. `is_over`: as is known of it.
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
pub struct Goroutines {
    lanes: HashMap<Key, Lane>,
    /// By process and address of a `g`: whose it was when it was last seen.
    owners: HashMap<Key, u64>,
    /// Those that have events which wait, or were not handed over; some of them may have none.
    busy: Vec<Key>,
    waiting: usize,
    /// Functions that are being switched off, for goroutines that are not known yet.
    off: Vec<Arc<SwitchedOff>>,
    /// What those have done that are over.
    ended: Loss,
}

impl Goroutines {
    /// Do so many events wait that all rings should be read?
    pub fn are_many(&self) -> bool {
        self.waiting >= MANY
    }

    /// Are there any?
    pub fn are_known(&self) -> bool {
        self.waiting > 0 || !self.lanes.is_empty()
    }

    /// What all of them have done.
    pub fn totals(&self) -> Loss {
        self.lanes.values().map(|lane| &lane.totals).fold(self.ended, sum)
    }

    /// Functions were switched off.
    pub fn switch_off(&mut self, off: &Arc<SwitchedOff>) {
        self.lanes.values_mut().for_each(|lane| lane.switching.announce(off));
        self.busy = self.lanes.keys().copied().collect();
        self.off.push(Arc::clone(off));
    }

    /// Takes what a thread of a process has left. `next`: the number of the next thread of the trace.
    pub fn take(&mut self, process: u32, events: &mut Vec<GoEvent>, next: &mut u32, output: &mut Output<'_>) {
        self.waiting += events.len();
        for run in take(events).chunk_by(|one, other| one.goroutine == other.goroutine) {
            let Some(GoEvent { goroutine, .. }) = run.first() else { continue };
            let key = (process, goroutine.number);
            let lane = self.lanes.entry(key).or_insert_with(|| {
                let id = ThreadId(*next);
                *next += 1;
                let tid = goroutine.number as u32;
                let goroutine = Some(goroutine.number);
                output.record(&Record::Thread(Thread { id, process, tid, comm: NAME.to_owned(), goroutine }));
                Lane::new(id, &self.off)
            });
            lane.g = goroutine.at;
            if lane.held.is_empty() {
                self.busy.push(key);
            }
            lane.held.extend(run.iter().map(|event| event.raw));
        }
    }

    /// Pairs what has happened before a time, from before all rings were read.
    pub fn release(&mut self, until: u64, output: &mut Output<'_>) {
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

    /// A `g` that is another goroutine's by now shows that its former goroutine is over.
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
            // Both may be new: the one that has done something later has it.
            let over = if other.last <= last { former } else { *key };
            if over == *key {
                self.owners.insert((key.0, g), former.1);
            }
            if let Some(lane) = self.lanes.remove(&over) {
                self.ended = sum(self.ended, &lane.end(true, output));
            }
        }
    }

    /// Hands over what was paired.
    pub fn flush(&mut self, output: &mut Output<'_>) {
        for key in take(&mut self.busy) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.flush(output);
                if !lane.held.is_empty() {
                    self.busy.push(key);
                }
            }
        }
    }

    /// The recording is over.
    pub fn end(&mut self, output: &mut Output<'_>) -> Loss {
        let mut lanes: Vec<Lane> = take(&mut self.lanes).into_values().collect();
        lanes.sort_by_key(|lane| lane.totals.thread);
        for lane in lanes {
            self.ended = sum(self.ended, &lane.end(false, output));
        }
        self.ended
    }
}

#[cfg(test)]
mod tests;
