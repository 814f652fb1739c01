//! A flight recorder: the newest events of all threads in bounded memory, as chunks of a file that
//! may never be written.
//!
//! Chunks are compressed as they come, so that ten times as many fit, and a file of them is written
//! as fast as memory is copied. Whole chunks are dropped, the oldest first. The other contents of a
//! file are kept as well; of threads, only those that live or have events here.

use crate::chunk::{self, Kind};
use crate::clock::ClockPair;
use crate::codec::decode::Decoder;
use crate::error::Error;
use crate::event::{Batch, EventKind};
use crate::kernel_records::Scheduling;
use crate::meta::{
    Busy, DisabledByLimit, End, Loss, Module, Process, Profile, Record, Session, Site, Thread, ThreadId,
};
use crate::switches::{Gathering, Payload, Switch};
use crate::writer::{ThreadEncoder, TraceWriter};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Maximum number of notes that are kept.
const NOTES: usize = 1000;

/// Numbers of entries and returns.
#[derive(Clone, Copy, Default)]
struct Counts {
    entries: u64,
    exits: u64,
}

/// A chunk of events.
struct Piece {
    thread: ThreadId,
    bytes: Box<[u8]>,
    /// Time of its newest event.
    high: u64,
    counts: Counts,
}

/// A thread that lives, or has events here.
#[derive(Default)]
struct ThreadCounts {
    thread: Option<Thread>,
    /// Events that it has recorded in all.
    read: Counts,
    /// Events of these that are kept here.
    here: Counts,
    pieces: usize,
    lost: Loss,
    ended: bool,
}

/// The newest events and other contents of a recording.
pub struct History {
    session: Session,
    /// Maximum number of bytes of chunks.
    limit: u64,
    bytes: u64,
    pieces: VecDeque<Piece>,
    threads: BTreeMap<ThreadId, ThreadCounts>,
    /// Numbers of threads that are not kept any more, and of their calls.
    forgotten: (u64, u64),
    processes: BTreeMap<u32, Process>,
    modules: BTreeMap<u32, Module>,
    sites: Vec<Site>,
    clocks: VecDeque<ClockPair>,
    profile: Vec<Profile>,
    disabled_by_limit: Vec<DisabledByLimit>,
    busy: Vec<Busy>,
    scheduling: Option<Scheduling>,
    switches: Gathering,
    notes: VecDeque<String>,
    press: chunk::Press,
    decoder: Decoder,
    raw: Vec<u8>,
    batch: Batch,
}

impl History {
    /// Creates the history of a session that begins; its chunks take at most `limit` bytes.
    pub fn new(session: Session, limit: u64) -> Result<History, Error> {
        let press =
            chunk::Press::new().map_err(|source| Error::io(Path::new("(memory)"), "create", source))?;
        Ok(History {
            session,
            limit,
            bytes: 0,
            pieces: VecDeque::new(),
            threads: BTreeMap::new(),
            forgotten: (0, 0),
            processes: BTreeMap::new(),
            modules: BTreeMap::new(),
            sites: Vec::new(),
            clocks: VecDeque::new(),
            profile: Vec::new(),
            disabled_by_limit: Vec::new(),
            busy: Vec::new(),
            scheduling: None,
            switches: Gathering::default(),
            notes: VecDeque::new(),
            press,
            decoder: Decoder::default(),
            raw: Vec::new(),
            batch: Batch::default(),
        })
    }

