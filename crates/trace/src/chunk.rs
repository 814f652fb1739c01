//! The layout of a file: headers, chunks, index and trailer (`docs/reference/trace-format.md` draws
//! the same).

use crate::codec::sealed::Span;
use crate::meta::ThreadId;
use std::io;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, Strategy};

/// The format version that this crate writes, and the newest that it reads.
pub(crate) const VERSION: u16 = 2;
/// Start of a file: a byte that no text has, the name, and line ends that a text-mode copy would
/// change.
const FILE_MAGIC: [u8; 8] = *b"\x89calltp\n";
/// Start of a chunk.
pub(crate) const CHUNK_MAGIC: [u8; 4] = *b"\xc7Tc\n";
/// Start of the trailer.
const TRAILER_MAGIC: [u8; 8] = *b"\xc7TcEnd\r\n";

/// Size of [`FileHeader`].
pub(crate) const FILE_HEADER: usize = 16;
/// Size of [`ChunkHeader`].
pub(crate) const CHUNK_HEADER: usize = 56;
/// Size of the trailer.
pub(crate) const TRAILER: usize = 20;
/// Largest size of a chunk, uncompressed or compressed: a reader allocates no more.
pub(crate) const MAX_RAW: usize = 16 << 20;
/// Number of entries of one index chunk.
pub(crate) const INDEX_ENTRIES: usize = 1 << 16;
/// Flag of a payload that is not compressed, as compression would have made it larger.
const STORED: u16 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileHeader {
    magic: [u8; 8],
    version: U16,
    flags: U16,
    crc: U32,
}

/// The header before every payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHeader {
    magic: [u8; 4],
    kind: U16,
    flags: U16,
    thread: U32,
    events: U32,
    low: U64,
    high: U64,
    max_site: U32,
    raw: U32,
    stored: U32,
    payload_crc: U32,
    reserved: U32,
    header_crc: U32,
}

/// The place of a chunk, and its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) offset: u64,
    pub(crate) header: ChunkHeader,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Trailer {
    magic: [u8; 8],
    index: U64,
    crc: U32,
}

/// The contents of a chunk. A reader skips kinds it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Kind {
    /// Metadata: JSON objects, one a line.
    Records = 1,
    /// Events of one thread.
    Events = 2,
    /// The headers and places of all chunks.
    Index = 3,
    /// Context switches of one thread, without those that calltap caused: written by former
    /// versions.
    Switches = 4,
    /// Wakings of one thread.
    Wakings = 5,
    /// System calls of one thread.
    SystemCalls = 6,
    /// Context switches of one thread.
    States = 7,
    /// Page faults, signals and moves of one thread.
    Incidents = 8,
    /// The threads that have run one goroutine.
    GoroutineRuns = 9,
}

impl ChunkHeader {
    /// Returns the header at the start of `bytes`, if one is there and whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        let sum = crc32fast::hash(&bytes[..CHUNK_HEADER - 4]);
        (header.magic == CHUNK_MAGIC && header.header_crc.get() == sum).then_some(header)
    }

    /// Whether the chunk is of this kind.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind.get() == kind as u16
    }

    /// Returns the thread of the chunk.
    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(self.thread.get())
    }

    /// Returns the header's fields about events.
    pub(crate) fn span(&self) -> Span {
        Span {
            events: self.events.get(),
            low: self.low.get(),
            high: self.high.get(),
            max_site: self.max_site.get(),
        }
    }

    /// Returns the size of the payload in the file, in bytes.
    pub(crate) fn stored(&self) -> usize {
        self.stored.get() as usize
    }

    /// Returns the size of the uncompressed payload, in bytes.
    pub(crate) fn raw(&self) -> usize {
        self.raw.get() as usize
    }

    /// Whether the payload is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.flags.get() & STORED == 0
    }

    /// Whether the payload has the header's checksum.
    pub(crate) fn payload_is_whole(&self, payload: &[u8]) -> bool {
        crc32fast::hash(payload) == self.payload_crc.get()
    }
}

