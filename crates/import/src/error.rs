//! Errors of importing a file. The caller adds the file's name.

use std::io;

/// A reason why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses to read the file.
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    /// The file does not begin as a trace.dat does.
    #[error("not a trace.dat of trace-cmd")]
    Foreign,
    /// The file is a trace.dat of another version.
    #[error("a trace.dat of version {0}; versions 6 and 7 can be imported")]
    Version(String),
    /// The file comes from a big-endian machine.
    #[error("recorded on a big-endian machine, which cannot be imported")]
    BigEndian,
    /// The file ends too early.
    #[error("the file is cut off: {0} ends beyond the end of the file")]
    Truncated(&'static str),
    /// The file contradicts itself.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// The file is compressed by an unsupported algorithm.
    #[error("compressed by '{0}'; zstd and zlib can be imported")]
    Compression(String),
    /// A compressed part of the file cannot be read.
    #[error("the file is damaged: {what} cannot be decompressed: {source}")]
    Decompress {
        /// The compressed part.
        what: &'static str,
        /// The error of the algorithm.
        source: io::Error,
    },
    /// The file holds the text of a latency tracer instead of events.
    #[error("it holds the text of a latency tracer, not events")]
    Text,
    /// The buffers of the file are empty.
    #[error("its buffers hold no events")]
    Empty,
    /// The file has events, but none of a kind that can be imported.
    #[error("none of its events can be imported: {0}")]
    OtherKinds(String),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] calltap_trace::Error),
}
