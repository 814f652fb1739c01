//! The first pass over a file: finds its chunks by the index or, without one, by walking from chunk
//! to chunk.

use crate::chunk::VERSION;
use crate::chunk::{self, CHUNK_HEADER, ChunkHeader, FILE_HEADER, IndexEntry, Kind, Start, TRAILER};
use crate::error::Error;
use crate::source::{Scratch, Source};

/// Maximum number of complaints that are kept; a thoroughly damaged file must not fill the memory
/// with them.
const COMPLAINTS: usize = 100;
/// Number of bytes that are searched at a time for the next chunk.
const WINDOW: usize = 64 << 10;

/// Complaints about a file, as sentences.
#[derive(Default)]
pub(crate) struct Complaints {
    kept: Vec<String>,
    more: usize,
}

impl Complaints {
    pub(crate) fn add(&mut self, complaint: String) {
        if self.kept.len() < COMPLAINTS {
            self.kept.push(complaint);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.kept.push(format!("{} more complaints like these", self.more));
        }
        self.kept
    }
}

/// Finds all chunks. Fails only if the file is not a trace that this crate can read.
pub(crate) fn survey(
    source: &Source,
    scratch: &mut Scratch,
    complaints: &mut Complaints,
) -> Result<Vec<IndexEntry>, Error> {
    let path = || source.path.clone();
    if source.len == 0 {
        return Err(Error::Empty { path: path() });
    }
    let mut head = [0; FILE_HEADER];
    let head = &mut head[..source.len.min(FILE_HEADER as u64) as usize];
    source.read(head, 0)?;
    match chunk::start(head) {
        Start::Foreign => return Err(Error::Foreign { path: path() }),
        Start::Version(found) if found > VERSION => {
            return Err(Error::Newer { path: path(), found, known: VERSION });
        }
        Start::Version(_) => {}
        Start::Damaged if head.len() < FILE_HEADER => {
            complaints.add(format!(
                "the file ends at byte {}, in its header: the recording was cut off",
                source.len
            ));
            return Ok(Vec::new());
        }
        Start::Damaged => complaints.add("the header of the file is damaged".to_owned()),
    }
    let mut chunks = match by_index(source, scratch)? {
        IndexState::Intact(chunks) => return Ok(chunks),
        IndexState::Broken => {
            complaints.add("the index is damaged: it was made anew from the chunks".to_owned());
            Vec::new()
        }
        IndexState::Missing => Vec::new(),
    };
    walk(source, complaints, &mut chunks)?;
    Ok(chunks)
}

/// Outcome of reading the index.
enum IndexState {
    Intact(Vec<IndexEntry>),
    Broken,
    Missing,
}

/// Reads the index from the end of the file.
fn by_index(source: &Source, scratch: &mut Scratch) -> Result<IndexState, Error> {
    let Some(end) = source.len.checked_sub(TRAILER as u64) else { return Ok(IndexState::Missing) };
    let mut trailer = [0; TRAILER];
    source.read(&mut trailer, end)?;
    let Some(start) = chunk::parse_trailer(&trailer) else { return Ok(IndexState::Missing) };
    let mut chunks: Vec<IndexEntry> = Vec::new();
    let (mut at, mut next) = (start, FILE_HEADER as u64);
    while at < end {
        let Some(header) = header(source, at, end)? else { return Ok(IndexState::Broken) };
        if !header.is(Kind::Index) {
            return Ok(IndexState::Broken);
        }
        match source.payload(&IndexEntry { offset: at, header }, scratch)? {
            Ok(()) => {}
            Err(_) => return Ok(IndexState::Broken),
        }
        let (entries, rest) = scratch.raw.as_chunks::<{ IndexEntry::SIZE }>();
        for entry in entries {
            match IndexEntry::parse(entry) {
                Some(entry) if entry.offset == next => {
                    next += (CHUNK_HEADER + entry.header.stored()) as u64;
                    chunks.push(entry);
                }
                _ => return Ok(IndexState::Broken),
            }
        }
        if !rest.is_empty() {
            return Ok(IndexState::Broken);
        }
        at += (CHUNK_HEADER + header.stored()) as u64;
    }
    Ok(if next == start && at == end { IndexState::Intact(chunks) } else { IndexState::Broken })
}

/// Reads the header of a chunk; `None` if there is none at this place.
fn header(source: &Source, at: u64, end: u64) -> Result<Option<ChunkHeader>, Error> {
    if end.saturating_sub(at) < CHUNK_HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = [0; CHUNK_HEADER];
    source.read(&mut bytes, at)?;
    Ok(ChunkHeader::parse(&bytes))
}

/// Finds chunks by walking from each to the next, skipping damage.
fn walk(source: &Source, complaints: &mut Complaints, chunks: &mut Vec<IndexEntry>) -> Result<(), Error> {
    let mut at = FILE_HEADER as u64;
    while at < source.len {
        if source.len - at == TRAILER as u64 {
            let mut trailer = [0; TRAILER];
            source.read(&mut trailer, at)?;
            if chunk::parse_trailer(&trailer).is_some() {
                return Ok(());
            }
        }
        let found = header(source, at, source.len)?;
        if let Some(header) = found {
            let end = at + (CHUNK_HEADER + header.stored()) as u64;
            if end <= source.len {
                chunks.push(IndexEntry { offset: at, header });
                at = end;
                continue;
            }
        }
        let resume = search(source, at + 1)?;
        complaints.add(match resume {
            Some(next) => format!("bytes {at} to {next} are damaged and were skipped"),
            None => format!("the file ends in the middle of a chunk at byte {at}: the recording was cut off"),
        });
        let Some(next) = resume else { return Ok(()) };
        at = next;
    }
    complaints.add("the file ends without a trailer: the recording was cut off or still runs".to_owned());
    Ok(())
}

/// Returns the place of the next whole header at or after `from`.
fn search(source: &Source, from: u64) -> Result<Option<u64>, Error> {
    let mut window = vec![0; WINDOW];
    let mut at = from;
    while source.len.saturating_sub(at) >= CHUNK_HEADER as u64 {
        let window = &mut window[..(source.len - at).min(WINDOW as u64) as usize];
        source.read(window, at)?;
        for offset in 0..=window.len() - CHUNK_HEADER {
            if window[offset..].starts_with(&chunk::CHUNK_MAGIC)
                && ChunkHeader::parse(&window[offset..]).is_some()
            {
                return Ok(Some(at + offset as u64));
            }
        }
        at += (window.len() - CHUNK_HEADER + 1) as u64;
    }
    Ok(None)
}
