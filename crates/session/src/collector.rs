//! Empties the rings into the trace file while the program runs.
//!
//! A chunk is read when it is full: reading where a thread is writing would cost it a cache miss per event. What lies in unfilled chunks is
//! read when a thread has been quiet for a while, has ended, or the recording ends.

use crate::clock;
use crate::pairing::OpenCalls;
use crate::raw::{Cursor, RawEvent, Sink};
use crate::shm::{self, Shared};
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, Clock, ThreadEntry, ThreadState};
use calltap_trace::{
    Error, Event, EventKind, Loss, Process, Record, Thread, ThreadEncoder, ThreadId, TraceWriter,
};
use std::fs;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A pass that found events is followed by the next after this time,
const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// one that found none after this.
const IDLE_PAUSE: Duration = Duration::from_millis(4);
/// Unfilled chunks are read, ended threads looked for, this often.
const SWEEP: Duration = Duration::from_millis(50);
/// Events reach the file after this time at the latest, and the clocks are compared.
const FLUSH: Duration = Duration::from_secs(1);
/// A slot that is still empty so long after its chunk was full will never be written: its writer was a hook that a signal handler
/// interrupted and left by siglongjmp.
const HOLE: Duration = Duration::from_millis(100);
/// Chunks looked ahead for others that are full already.
const LOOK_AHEAD: usize = 4096;

/// What is read of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Chunks that are full.
    Full,
    /// Also the one being filled.
    Partial,
    /// All there is: the thread writes no more.
    Rest,
}

struct Reader {
    entry: u32,
    process: u32,
    tid: u32,
    chunk: Option<u32>,
    cursor: Cursor,
    open: OpenCalls,
    encoder: ThreadEncoder,
    totals: Loss,
    /// Waiting for an empty slot since then; and up to which chunk that wait counts.
    hole: Option<(Instant, u32)>,
    /// Empty slots before the end of this chunk are empty for good.
    settled: Option<u32>,
    /// A slot of this chunk was stepped over.
    skipped: bool,
    /// Chunks of which a slot was stepped over. Should its writer come back after all, it must not write into what is another
    /// thread's by then: they are kept until the thread ends.
    kept: Vec<u32>,
    torn: u64,
    /// Something came since the last sweep.
    active: bool,
}

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

/// Reads all threads of a session.
pub struct Collector<'a> {
    shared: &'a Shared,
    writer: TraceWriter,
    records: Receiver<Record>,
    sparse: bool,
    /// Threads reuse their own oldest chunks: nobody else may read a thread's chunks while it lives.
    overwrite: bool,
    timed: bool,
    /// By index of the thread entry.
    readers: Vec<Option<Box<Reader>>>,
    processes: Vec<u32>,
    next_thread: u32,
    totals: Totals,
    failed: Option<Error>,
    namespace: u64,
}