    /// Takes a record.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Process(process) => drop(self.processes.insert(process.id, process.clone())),
            Record::Thread(thread) => {
                self.threads.entry(thread.id).or_default().thread = Some(thread.clone());
            }
            Record::Module(module) => drop(self.modules.insert(module.id, module.clone())),
            Record::Sites { sites } => self.sites.extend_from_slice(sites),
            Record::Clock(pair) => self.clocks.push_back(*pair),
            Record::Loss(loss) => {
                if let Some(known) = self.threads.get_mut(&loss.thread) {
                    known.lost = *loss;
                }
            }
            Record::Profile { rows } => self.profile.clone_from(rows),
            Record::DisabledByLimit { functions } => self.disabled_by_limit.extend_from_slice(functions),
            Record::Busy(busy) => self.busy.push(busy.clone()),
            Record::Note { text } => {
                self.notes.push_back(text.clone());
                if self.notes.len() > NOTES {
                    self.notes.pop_front();
                }
            }
            Record::Conditions { conditions } => self.session.conditions.extend_from_slice(conditions),
            Record::Scheduling(scheduling) => self.scheduling = Some(scheduling.clone()),
            // Snapshots have all calls, but no wakings, system calls or incidents.
            Record::KernelEvents(_)
            | Record::KernelFunctions { .. }
            | Record::Addresses { .. }
            | Record::Detaching(_) => {}
            Record::Session(_) | Record::Slow { .. } | Record::Kept(_) | Record::End(_) | Record::Unknown => {
            }
        }
    }

    /// Takes the events of `encoder` and leaves it empty; shows them to `look`.
    pub fn events(&mut self, encoder: &mut ThreadEncoder, look: &mut dyn FnMut(&Batch)) -> Result<(), Error> {
        let thread = encoder.thread();
        self.batch.thread = thread;
        for sealed in encoder.take() {
            self.raw.clear();
            self.raw.extend_from_slice(&sealed.structure);
            self.raw.extend_from_slice(&sealed.ticks);
            // The bytes are this encoder's own, so they can be decoded.
            if self.decoder.decode(&self.raw, &sealed.span, &mut self.batch).is_err() {
                self.batch.events.clear();
                self.batch.values.clear();
            }
            look(&self.batch);
            let mut counts = Counts::default();
            for event in &self.batch.events {
                counts.entries += u64::from(event.kind.begins_call());
                counts.exits += u64::from(matches!(event.kind, EventKind::Exit { .. }));
            }
            let mut bytes = Vec::new();
            self.press
                .chunk(Kind::Events, thread, &sealed.span, &sealed.structure, &sealed.ticks, &mut bytes)
                .map_err(|source| Error::io(Path::new("(memory)"), "compress for", source))?;
            self.bytes += bytes.len() as u64;
            let bytes = bytes.into_boxed_slice();
            self.pieces.push_back(Piece { thread, bytes, high: sealed.span.high, counts });
            let known = self.threads.entry(thread).or_default();
            known.pieces += 1;
            for sum in [&mut known.read, &mut known.here] {
                (sum.entries, sum.exits) = (sum.entries + counts.entries, sum.exits + counts.exits);
            }
            encoder.recycle(sealed);
        }
        encoder.release();
        while self.bytes > self.limit && self.pieces.len() > 1 {
            self.forget_oldest();
        }
        Ok(())
    }

    /// Takes the context switches of a thread, as [`TraceWriter::switches`] does.
    pub fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        let payload = self.switches.add(thread, switches, until);
        payload.map_or(Ok(()), |payload| self.keep(payload))
    }

    /// Compresses the switches that were taken so far.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.switches.flush().into_iter().try_for_each(|payload| self.keep(payload))
    }

    /// Keeps a chunk of context switches.
    fn keep(&mut self, Payload { thread, span, bytes: raw }: Payload) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.press
            .chunk(Kind::States, thread, &span, &raw, &[], &mut bytes)
            .map_err(|source| Error::io(Path::new("(memory)"), "compress for", source))?;
        self.bytes += bytes.len() as u64;
        // The times in the chunk are not ticks. The newest clock pair is about as old.
        let high = self.clocks.back().map_or(0, |pair| pair.ticks);
        self.pieces.push_back(Piece { thread, bytes: bytes.into(), high, counts: Counts::default() });
        self.threads.entry(thread).or_default().pieces += 1;
        Ok(())
    }

    /// Notes that a thread has no more events.
    pub fn end(&mut self, thread: ThreadId) {
        if let Some(payload) = self.switches.end(thread) {
            // Without memory for them, the switches are unknown.
            let _ = self.keep(payload);
        }
        if let Some(known) = self.threads.get_mut(&thread) {
            known.ended = true;
        }
        self.forget_thread(thread);
    }

    /// Drops a thread that has ended, if no chunk of it is left.
    fn forget_thread(&mut self, thread: ThreadId) {
        if let Some(known) = self.threads.get(&thread).filter(|known| known.pieces == 0 && known.ended) {
            let calls = known.read.entries + known.lost.lost_entries;
            self.forgotten = (self.forgotten.0 + 1, self.forgotten.1 + calls);
            self.threads.remove(&thread);
        }
    }

    /// Drops chunks whose newest event is older than `ticks`.
    pub fn forget_before(&mut self, ticks: u64) {
        while self.pieces.front().is_some_and(|piece| piece.high < ticks) {
            self.forget_oldest();
        }
        // The first clock pair stays: with the last it gives the length of a tick.
        while self.clocks.get(2).is_some_and(|pair| pair.ticks < ticks) {
            self.clocks.remove(1);
        }
    }

    /// Drops the oldest chunk.
    fn forget_oldest(&mut self) {
        let Some(Piece { thread, bytes, counts, .. }) = self.pieces.pop_front() else { return };
        self.bytes -= bytes.len() as u64;
        let Some(known) = self.threads.get_mut(&thread) else { return };
        known.pieces -= 1;
        known.here.entries -= counts.entries;
        known.here.exits -= counts.exits;
        self.forget_thread(thread);
    }

    /// Writes the history to a file, and keeps it. Returns the size of the file.
    pub fn write(&self, path: &Path, end: End) -> Result<u64, Error> {
        let mut writer = TraceWriter::create(path, self.session.clone())?;
        let mut record = |record: Record| writer.record(&record);
        self.processes.values().cloned().try_for_each(|process| record(Record::Process(process)))?;
        // In a file threads are numbered without gaps.
        let numbers: BTreeMap<ThreadId, ThreadId> =
            self.threads.keys().copied().zip((0..).map(ThreadId)).collect();
        for (known, id) in self.threads.values().zip(numbers.values()) {
            known
                .thread
                .iter()
                .try_for_each(|thread| record(Record::Thread(Thread { id: *id, ..thread.clone() })))?;
        }
        self.modules.values().cloned().try_for_each(|module| record(Record::Module(module)))?;
        record(Record::Sites { sites: self.sites.clone() })?;
        self.clocks.iter().try_for_each(|pair| record(Record::Clock(*pair)))?;
        record(Record::DisabledByLimit { functions: self.disabled_by_limit.clone() })?;
        self.busy.iter().cloned().try_for_each(|busy| record(Record::Busy(busy)))?;
        self.notes.iter().try_for_each(|text| record(Record::Note { text: text.clone() }))?;
        let (threads, calls) = self.forgotten;
        if threads > 0 {
            let text =
                format!("{threads} threads ended before the kept period: their {calls} calls are missing");
            record(Record::Note { text })?;
        }
        self.scheduling.iter().cloned().try_for_each(|scheduling| record(Record::Scheduling(scheduling)))?;
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            bytes.clear();
            bytes.extend_from_slice(&piece.bytes);
            chunk::give_to(&mut bytes, numbers.get(&piece.thread).copied().unwrap_or_default());
            writer.chunk(&bytes)?;
        }
        for Payload { thread, span, bytes } in self.switches.clone().finish() {
            if let Some(thread) = numbers.get(&thread) {
                writer.kernel_chunk(Kind::States, *thread, span, &bytes)?;
            }
        }
        for (ThreadCounts { read, here, lost, .. }, thread) in self.threads.values().zip(numbers.values()) {
            writer.record(&Record::Loss(Loss {
                thread: *thread,
                entries: here.entries,
                exits: here.exits,
                dropped_entries: read.entries - here.entries,
                dropped_exits: read.exits - here.exits,
                ..*lost
            }))?;
        }
        if !self.profile.is_empty() {
            writer.record(&Record::Profile { rows: self.profile.clone() })?;
        }
        writer.finish(end)
    }
}
