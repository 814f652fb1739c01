//! Writes a trace while the program runs.

use crate::chunk::{self, ChunkHeader, IndexEntry, Kind};
use crate::codec::sealed::Span;
use crate::error::Error;
use crate::incidents::Incident;
use crate::kernel_log::{Gatherer, GoroutineRun};
use crate::meta::{End, Record, Session, SomeSites, ThreadId};
use crate::switches::{Gathering, Payload, Switch};
use crate::wakings::{SystemCall, Waking};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

pub use crate::codec::encode::{GraphEnd, GraphEvent, ThreadEncoder};

/// Size up to which whole chunks wait in memory, so that a chunk of two events is not a system
/// call.
const OUT_BYTES: usize = 64 << 10;
/// Size up to which chunks wait when the file takes no more; beyond it no data is taken.
const OUT_LIMIT: usize = 4 << 20;
/// Size up to which metadata records are gathered.
const META_BYTES: usize = 64 << 10;
/// Maximum number of sites in a record, so that no record comes near the size limit of a chunk, and
/// each is in the cache when it is compressed.
const SITES_PER_RECORD: usize = 1024;

/// A trace being written.
pub struct TraceWriter {
    file: File,
    path: PathBuf,
    /// Size of all chunks made so far, in bytes; those in `out` are not in the file yet.
    made: u64,
    out: Vec<u8>,
    records: Vec<u8>,
    switches: Gathering,
    wakings: Gatherer,
    system_calls: Gatherer,
    incidents: Gatherer,
    goroutine_runs: Gatherer,
    index: Vec<IndexEntry>,
    press: chunk::Press,
}

