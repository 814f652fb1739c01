//! The collector empties the rings while the program runs, into the trace file or a live view.
//!
//! It reads a chunk when the chunk is full: reading where a thread is writing would cost the thread
//! a cache miss per event. It reads unfilled chunks when a thread has been quiet for a while, has
//! ended, or the recording ends.

mod goroutines;
mod held;
mod kernel;
mod moments;
mod moves;
mod profiles;
mod settings;
mod sweep;
mod threads;

use crate::callers::Unwinding;
use crate::goroutines::Goroutines;
use crate::governor::Rates;
use crate::heartbeat;
use crate::metadata::Metadata;
use crate::output::{Consumer, Output};
use crate::profile::Sums;
use crate::reader::{Extent, Reader};
use crate::shm::{self, Shared};
use calltap_abi::Clock;
use calltap_trace::{ClockPair, Error, Record};
use kernel::KernelSources;
use moves::Moves;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sweep::Sweep;
use threads::{Processes, Threads};

/// Pause after a pass that found events.
const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// Pause after a pass that found none.
const IDLE_PAUSE: Duration = Duration::from_millis(4);
/// Interval at which unfilled chunks are read and ended threads looked for.
const SWEEP: Duration = Duration::from_millis(50);
/// Least time between two sweeps, as a multiple of what the last took: there may be thousands of
/// threads.
const SWEEP_SHARE: u32 = 8;
/// Longest time until events are written to the file; the clocks are compared as often.
const FLUSH: Duration = Duration::from_secs(1);

/// Distance between the first two comparisons of the clocks. It gives the length of a tick to about
/// one part in a hundred thousand.
const SETTLE: Duration = Duration::from_millis(10);

/// Maximum number of chunks of one thread that a pass reads: other threads wait for theirs, and
/// intervals would not end where a thread fills chunks as fast as they are read.
const MAX_CHUNKS: u32 = 64;

/// Maximum number of chunks of one thread that a pass reads while events are held back until those
/// of other threads have arrived: held events take memory.
const MAX_WAITING: u32 = 8;

/// Totals of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Events written.
    pub events: u64,
    /// Threads seen.
    pub threads: u32,
    /// Processes seen.
    pub processes: u32,
    /// How many of them are programs that another of them has executed.
    pub executed: u32,
    /// Calls that happened and are not in the trace.
    pub lost_entries: u64,
    /// Returns that happened and are not in the trace.
    pub lost_exits: u64,
    /// The lost calls for which a goroutine's stack had no room.
    pub without_room: u64,
    /// Records of system calls, wakeups and incidents that the kernel lost.
    pub lost_of_kernel: u64,
}

/// Settings of a live view. At the end of each interval the collector hands over all that happened
/// in it, from unfilled chunks of busy threads too.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// Length of an interval.
    pub interval: Duration,
    /// True while sites are enabled. When it changes, the events so far are handed over.
    pub on: &'a AtomicBool,
    /// Requests to hand over events before the interval ends.
    pub due: Option<&'a Due>,
}

/// Requests to hand over the events so far.
#[derive(Debug, Default)]
pub struct Due {
    asked: AtomicU64,
    served: AtomicU64,
}

impl Due {
    /// Requests a handover and returns its number for [`Due::is_served`].
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, AcqRel) + 1
    }

    /// Whether all events from before request `number` have been handed over.
    pub fn is_served(&self, number: u64) -> bool {
        self.served.load(Acquire) >= number
    }
}

/// Reads all threads of a session.
pub struct Collector<'a> {
    shared: &'a Shared,
    output: Output<'a>,
    records: Receiver<Metadata>,
    sparse: bool,
    /// Threads reuse their own oldest chunks: no other thread may read a thread's chunks while it
    /// lives.
    overwrite: bool,
    timed: bool,
    /// Reader of each thread that is read, by index of the thread entry.
    readers: Vec<Option<Box<Reader>>>,
    threads: Threads,
    processes: Processes,
    goroutines: Goroutines,
    moves: Moves,
    kernel: KernelSources,
    /// Finds callers in copies of stacks.
    unwinding: Unwinding,
    totals: Totals,
    rates: Option<Arc<Rates>>,
    handover: Handover<'a>,
    /// The clocks at the start of the session.
    began: Option<ClockPair>,
    /// Events behind this time are left out.
    until: u64,
    /// Profile sums of ended threads, shared with commands that ask for them during the recording.
    sums: Arc<Mutex<Sums>>,
    /// Publishes the number of calls read so far.
    calls: Option<&'a AtomicU64>,
    /// Calls of threads that have ended.
    ended_calls: u64,
}