impl IndexEntry {
    pub(crate) const SIZE: usize = 8 + CHUNK_HEADER;

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(self.header.as_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (offset, header) = bytes.split_first_chunk::<8>()?;
        Some(Self { offset: u64::from_le_bytes(*offset), header: ChunkHeader::parse(header)? })
    }
}

/// Assigns a chunk to another thread.
pub(crate) fn give_to(chunk: &mut [u8], thread: ThreadId) {
    let Ok((header, _)) = ChunkHeader::mut_from_prefix(chunk) else { return };
    header.thread = thread.0.into();
    header.header_crc = crc32fast::hash(&header.as_bytes()[..CHUNK_HEADER - 4]).into();
}

/// Returns the first bytes of every file.
pub(crate) fn file_header() -> [u8; FILE_HEADER] {
    let mut header =
        FileHeader { magic: FILE_MAGIC, version: VERSION.into(), flags: 0.into(), crc: 0.into() };
    header.crc = crc32fast::hash(&header.as_bytes()[..FILE_HEADER - 4]).into();
    zerocopy::transmute!(header)
}

/// The meaning of a file's first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Not a calltap trace.
    Foreign,
    /// A trace of this version.
    Version(u16),
    /// A trace, but the checksum of the file header is wrong.
    Damaged,
}

/// Checks the first bytes of a file.
pub(crate) fn start(bytes: &[u8]) -> Start {
    let known = bytes.len().min(FILE_MAGIC.len());
    if bytes[..known] != FILE_MAGIC[..known] {
        return Start::Foreign;
    }
    match FileHeader::read_from_prefix(bytes) {
        Ok((header, _)) if header.crc.get() == crc32fast::hash(&bytes[..FILE_HEADER - 4]) => {
            Start::Version(header.version.get())
        }
        _ => Start::Damaged,
    }
}

/// Returns the last bytes of a complete file, which name the place of its first index chunk.
pub(crate) fn trailer(index: u64) -> [u8; TRAILER] {
    let mut trailer = Trailer { magic: TRAILER_MAGIC, index: index.into(), crc: 0.into() };
    trailer.crc = crc32fast::hash(&trailer.as_bytes()[..TRAILER - 4]).into();
    zerocopy::transmute!(trailer)
}

/// Returns the place of the index, if `bytes` are a trailer.
pub(crate) fn parse_trailer(bytes: &[u8]) -> Option<u64> {
    let trailer = Trailer::read_from_bytes(bytes).ok()?;
    let whole = trailer.magic == TRAILER_MAGIC && trailer.crc.get() == crc32fast::hash(&bytes[..TRAILER - 4]);
    whole.then_some(trailer.index.get())
}

/// Makes chunks of payloads.
pub(crate) struct Press {
    general: Compressor<'static>,
    ticks: TickPress,
}

/// Compresses ticks: by Huffman codes for all of them, or for what a fast search for repetitions
/// leaves. Most programs have no repetitions that are worth the time (0.6 to 1.5 ns an event); a
/// loop that does nothing but call has. So both ways are tried now and then.
struct TickPress {
    plain: Compressor<'static>,
    search: Compressor<'static>,
    searches: bool,
    /// Number of chunks until both are tried.
    wait: u32,
}

/// Number of chunks from one trial to the next.
const TRIALS: u32 = 32;
/// Least size of a chunk for a trial, in bytes; smaller ones tell too little.
const TRIAL_BYTES: usize = 4096;
/// A search is worth its time if it reduces the size by one part in this many.
const WORTH: usize = 16;

impl Press {
    pub(crate) fn new() -> io::Result<Self> {
        let mut general = Compressor::new(1)?;
        general.set_parameter(CParameter::ContentSizeFlag(true))?;
        let [plain, search] = [zstd::zstd_safe::BLOCKSIZE_MAX, 16].map(tick_compressor);
        Ok(Self { general, ticks: TickPress { plain: plain?, search: search?, searches: false, wait: 0 } })
    }