impl TraceWriter {
    /// Starts a trace in a new or emptied file.
    pub fn create(path: &Path, session: Session) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::io(path, "create", source))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            made: 0,
            out: Vec::new(),
            records: Vec::new(),
            switches: Gathering::default(),
            wakings: Gatherer::new(Kind::Wakings),
            system_calls: Gatherer::new(Kind::SystemCalls),
            incidents: Gatherer::new(Kind::Incidents),
            goroutine_runs: Gatherer::new(Kind::GoroutineRuns),
            index: Vec::new(),
            press: chunk::Press::new().map_err(|source| Error::io(path, "create", source))?,
        };
        writer.append_raw(&chunk::file_header());
        writer.record(&Record::Session(session))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a record. It may wait in memory, but never behind later events.
    pub fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Sites { sites } => {
                sites.chunks(SITES_PER_RECORD).try_for_each(|sites| self.line(&SomeSites { sites }))
            }
            _ => self.line(record),
        }
    }

    /// Adds a record in the form that it has in the file.
    fn line(&mut self, record: &impl Serialize) -> Result<(), Error> {
        self.check_room()?;
        let start = self.records.len();
        let written = serde_json::to_writer(&mut self.records, record);
        let size = self.records.len() - start;
        let error = match written {
            Err(source) => Some(Error::Json { path: self.path.clone(), source }),
            Ok(()) if size >= chunk::MAX_RAW => Some(Error::TooLarge { path: self.path.clone(), size }),
            Ok(()) => None,
        };
        if let Some(error) = error {
            self.records.truncate(start);
            return Err(error);
        }
        self.records.push(b'\n');
        if start + size < META_BYTES { Ok(()) } else { self.close_first(start) }
    }

    /// Writes the pending events of `encoder` and leaves it empty; an idle encoder frees its
    /// memory. If the file takes no more and too much waits already, the encoder stays as it is.
    pub fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        self.check_room()?;
        if encoder.is_empty() {
            encoder.release();
            return Ok(());
        }
        self.close_records()?;
        for sealed in encoder.take() {
            self.append(Kind::Events, encoder.thread(), sealed.span, &sealed.structure, &sealed.ticks)?;
            encoder.recycle(sealed);
        }
        self.relieve(OUT_BYTES)
    }

    /// Takes the context switches of a thread, in nanoseconds of CLOCK_MONOTONIC: it made no others
    /// before `until`. Its state before the first of all is not known.
    pub fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        let payload = self.switches.add(thread, switches, until);
        self.payloads(Kind::States, payload)
    }

    /// Takes the wakings of a thread, in nanoseconds of CLOCK_MONOTONIC: there were no others from
    /// `from` to `until`.
    pub fn wakings(
        &mut self,
        thread: ThreadId,
        from: u64,
        wakings: &[Waking],
        until: u64,
    ) -> Result<(), Error> {
        let payloads = self.wakings.add(thread, from, wakings, until);
        self.payloads(self.wakings.kind(), payloads)
    }

    /// Takes the system calls of a thread, in nanoseconds of CLOCK_MONOTONIC: there were no others
    /// from `from` to `until`.
    pub fn system_calls(
        &mut self,
        thread: ThreadId,
        from: u64,
        calls: &[SystemCall],
        until: u64,
    ) -> Result<(), Error> {
        let payloads = self.system_calls.add(thread, from, calls, until);
        self.payloads(self.system_calls.kind(), payloads)
    }

    /// Takes the incidents of a thread, in nanoseconds of CLOCK_MONOTONIC: there were no others
    /// from `from` to `until`.
    pub fn incidents(
        &mut self,
        thread: ThreadId,
        from: u64,
        incidents: &[Incident],
        until: u64,
    ) -> Result<(), Error> {
        let payloads = self.incidents.add(thread, from, incidents, until);
        self.payloads(self.incidents.kind(), payloads)
    }

    /// Takes the threads that have run a goroutine, oldest first and behind those taken before.
    pub fn goroutine_runs(
        &mut self,
        goroutine: ThreadId,
        goroutine_runs: &[GoroutineRun],
    ) -> Result<(), Error> {
        let Some(last) = goroutine_runs.last() else { return Ok(()) };
        let payloads = self.goroutine_runs.add(goroutine, 0, goroutine_runs, last.at);
        self.payloads(self.goroutine_runs.kind(), payloads)
    }

    /// Writes the last of the kernel's entries about a thread.
    pub fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        let payload = self.switches.end(thread);
        self.payloads(Kind::States, payload)?;
        let payload = self.wakings.end(thread);
        self.payloads(Kind::Wakings, payload)?;
        let payload = self.system_calls.end(thread);
        self.payloads(Kind::SystemCalls, payload)?;
        let payload = self.incidents.end(thread);
        self.payloads(Kind::Incidents, payload)?;
        let payload = self.goroutine_runs.end(thread);
        self.payloads(Kind::GoroutineRuns, payload)
    }

    /// Adds chunks of the kernel's entries.
    fn payloads(&mut self, kind: Kind, payloads: impl IntoIterator<Item = Payload>) -> Result<(), Error> {
        payloads
            .into_iter()
            .try_for_each(|Payload { thread, span, bytes }| self.kernel_chunk(kind, thread, span, &bytes))
    }

    /// Adds a chunk of the kernel's entries about a thread.
    pub(crate) fn kernel_chunk(
        &mut self,
        kind: Kind,
        thread: ThreadId,
        span: Span,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.check_room()?;
        self.close_records()?;
        self.append(kind, thread, span, bytes, &[])?;
        self.relieve(OUT_BYTES)
    }

    /// Hands everything taken so far to the operating system. Events in encoders were not taken.
    pub fn flush(&mut self) -> Result<(), Error> {
        let due = self.switches.flush();
        self.payloads(Kind::States, due)?;
        let due = self.wakings.flush();
        self.payloads(Kind::Wakings, due)?;
        let due = self.system_calls.flush();
        self.payloads(Kind::SystemCalls, due)?;
        let due = self.incidents.flush();
        self.payloads(Kind::Incidents, due)?;
        let due = self.goroutine_runs.flush();
        self.payloads(Kind::GoroutineRuns, due)?;
        self.close_records()?;
        self.relieve(0)
    }

    /// Returns the size of the file once everything taken so far is in it.
    pub fn bytes_written(&self) -> u64 {
        self.made
    }

    /// Ends the trace: the end record, the index, the trailer. Returns the size of the file.
    pub fn finish(mut self, end: End) -> Result<u64, Error> {
        let rest = self.switches.finish();
        self.payloads(Kind::States, rest)?;
        let rest = self.wakings.finish();
        self.payloads(Kind::Wakings, rest)?;
        let rest = self.system_calls.finish();
        self.payloads(Kind::SystemCalls, rest)?;
        let rest = self.incidents.finish();
        self.payloads(Kind::Incidents, rest)?;
        let rest = self.goroutine_runs.finish();
        self.payloads(Kind::GoroutineRuns, rest)?;
        self.record(&Record::End(end))?;
        self.close_records()?;
        let start = self.made;
        for entries in std::mem::take(&mut self.index).chunks(chunk::INDEX_ENTRIES) {
            let payload: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
            self.append(Kind::Index, ThreadId(0), Span::default(), &payload, &[])?;
        }
        self.append_raw(&chunk::trailer(start));
        self.relieve(0)?;
        Ok(self.made)
    }

    /// Makes a chunk of the pending records.
    fn close_records(&mut self) -> Result<(), Error> {
        self.close_first(self.records.len())
    }

    /// Makes a chunk of the first `length` bytes of the pending records, which are whole records.
    fn close_first(&mut self, length: usize) -> Result<(), Error> {
        if length == 0 {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.records);
        let result = self.append(Kind::Records, ThreadId(0), Span::default(), &records[..length], &[]);
        records.drain(..length);
        self.records = records;
        result?;
        self.relieve(OUT_BYTES)
    }

    /// Compresses a payload to a chunk, behind those that wait.
    fn append(&mut self, kind: Kind, thread: ThreadId, span: Span, a: &[u8], b: &[u8]) -> Result<(), Error> {
        let at = self.out.len();
        self.press
            .chunk(kind, thread, &span, a, b, &mut self.out)
            .map_err(|source| Error::io(&self.path, "compress for", source))?;
        if let Some(header) = ChunkHeader::parse(&self.out[at..]) {
            self.index.push(IndexEntry { offset: self.made, header });
        }
        self.made += (self.out.len() - at) as u64;
        Ok(())
    }

    /// Adds a chunk of events that was made elsewhere, behind all records so far.
    pub(crate) fn chunk(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check_room()?;
        self.close_records()?;
        if let Some(header) = ChunkHeader::parse(bytes) {
            self.index.push(IndexEntry { offset: self.made, header });
        }
        self.append_raw(bytes);
        self.relieve(OUT_BYTES)
    }

    fn append_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.made += bytes.len() as u64;
    }

    /// Checks that data may be taken, and writes waiting chunks if there are too many.
    fn check_room(&mut self) -> Result<(), Error> {
        if self.out.len() < OUT_LIMIT { Ok(()) } else { self.relieve(0) }
    }

    /// Writes until at most `keep` bytes wait. Data that cannot be written stays and is tried again
    /// next time, so the file is always a prefix of a valid one.
    fn relieve(&mut self, keep: usize) -> Result<(), Error> {
        if self.out.len() <= keep {
            return Ok(());
        }
        let mut done = 0;
        let result = loop {
            if done == self.out.len() {
                break Ok(());
            }
            match self.file.write(&self.out[done..]) {
                Ok(0) => break Err(std::io::ErrorKind::WriteZero.into()),
                Ok(wrote) => done += wrote,
                Err(again) if again.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.out.drain(..done);
        result.map_err(|source| Error::io(&self.path, "write", source))
    }
}
