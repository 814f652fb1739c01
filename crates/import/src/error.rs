//! Why a file could not be imported. The caller adds the file's name.

use std::io;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses to read it.
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    /// It does not begin as a trace.dat does.
    #[error("not a trace.dat of trace-cmd")]
    Foreign,
    /// It is a trace.dat of another version.
    #[error("a trace.dat of version {0}; versions 6 and 7 can be imported")]
    Version(String),
    /// The machine it comes from has another order of bytes.
    #[error("recorded on a big-endian machine, which cannot be imported")]
    BigEndian,
    /// It ends too early.
    #[error("the file is cut off: {0} ends beyond the end of the file")]
    Truncated(&'static str),
    /// Something in it contradicts itself.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// It is compressed in another way.
    #[error("compressed by '{0}'; zstd and zlib can be imported")]
    Compression(String),
    /// Compressed parts of it cannot be read.
    #[error("the file is damaged: {what} cannot be decompressed: {source}")]
    Decompress {
        /// What is compressed.
        what: &'static str,
        /// What the algorithm says.
        source: io::Error,
    },
    /// The text of a latency tracer is in it instead of events.
    #[error("it holds the text of a latency tracer, not events")]
    Text,
    /// Its buffers are empty.
    #[error("its buffers hold no events")]
    Empty,
    /// It has events, and none of a kind that can be imported.
    #[error("none of its events can be imported: {0}")]
    OtherKinds(String),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] calltap_trace::Error),
}
