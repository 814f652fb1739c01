//! Empties the rings while the program runs: into the trace file, or to a live view.
//!
//! A chunk is read when it is full: reading where a thread is writing would cost it a cache miss per event. What lies in unfilled chunks is
//! read when a thread has been quiet for a while, has ended, or the recording ends.

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
use crate::heartbeat::Heartbeat;
use crate::metadata::{Followed, Metadata, SwitchedOff};
use crate::output::{Consumer, Output};
use crate::pairing::OpenCalls;
use crate::profile::Sums;
use crate::reader::history::History;
use crate::reader::{Extent, Reader};
use crate::shm::{self, Shared};
use crate::waits::kernel::Kernel;
use crate::waits::switches::Switches;
use calltap_abi::Clock;
use calltap_trace::{ClockPair, Error, Process, Record};
use held::HeldThreads;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sweep::Sweep;

/// A pass that found events is followed by the next after this time,
const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// one that found none after this.
const IDLE_PAUSE: Duration = Duration::from_millis(4);
/// Unfilled chunks are read, ended threads looked for, this often,
const SWEEP: Duration = Duration::from_millis(50);
/// but after so many times what that took, at least: there may be thousands of threads.
const SWEEP_SHARE: u32 = 8;
/// Events reach the file after this time at the latest, and the clocks are compared.
const FLUSH: Duration = Duration::from_secs(1);

/// Two comparisons of the clocks that lie so far apart tell how long a tick is to about a hundred thousandth.
const SETTLE: Duration = Duration::from_millis(10);

/// Of one thread, so many chunks are read in a pass: others wait for theirs, and where a thread fills chunks as fast as they are read, intervals would
/// not end.
const MOST_CHUNKS: u32 = 64;

/// And so many where events wait for those of other threads, which takes memory.
const MOST_WAITING: u32 = 8;

/// What a recording amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Events written.
    pub events: u64,
    /// Threads seen.
    pub threads: u32,
    /// Processes seen.
    pub processes: u32,
    /// Calls that happened and are not in the trace.
    pub lost_entries: u64,
    /// Returns likewise.
    pub lost_exits: u64,
}

/// For a live view, what happened in an interval is handed over when it ends: all of it, also what lies in unfilled chunks of busy threads.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// Length of an interval.
    pub interval: Duration,
    /// True while everything is switched on. When that begins, and when it ends, what there is is handed over.
    pub on: &'a AtomicBool,
    /// Also when it is asked for.
    pub due: Option<&'a Due>,
}

/// Asks that what has happened until now be handed over.
#[derive(Debug, Default)]
pub struct Due {
    asked: AtomicU64,
    served: AtomicU64,
}

impl Due {
    /// Asks. The number is for [`Due::is_served`].
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, AcqRel) + 1
    }

    /// Was everything handed over that had happened when this was asked for?
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
    /// Threads reuse their own oldest chunks: no other thread may read a thread's chunks while it lives.
    overwrite: bool,
    timed: bool,
    /// By index of the thread entry.
    readers: Vec<Option<Box<Reader>>>,
    processes: Vec<u32>,
    /// Which of them are another program by now, with an entry of its own.
    replaced: Vec<bool>,
    /// The newest of the followed processes, by their ids.
    followed: HashMap<u32, Followed>,
    /// Functions that were switched off since threads were last looked for: a thread that is found now may have calls of them open.
    switched_off: Vec<Arc<SwitchedOff>>,
    next_thread: u32,
    goroutines: Goroutines,
    /// Threads that are read.
    threads: u32,
    /// Those that have begun since ended ones were looked for.
    begun: u32,
    /// How many there may be at once, before any of them is known.
    expected: u32,
    totals: Totals,
    namespace: u64,
    rates: Option<Arc<Rates>>,
    live: Option<Live<'a>>,
    /// The clocks are compared twice before anything is read.
    settled: bool,
    /// When everything was last handed over, where that is done now and then.
    flushed: Option<Instant>,
    /// What threads that have ended had summed up; also for commands that ask meanwhile.
    sums: Arc<Mutex<Sums>>,
    /// The clocks when it began.
    began: Option<ClockPair>,
    /// Finds callers in copies of stacks.
    unwinding: Unwinding,
    /// Context switches of the threads.
    switches: Option<Switches>,
    /// Which of their waits calltap has caused.
    held: Option<HeldThreads>,
    /// Their wakings and system calls.
    kernel: Option<Kernel>,
    /// Calls that were read, for who wants to know meanwhile.
    calls: Option<&'a AtomicU64>,
    /// Those of threads that have ended.
    ended_calls: u64,
    /// Events behind that are left out.
    until: u64,
    /// What was read last of threads that have ended, by process and entry; oldest first.
    histories: VecDeque<((u32, u32), History)>,
    /// Events of threads wait for each other.
    has_moves: bool,
    /// Threads that there had been when it was last looked which have to watch for that.
    watched: u32,
    /// Of forked processes whose first thread is not read yet: the calls that were open at the fork.
    copied: HashMap<u32, (OpenCalls, Process)>,
}

