//! Reads chunks from the file: at an offset, checked, uncompressed into buffers that are reused.

use crate::chunk::{self, CHUNK_HEADER, ChunkHeader, IndexEntry};
use crate::codec::Damage;
use crate::codec::decode::Decoder;
use crate::error::Error;
use crate::event::Batch;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zstd::bulk::Decompressor;

/// The trace file.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    file: File,
}

/// The buffers, tables and decompressor for reading a chunk.
pub(crate) struct Scratch {
    file: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    press: Decompressor<'static>,
    decoder: Decoder,
}

impl Scratch {
    pub(crate) fn new(source: &Source) -> Result<Self, Error> {
        let press = Decompressor::new().map_err(|error| Error::io(&source.path, "read", error))?;
        Ok(Self { file: Vec::new(), raw: Vec::new(), press, decoder: Decoder::default() })
    }
}

/// Scratches that are not in use. They are lent for a chunk at a time, not kept by each reading
/// loop: a recording of thousands of threads is read by as many loops, and a new scratch costs as
/// much as a thousand events (a decompressor executes CPUID, and in a virtual machine each CPUID
/// exits to the hypervisor), besides a quarter of a megabyte.
pub(crate) struct Spares(Mutex<Vec<Scratch>>);

impl Spares {
    pub(crate) fn new(first: Scratch) -> Self {
        Self(Mutex::new(vec![first]))
    }

    /// Runs `work` with a scratch that no other thread uses meanwhile.
    pub(crate) fn lend<T>(
        &self,
        source: &Source,
        work: impl FnOnce(&mut Scratch) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let spare = self.all().pop();
        let mut scratch = spare.map_or_else(|| Scratch::new(source), Ok)?;
        let result = work(&mut scratch);
        self.all().push(scratch);
        result
    }

    fn all(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::io(path, "open", source);
        // Checked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(Error::NotAFile { path: path.to_owned() });
        }
        Self::of(File::open(path).map_err(io)?, path)
    }

    /// Returns an opened file, which messages name by `path`.
    pub(crate) fn of(file: File, path: &Path) -> Result<Self, Error> {
        let len = file.metadata().map_err(|source| Error::io(path, "open", source))?.len();
        Ok(Self { path: path.to_owned(), len, file })
    }

    pub(crate) fn read(&self, into: &mut [u8], at: u64) -> Result<(), Error> {
        self.file.read_exact_at(into, at).map_err(|source| Error::io(&self.path, "read", source))
    }

    /// Reads the payload of a chunk as it is stored, behind the header, into `scratch.file`.
    fn stored(&self, entry: &IndexEntry, scratch: &mut Scratch) -> Result<Result<(), Damage>, Error> {
        let IndexEntry { offset, header } = entry;
        let (stored, raw) = (header.stored(), header.raw());
        if stored > chunk::MAX_RAW || raw > chunk::MAX_RAW {
            return Ok(Err(Damage("it claims to be larger than a chunk may be")));
        }
        scratch.file.resize(CHUNK_HEADER + stored, 0);
        self.read(&mut scratch.file, *offset)?;
        if ChunkHeader::parse(&scratch.file) != Some(*header) {
            return Ok(Err(Damage("its header is not the one in the index")));
        }
        if !header.payload_is_whole(&scratch.file[CHUNK_HEADER..]) {
            return Ok(Err(Damage("its checksum is wrong")));
        }
        Ok(Ok(()))
    }

    /// Reads the payload of a chunk into `scratch.raw`.
    pub(crate) fn payload(
        &self,
        entry: &IndexEntry,
        scratch: &mut Scratch,
    ) -> Result<Result<(), Damage>, Error> {
        if let Err(damage) = self.stored(entry, scratch)? {
            return Ok(Err(damage));
        }
        let header = entry.header;
        let (payload, raw) = (&scratch.file[CHUNK_HEADER..], header.raw());
        scratch.raw.clear();
        if header.is_compressed() {
            scratch.raw.reserve(raw);
            if scratch.press.decompress_to_buffer(payload, &mut scratch.raw).is_err() {
                return Ok(Err(Damage("it does not uncompress")));
            }
        } else {
            scratch.raw.extend_from_slice(payload);
        }
        if scratch.raw.len() != raw {
            return Ok(Err(Damage("its size is not the one it declares")));
        }
        Ok(Ok(()))
    }

    /// Decodes a chunk of events into `batch`.
    pub(crate) fn batch(
        &self,
        entry: &IndexEntry,
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let span = entry.header.span();
        batch.thread = entry.header.thread();
        let result = match self.payload(entry, scratch)? {
            Ok(()) => scratch.decoder.decode(&scratch.raw, &span, batch),
            Err(damage) => Err(damage),
        };
        result.map_err(|damage| {
            // An incomplete chunk is not shown as if it were whole.
            batch.events.clear();
            self.bad_chunk(entry, damage)
        })
    }

    /// Returns the damage of a chunk that its checksums show.
    pub(crate) fn damage(&self, entry: &IndexEntry, scratch: &mut Scratch) -> Result<Option<Damage>, Error> {
        Ok(self.stored(entry, scratch)?.err())
    }

    /// Checks the checksums of a chunk of events.
    pub(crate) fn check(&self, entry: &IndexEntry, scratch: &mut Scratch) -> Result<(), Error> {
        self.stored(entry, scratch)?.map_err(|damage| self.bad_chunk(entry, damage))
    }

    fn bad_chunk(&self, entry: &IndexEntry, Damage(what): Damage) -> Error {
        let (thread, events) = (entry.header.thread(), entry.header.span().events);
        Error::BadChunk { path: self.path.clone(), offset: entry.offset, thread, events, what }
    }
}