/// When events are handed over to the consumer.
#[derive(Default)]
struct Handover<'a> {
    live: Option<Live<'a>>,
    /// Time of the last handover; `None` while a live view is off.
    last: Option<Instant>,
    /// Whether the clocks are compared twice before any event is read.
    settles: bool,
}

impl<'a> Collector<'a> {
    /// Creates a collector that hands events to `consumer`, and the metadata from `records` as
    /// well.
    pub fn new(
        shared: &'a Shared,
        consumer: &'a mut dyn Consumer,
        records: Receiver<Metadata>,
        clock: Clock,
    ) -> Collector<'a> {
        Collector {
            shared,
            output: Output::new(consumer).introducing(shared),
            records,
            sparse: clock == Clock::Sparse,
            overwrite: shared.control().overwrite.load(Relaxed) != 0,
            timed: clock.reads_tsc(),
            readers: Vec::new(),
            threads: Threads::default(),
            processes: Processes::new(),
            goroutines: Goroutines::default(),
            moves: Moves::default(),
            kernel: KernelSources::default(),
            unwinding: Unwinding::default(),
            totals: Totals::default(),
            rates: None,
            handover: Handover::default(),
            began: None,
            until: u64::MAX,
            sums: Arc::default(),
            calls: None,
            ended_calls: 0,
        }
    }

    /// Collects until `stop` returns true and everything is read. Returns the totals and the error
    /// of the consumer, if it failed.
    pub fn run(self, stop: &dyn Fn() -> bool) -> (Totals, Option<Error>) {
        heartbeat::beating(self.shared, || self.collect(stop))
    }

    fn collect(mut self, stop: &dyn Fn() -> bool) -> (Totals, Option<Error>) {
        let (mut swept, mut until) = (Instant::now(), SWEEP);
        self.handover.last = self.handover.live.is_none().then_some(swept);
        let (started, now) = (swept, self.compare_clocks());
        self.began.get_or_insert(now);
        let mut is_tick_known = self.handover.settles || !self.timed;
        if self.handover.settles && self.timed {
            std::thread::sleep(SETTLE);
            self.compare_clocks();
        }
        loop {
            let last = stop();
            if last {
                self.output.over(self.this_moment());
            }
            // The agent clears this when the recorder was stopped for too long.
            let accepts = !last && self.output.failed.is_none();
            self.shared.control().recording.store(accepts.into(), Relaxed);
            self.shared.provide_chunks(self.threads.may_run());
            self.take_records();
            if !is_tick_known && started.elapsed() >= SETTLE {
                // A recording that ends within its first second, as on a full disk, has two clock
                // pairs: readers need both for times.
                self.compare_clocks();
                is_tick_known = true;
            }
            self.find_threads();
            let sweep = last || swept.elapsed() >= until;
            self.relieve_kernel();
            if last {
                self.read_moves();
            }
            let got = (last || !self.overwrite) && self.pass(if last { Extent::Rest } else { Extent::Full });
            if sweep {
                let began = Instant::now();
                self.sweep(if last { Sweep::All } else { Sweep::Quiet });
                swept = Instant::now();
                until = SWEEP.max(SWEEP_SHARE * began.elapsed());
            } else {
                self.end_short_threads();
            }
            if !last && (self.wait_with_others() || sweep) {
                self.read_moves();
            }
            if last {
                self.end_goroutines();
            } else if self.goroutines.are_many() {
                self.read_goroutines();
            }
            if self.is_due(last) {
                self.hand_over(last);
            }
            self.complete_rates();
            if last {
                self.take_records();
                self.add_uncounted();
                self.add_profile();
                return (self.totals, self.output.failed);
            }
            // The thread that stops this one wakes it.
            std::thread::park_timeout(if got { BUSY_PAUSE } else { IDLE_PAUSE });
        }
    }

    /// Whether it is time to hand events over.
    fn is_due(&self, last: bool) -> bool {
        let late = |after: Duration| self.handover.last.is_some_and(|flushed| flushed.elapsed() >= after);
        match self.handover.live {
            None => last || late(FLUSH),
            Some(live) => {
                let asked = |due: &Due| due.asked.load(Acquire) != due.served.load(Relaxed);
                let on = live.on.load(Acquire);
                self.handover.last.is_some() != on
                    || last && on
                    || late(live.interval)
                    || live.due.is_some_and(asked)
            }
        }
    }

    /// Counts the events in unfilled chunks too, when the governor asks for complete rates.
    fn complete_rates(&mut self) {
        let Some(rates) = self.rates.clone().filter(|rates| rates.are_wanted()) else { return };
        if !self.overwrite {
            self.pass(Extent::Partial);
        }
        self.complete_moves(false);
        rates.are_complete();
        self.shared.control().doorbell.fetch_add(1, AcqRel);
        shm::wake(&self.shared.control().doorbell);
    }

    fn hand_over(&mut self, last: bool) {
        let on = self.handover.live.is_none_or(|live| live.on.load(Acquire));
        let due = self.handover.live.and_then(|live| live.due);
        let asked = due.map_or(0, |due| due.asked.load(Acquire));
        self.handover.last = on.then(Instant::now);
        let now = if self.handover.live.is_some() && !last {
            // Threads that have begun since the last pass are read too.
            self.take_records();
            self.find_threads();
            let now = self.compare_clocks();
            self.output.interval_ends(now);
            self.read_until(now.ticks);
            self.sweep(Sweep::Open);
            // A site may have been described and enabled while its first events were read.
            self.take_records();
            now
        } else {
            self.compare_clocks()
        };
        self.read_goroutines();
        self.read_moves();
        // A request is for the states of all threads as they are known now.
        self.flush(now, last || due.is_some_and(|due| due.served.load(Acquire) != asked));
        due.into_iter().for_each(|due| due.served.store(asked, Release));
    }

    fn take_records(&mut self) {
        while let Ok(metadata) = self.records.try_recv() {
            if let Metadata::Executed { pid, at } = metadata {
                self.replace_program(pid, at);
            }
            if let Metadata::Followed(followed) = &metadata {
                self.processes.followed.insert(followed.pid, followed.clone());
            }
            if let Metadata::Kept(change) = &metadata {
                self.output.change(change);
            }
            if let Metadata::Mapped(mapped) = &metadata {
                self.unwinding.map(mapped);
            }
            if let Metadata::SwitchedOff(off) = &metadata {
                let threads = self.threads.count as usize;
                self.readers.iter_mut().flatten().for_each(|reader| reader.switch_off(off, threads));
                self.goroutines.switch_off(off);
                self.threads.switched_off.push(Arc::clone(off));
            }
            metadata.tell(&mut |record| {
                self.goroutines.note(record);
                self.output.record(record);
            });
        }
    }

    /// Reads every thread. Returns whether it found events.
    fn pass(&mut self, extent: Extent) -> bool {
        self.measure_own_stacks();
        let (mut got, mut has_memory) = (false, true);
        let most = match extent {
            Extent::Rest => u32::MAX,
            _ if self.moves.has_waiting || self.goroutines.are_known() => MAX_WAITING,
            _ => MAX_CHUNKS,
        };
        for reader in self.readers.iter_mut().flatten() {
            let freed = reader.freed;
            let has_read = reader.read(self.shared, extent, most, &mut self.output, &mut self.unwinding);
            got |= has_read;
            if reader.freed != freed {
                self.shared.tell_returned((reader.freed - freed) as u32);
            }
            // A pass over many threads takes long, and others take chunks meanwhile.
            if has_read && has_memory && extent != Extent::Rest {
                has_memory = self.shared.provide_chunks(self.threads.may_run());
            }
        }
        self.gather_goroutines();
        got
    }

    /// Reads the events until `ticks` of all threads in turns. At that moment no thread has more
    /// chunks than there are.
    fn read_until(&mut self, ticks: u64) {
        for _ in 0..=self.shared.chunk_count().div_ceil(MAX_CHUNKS) {
            self.pass(Extent::Partial);
            let mut readers = self.readers.iter().flatten();
            if !readers.any(|reader| reader.behind && reader.last_ticks() < ticks) {
                break;
            }
        }
    }

    /// Hands over everything until `now`; `all`: with states that calltap may still correct.
    fn flush(&mut self, now: ClockPair, all: bool) {
        let ticks = self.ticks_of(now);
        for reader in self.readers.iter_mut().flatten() {
            reader.flush(self.shared, ticks, &mut self.output, &mut self.unwinding);
        }
        self.goroutines.flush(&mut self.output);
        if let Some(calls) = self.calls {
            let living: u64 = self.readers.iter().flatten().map(|reader| reader.totals.entries).sum();
            let living = living.saturating_add(self.goroutines.totals().entries);
            calls.store(self.ended_calls.saturating_add(living), Relaxed);
        }
        let losses = self.readers.iter().flatten().map(|reader| reader.totals);
        for loss in losses.filter(|loss| loss.lost_entries > 0 || loss.lost_exits > 0) {
            self.output.record(&Record::Loss(loss));
        }
        self.read_switches(false);
        if let Some(switches) = &mut self.kernel.switches {
            switches.hand_over(all, &mut self.output);
        }
        if let Some(kernel) = &mut self.kernel.events {
            kernel.hand_over(&mut self.output);
        }
        self.output.flush(now);
    }
}