impl<'a> Collector<'a> {
    /// A collector that hands over to `consumer`, also what comes from `records`.
    pub fn new(
        shared: &'a Shared,
        consumer: &'a mut dyn Consumer,
        records: Receiver<Metadata>,
        clock: Clock,
    ) -> Collector<'a> {
        use std::os::unix::fs::MetadataExt;
        Collector {
            shared,
            output: Output::new(consumer).introducing(shared),
            records,
            sparse: clock == Clock::Sparse,
            overwrite: shared.control().overwrite.load(Relaxed) != 0,
            timed: matches!(clock, Clock::Tsc | Clock::Sparse),
            readers: Vec::new(),
            processes: Vec::new(),
            replaced: Vec::new(),
            followed: HashMap::new(),
            switched_off: Vec::new(),
            next_thread: 0,
            goroutines: Goroutines::default(),
            threads: 0,
            begun: 0,
            expected: 0,
            totals: Totals::default(),
            namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()),
            rates: None,
            live: None,
            settled: false,
            flushed: None,
            sums: Arc::default(),
            began: None,
            unwinding: Unwinding::default(),
            switches: None,
            held: None,
            kernel: None,
            calls: None,
            ended_calls: 0,
            until: u64::MAX,
            histories: VecDeque::new(),
            has_moves: false,
            watched: 0,
            copied: HashMap::new(),
        }
    }

    /// Collects until `stop` says so and everything is read. What the consumer failed at, if it did.
    pub fn run(self, stop: &dyn Fn() -> bool) -> (Totals, Option<Error>) {
        let (shared, over) = (self.shared, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _heartbeat = Heartbeat::begin(scope, shared, &over);
            self.collect(stop)
        })
    }

    fn collect(mut self, stop: &dyn Fn() -> bool) -> (Totals, Option<Error>) {
        let (mut swept, mut until) = (Instant::now(), SWEEP);
        self.flushed = self.live.is_none().then_some(swept);
        let now = self.compare_clocks();
        self.began.get_or_insert(now);
        if self.settled && self.timed {
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
            self.shared.provide_chunks(self.threads.max(self.expected));
            self.take_records();
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
                self.add_unregistered();
                self.add_profile();
                return (self.totals, self.output.failed);
            }
            // The thread that stops this one wakes it.
            std::thread::park_timeout(if got { BUSY_PAUSE } else { IDLE_PAUSE });
        }
    }

    /// Is it time to hand everything over?
    fn is_due(&self, last: bool) -> bool {
        let late = |after: Duration| self.flushed.is_some_and(|flushed| flushed.elapsed() >= after);
        match self.live {
            None => last || late(FLUSH),
            Some(live) => {
                let asked = |due: &Due| due.asked.load(Acquire) != due.served.load(Relaxed);
                let on = live.on.load(Acquire);
                self.flushed.is_some() != on
                    || last && on
                    || late(live.interval)
                    || live.due.is_some_and(asked)
            }
        }
    }

    /// Counts what lies in unfilled chunks too, for the governor.
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
        let on = self.live.is_none_or(|live| live.on.load(Acquire));
        let due = self.live.and_then(|live| live.due);
        let asked = due.map_or(0, |due| due.asked.load(Acquire));
        self.flushed = on.then(Instant::now);
        let now = if self.live.is_some() && !last {
            // Also of threads that have begun since they were last looked for.
            self.take_records();
            self.find_threads();
            let now = self.compare_clocks();
            self.output.interval_ends(now);
            self.read_until(now.ticks);
            self.sweep(Sweep::Open);
            now
        } else {
            self.compare_clocks()
        };
        self.read_goroutines();
        self.read_moves();
        self.flush(now);
        due.into_iter().for_each(|due| due.served.store(asked, Release));
    }

    fn take_records(&mut self) {
        while let Ok(news) = self.records.try_recv() {
            if let Metadata::Followed(followed) = &news {
                self.followed.insert(followed.pid, followed.clone());
            }
            if let Metadata::Kept(change) = &news {
                self.output.change(change);
            }
            if let Metadata::Mapped(mapped) = &news {
                self.unwinding.map(mapped);
            }
            if let Metadata::SwitchedOff(off) = &news {
                self.readers.iter_mut().flatten().for_each(|reader| reader.switch_off(off));
                self.goroutines.switch_off(off);
                self.switched_off.push(Arc::clone(off));
            }
            news.tell(&mut |record| self.output.record(record));
        }
    }

    /// Reads every thread. True if anything came.
    fn pass(&mut self, extent: Extent) -> bool {
        let (mut got, mut has_memory) = (false, true);
        let most = match extent {
            Extent::Rest => u32::MAX,
            _ if self.has_moves => MOST_WAITING,
            _ => MOST_CHUNKS,
        };
        for reader in self.readers.iter_mut().flatten() {
            let freed = reader.freed;
            let came = reader.read(self.shared, extent, most, &mut self.output, &mut self.unwinding);
            got |= came;
            if reader.freed != freed {
                self.shared.tell_returned((reader.freed - freed) as u32);
            }
            // A pass over many threads takes long, and others take chunks meanwhile.
            if came && has_memory && extent != Extent::Rest {
                has_memory = self.shared.provide_chunks(self.threads.max(self.expected));
            }
        }
        self.gather_goroutines();
        got
    }

    /// Reads what has happened until a moment, of all threads in turns. At the moment no thread has more chunks than there are.
    fn read_until(&mut self, ticks: u64) {
        for _ in 0..=self.shared.chunk_count().div_ceil(MOST_CHUNKS) {
            self.pass(Extent::Partial);
            let mut readers = self.readers.iter().flatten();
            if !readers.any(|reader| reader.behind && reader.last_ticks() < ticks) {
                break;
            }
        }
    }

    fn flush(&mut self, now: ClockPair) {
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
        if let Some(switches) = &mut self.switches {
            switches.hand_over(&mut self.output);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.hand_over(&mut self.output);
        }
        self.output.flush(now);
    }
}