impl<'a> Collector<'a> {
    /// A collector that writes to `writer`, also what comes from `records`.
    pub fn new(
        shared: &'a Shared,
        writer: TraceWriter,
        records: Receiver<Record>,
        clock: Clock,
    ) -> Collector<'a> {
        use std::os::unix::fs::MetadataExt;
        Collector {
            shared,
            writer,
            records,
            sparse: clock == Clock::Sparse,
            overwrite: shared.control().overwrite.load(Relaxed) != 0,
            timed: matches!(clock, Clock::Tsc | Clock::Sparse),
            readers: Vec::new(),
            processes: Vec::new(),
            next_thread: 0,
            totals: Totals::default(),
            failed: None,
            namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()),
        }
    }

    /// Collects until `stop` says so and everything is read. The writer comes back for its last record.
    pub fn run(mut self, stop: &dyn Fn() -> bool) -> (TraceWriter, Totals, Option<Error>) {
        let control = self.shared.control();
        let (mut swept, mut flushed) = (Instant::now(), Instant::now());
        self.compare_clocks();
        loop {
            let last = stop();
            control.heartbeat.fetch_add(1, Relaxed);
            // The agent clears this when we were stopped for too long.
            control.recording.store(u32::from(!last && self.failed.is_none()), Relaxed);
            self.shared.provide_chunks();
            self.take_records();
            self.find_threads();
            let sweep = last || swept.elapsed() >= SWEEP;
            let got = (last || !self.overwrite) && self.pass(if last { Extent::Rest } else { Extent::Full });
            if sweep {
                swept = Instant::now();
                self.sweep(last);
            }
            if last || flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                self.compare_clocks();
                self.flush();
            }
            if last {
                self.take_records();
                self.add_unregistered();
                return (self.writer, self.totals, self.failed);
            }
            std::thread::sleep(if got { BUSY_PAUSE } else { IDLE_PAUSE });
        }
    }

    fn write(&mut self, record: &Record) {
        if self.failed.is_none() {
            self.failed = self.writer.record(record).err();
        }
    }

    fn take_records(&mut self) {
        while let Ok(record) = self.records.try_recv() {
            self.write(&record);
        }
    }

    fn compare_clocks(&mut self) {
        if self.timed {
            self.write(&Record::Clock(clock::pair()));
        }
    }

    fn find_threads(&mut self) {
        let control = self.shared.control();
        for index in self.processes.len() as u32..control.process_bump.load(Acquire) {
            let Some(process) = self.shared.process(index) else { break };
            let pid = process.pid.load(Acquire);
            if pid == 0 {
                break; // being filled in
            }
            let parent = process.parent.load(Relaxed).checked_sub(1);
            self.processes.push(pid);
            self.totals.processes += 1;
            self.write(&Record::Process(Process { id: index, pid, parent, comm: comm(pid, pid) }));
        }
        for index in 0..control.thread_bump.load(Acquire) {
            if self.readers.get(index as usize).is_some_and(Option::is_some) {
                continue;
            }
            let Some(entry) = self.shared.thread(index) else { break };
            if entry.state.load(Acquire) == ThreadState::Live as u32 {
                self.begin(index, entry.process.load(Relaxed), entry.tid.load(Relaxed));
            }
        }
    }

    fn begin(&mut self, entry: u32, process: u32, tid: u32) {
        // A thread id used again: its former owner is gone, whatever /proc says now.
        let former =
            self.readers.iter_mut().flatten().find(|reader| (reader.process, reader.tid) == (process, tid));
        if let Some(former) = former {
            former.tid = 0;
        }
        let id = ThreadId(self.next_thread);
        self.next_thread += 1;
        self.totals.threads += 1;
        let pid = self.processes.get(process as usize).copied().unwrap_or(0);
        // The name of now, or if the thread is gone the name it began with.
        let name = self.shared.thread(entry).map(name_at_start).unwrap_or_default();
        let comm = Some(comm(pid, tid)).filter(|comm| !comm.is_empty()).unwrap_or(name);
        self.write(&Record::Thread(Thread { id, process, tid, comm }));
        let reader = Reader {
            entry,
            process,
            tid,
            chunk: None,
            cursor: Cursor::default(),
            open: OpenCalls::default(),
            encoder: ThreadEncoder::new(id),
            totals: Loss { thread: id, ..Loss::default() },
            hole: None,
            settled: None,
            skipped: false,
            kept: Vec::new(),
            torn: 0,
            active: true,
        };
        let place = entry as usize;
        self.readers.resize_with(self.readers.len().max(place + 1), || None);
        self.readers[place] = Some(Box::new(reader));
    }

    /// Reads every thread. True if anything came.
    fn pass(&mut self, extent: Extent) -> bool {
        let mut got = false;
        for reader in self.readers.iter_mut().flatten() {
            got |= reader.read(self.shared, self.sparse, extent, &mut self.writer, &mut self.failed);
        }
        if got {
            self.shared.control().chunks_returned.fetch_add(1, AcqRel);
            shm::wake(&self.shared.control().chunks_returned);
        }
        got
    }

    /// Reads the unfilled chunks of quiet threads, and lets go of those that have ended (at the end: of all).
    fn sweep(&mut self, last: bool) {
        let mut ended = Vec::new();
        for reader in self.readers.iter_mut().flatten() {
            if reader.active && !last && !self.overwrite {
                reader.active = false;
                continue;
            }
            let over = last
                || reader.tid == 0
                || self.processes.get(reader.process as usize).is_some_and(|pid| {
                    let foreign =
                        self.shared.process(reader.process).map_or(0, |p| p.pid_namespace.load(Relaxed));
                    // Ids of another pid namespace cannot be looked up: such threads end with their process, at the end.
                    foreign == self.namespace && !thread_exists(*pid, reader.tid)
                });
            if !over && self.overwrite {
                continue;
            }
            let extent = if over { Extent::Rest } else { Extent::Partial };
            reader.read(self.shared, self.sparse, extent, &mut self.writer, &mut self.failed);
            if over {
                ended.push(reader.entry);
            }
        }
        for entry in ended {
            if let Some(reader) = self.readers[entry as usize].take() {
                self.end(*reader);
            }
        }
    }

    fn end(&mut self, mut reader: Reader) {
        if self.sparse {
            let mut sink = Encode::new(&mut reader.open, &mut reader.encoder);
            reader.cursor.flush_sparse(&mut sink);
            sink.count(&mut reader.totals);
        }
        reader.note_loss(self.shared);
        if self.failed.is_none() {
            self.failed = self.writer.events(&mut reader.encoder).err();
        }
        self.totals.events += reader.totals.entries + reader.totals.exits;
        self.totals.lost_entries += reader.totals.lost_entries;
        self.totals.lost_exits += reader.totals.lost_exits;
        self.write(&Record::Loss(reader.totals));
        let Some(entry) = self.shared.thread(reader.entry) else { return };
        // The last chunk, which no link leads out of.
        for chunk in reader.chunk.into_iter().chain(reader.kept.iter().copied()) {
            reader.free(self.shared, chunk);
        }
        entry.state.store(ThreadState::Free as u32, Release);
        self.shared.free_thread(reader.entry);
    }

    fn flush(&mut self) {
        for reader in self.readers.iter_mut().flatten() {
            reader.note_loss(self.shared);
            if self.failed.is_none() {
                self.failed = self.writer.events(&mut reader.encoder).err();
            }
        }
        let totals: Vec<Loss> = self.readers.iter().flatten().map(|reader| reader.totals).collect();
        for loss in totals.into_iter().filter(|loss| loss.lost_entries + loss.lost_exits > 0) {
            self.write(&Record::Loss(loss));
        }
        if self.failed.is_none() {
            self.failed = self.writer.flush().err();
        }
    }

    /// Events of threads for which the thread table had no room.
    fn add_unregistered(&mut self) {
        let lost = self.shared.control().lost_unregistered.load(Relaxed);
        if lost > 0 {
            self.totals.lost_entries += lost;
            let text = format!("{lost} calls or returns were lost in threads that could not be registered");
            self.write(&Record::Note { text });
        }
    }
}