    /// Appends a whole chunk to `out`. The payload is `a`, then `b`, each compressed in the way
    /// that suits it.
    pub(crate) fn chunk(
        &mut self,
        kind: Kind,
        thread: ThreadId,
        span: &Span,
        a: &[u8],
        b: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let at = out.len();
        let raw = a.len() + b.len();
        out.resize(at + CHUNK_HEADER, 0);
        let mut flags = STORED;
        if raw > 64 {
            flags = 0;
            squeeze(&mut self.general, a, out)?;
            if !b.is_empty() {
                self.ticks.squeeze(b, out)?;
            }
        }
        if flags != 0 || out.len() - at - CHUNK_HEADER >= raw {
            flags = STORED;
            out.truncate(at + CHUNK_HEADER);
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
        let payload = &out[at + CHUNK_HEADER..];
        let mut header = ChunkHeader {
            magic: CHUNK_MAGIC,
            kind: (kind as u16).into(),
            flags: flags.into(),
            thread: thread.0.into(),
            events: span.events.into(),
            low: span.low.into(),
            high: span.high.into(),
            max_site: span.max_site.into(),
            raw: (raw as u32).into(),
            stored: (payload.len() as u32).into(),
            payload_crc: crc32fast::hash(payload).into(),
            reserved: 0.into(),
            header_crc: 0.into(),
        };
        header.header_crc = crc32fast::hash(&header.as_bytes()[..CHUNK_HEADER - 4]).into();
        out[at..at + CHUNK_HEADER].copy_from_slice(header.as_bytes());
        Ok(())
    }
}

/// Creates a compressor that looks for a repetition at every `step`th byte.
fn tick_compressor(step: u32) -> io::Result<Compressor<'static>> {
    let mut press = Compressor::new(1)?;
    for parameter in [
        CParameter::ContentSizeFlag(true),
        CParameter::Strategy(Strategy::ZSTD_fast),
        CParameter::TargetLength(step),
        CParameter::MinMatch(7),
        CParameter::HashLog(12),
        CParameter::LiteralCompressionMode(ParamSwitch::Enable),
    ] {
        press.set_parameter(parameter)?;
    }
    Ok(press)
}

impl TickPress {
    /// Appends ticks as one zstd frame.
    fn squeeze(&mut self, ticks: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if ticks.len() < TRIAL_BYTES || self.wait > 0 {
            self.wait = self.wait.saturating_sub(1);
            return squeeze(if self.searches { &mut self.search } else { &mut self.plain }, ticks, out);
        }
        let at = out.len();
        squeeze(&mut self.plain, ticks, out)?;
        let middle = out.len();
        squeeze(&mut self.search, ticks, out)?;
        let (plain, searched) = (middle - at, out.len() - middle);
        (self.searches, self.wait) = (searched + plain / WORTH < plain, TRIALS);
        if self.searches {
            out.drain(at..middle);
        } else {
            out.truncate(middle);
        }
        Ok(())
    }
}

/// Appends bytes as one zstd frame.
fn squeeze(press: &mut Compressor, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let at = out.len();
    out.resize(at + zstd::zstd_safe::compress_bound(bytes.len()), 0);
    let size = press.compress_to_buffer(bytes, &mut out[at..])?;
    out.truncate(at + size);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/reference/trace-format.md` draws these; a file written today must be readable for
    /// ever.
    #[test]
    fn sizes_are_as_drawn() {
        assert_eq!(size_of::<FileHeader>(), FILE_HEADER);
        assert_eq!(size_of::<ChunkHeader>(), CHUNK_HEADER);
        assert_eq!(size_of::<Trailer>(), TRAILER);
        assert_eq!((FILE_HEADER, CHUNK_HEADER, TRAILER, IndexEntry::SIZE), (16, 56, 20, 64));
    }

    #[test]
    fn file_header_is_as_drawn() {
        assert_eq!(file_header(), *b"\x89calltp\n\x02\0\0\0\xfe\xe2\x07\xbf");
        assert_eq!(start(&file_header()), Start::Version(2));
        assert_eq!(start(b"\x89ca"), Start::Damaged);
        assert_eq!(start(b"\x7fELF"), Start::Foreign);
    }
}