impl Reader {
    fn read(
        &mut self,
        shared: &Shared,
        sparse: bool,
        extent: Extent,
        writer: &mut TraceWriter,
        failed: &mut Option<Error>,
    ) -> bool {
        let mut got = false;
        // No more chunks than there are: links that make a circle (the program can write to them) end somewhere.
        let mut left = shared.chunk_count();
        loop {
            let chunk = match self.chunk {
                Some(chunk) => chunk,
                None => {
                    let first = shared.thread(self.entry).map_or(0, |entry| entry.first_chunk.load(Acquire));
                    let Some(first) = first.checked_sub(1) else { return got };
                    self.chunk = Some(first);
                    first
                }
            };
            let Some(header) = shared.chunk_header(chunk) else { return got };
            if extent == Extent::Full && header.next.load(Acquire) == 0 {
                return got;
            }
            let before = self.cursor.offset;
            self.take(shared, sparse, chunk);
            if self.cursor.offset != before {
                got = true;
                self.hole = None;
            }
            self.active |= got;
            if self.encoder.is_full() && failed.is_none() {
                *failed = writer.events(&mut self.encoder).err();
            }
            if failed.is_some() {
                self.encoder = ThreadEncoder::new(self.totals.thread);
            }
            let next = header.next.load(Acquire).checked_sub(1);
            if !self.cursor.at_end() {
                if !self.skip_hole(shared, sparse, chunk, next, extent) {
                    return got;
                }
                continue;
            }
            let Some(next) = next else { return got };
            // The thread's cursor is still here until the next chunk holds something.
            if extent != Extent::Rest
                && shared.chunk(next).is_none_or(|words| words[CHUNK_DATA / 8].load(Relaxed) == 0)
            {
                return got;
            }
            if std::mem::take(&mut self.skipped) {
                self.kept.push(chunk);
            } else {
                self.free(shared, chunk);
            }
            self.settled = self.settled.filter(|settled| *settled != chunk);
            self.chunk = Some(next);
            self.cursor.next_chunk();
            match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => return got,
            }
        }
    }

    fn take(&mut self, shared: &Shared, sparse: bool, chunk: u32) {
        let mut sink = Encode::new(&mut self.open, &mut self.encoder);
        if sparse {
            if let Some(words) = shared.chunk_halves(chunk) {
                self.cursor.read_sparse(words, &mut sink);
            }
        } else if let Some(words) = shared.chunk(chunk) {
            self.cursor.read(words, &mut sink);
        }
        sink.count(&mut self.totals);
    }

    /// Steps over an empty slot if it will stay empty: the thread is gone, or has left it behind for long. True if it did.
    fn skip_hole(
        &mut self,
        shared: &Shared,
        sparse: bool,
        chunk: u32,
        next: Option<u32>,
        extent: Extent,
    ) -> bool {
        let Some(words) = shared.chunk(chunk) else { return false };
        let dead = if extent == Extent::Rest {
            next.is_some() || self.cursor.more_behind(words)
        } else {
            next.is_some() && (self.settled.is_some() || self.waited_enough(shared, chunk))
        };
        if dead {
            self.torn += 1;
            self.cursor.skip_hole(words, sparse);
            self.skipped = true;
        }
        dead
    }

    /// Has the wait for an empty slot been long enough? It counts for all chunks that were full when it began.
    fn waited_enough(&mut self, shared: &Shared, chunk: u32) -> bool {
        let (since, last) = *self.hole.get_or_insert_with(|| (Instant::now(), last_full(shared, chunk)));
        let enough = since.elapsed() >= HOLE;
        if enough {
            self.hole = None;
            self.settled = Some(last);
        }
        enough
    }

    fn free(&self, shared: &Shared, chunk: u32) {
        // What reading left: the room behind the limit, and in a chunk that was kept a late word.
        if let Some(words) = shared.chunk(chunk) {
            let from = if self.kept.contains(&chunk) || self.skipped { CHUNK_DATA } else { CHUNK_LIMIT };
            for word in &words[from / 8..CHUNK_SIZE / 8] {
                word.store(0, Relaxed);
            }
        }
        shared.free_chunk(chunk);
    }

    fn note_loss(&mut self, shared: &Shared) {
        let Some(entry) = shared.thread(self.entry) else { return };
        let (entries, exits) = self.lost(entry);
        let (more_entries, more_exits) = (entries - self.totals.lost_entries, exits - self.totals.lost_exits);
        if more_entries + more_exits == 0 {
            return;
        }
        (self.totals.lost_entries, self.totals.lost_exits) = (entries, exits);
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let kind = EventKind::Lost { entries: bounded(more_entries), exits: bounded(more_exits) };
        self.encoder.push(Event { ticks: self.cursor.last_ticks(), site: Default::default(), kind });
    }

    fn lost(&self, entry: &ThreadEntry) -> (u64, u64) {
        let entries = entry.lost_entries.load(Relaxed) + self.torn;
        (entries.max(self.totals.lost_entries), entry.lost_exits.load(Relaxed).max(self.totals.lost_exits))
    }
}

/// The last chunk, from a full one on, that is full too.
fn last_full(shared: &Shared, full: u32) -> u32 {
    let next =
        |chunk: u32| shared.chunk_header(chunk).and_then(|header| header.next.load(Acquire).checked_sub(1));
    let mut last = full;
    for _ in 0..LOOK_AHEAD {
        match next(last).filter(|after| next(*after).is_some()) {
            Some(after) => last = after,
            None => break,
        }
    }
    last
}

/// Pairs and encodes.
struct Encode<'a> {
    open: &'a mut OpenCalls,
    encoder: &'a mut ThreadEncoder,
    events: u64,
    exits: u64,
}

impl<'a> Encode<'a> {
    fn new(open: &'a mut OpenCalls, encoder: &'a mut ThreadEncoder) -> Self {
        Encode { open, encoder, events: 0, exits: 0 }
    }

    fn count(self, totals: &mut Loss) {
        totals.entries += self.events - self.exits;
        totals.exits += self.exits;
    }
}

impl Sink for Encode<'_> {
    #[inline(always)]
    fn take(&mut self, raw: RawEvent) {
        self.exits += u64::from(self.open.pair(raw, self.encoder));
        self.events += 1;
    }
}

/// Only if the system says that there is no such thread is there none: any other error (no descriptors left, hidepid) says nothing.
fn thread_exists(pid: u32, tid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")) {
        // A zombie's directory exists, but it runs no more.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])),
        Err(error) => {
            let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
            !(gone && fs::metadata("/proc/self").is_ok())
        }
    }
}

fn comm(pid: u32, tid: u32) -> String {
    let read = |path: String| fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned());
    read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default()
}

fn name_at_start(entry: &ThreadEntry) -> String {
    let bytes: Vec<u8> = entry.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
