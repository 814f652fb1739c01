//! The trace being written, until it cannot be written any more.

use calltap_trace::{Error, Record, ThreadEncoder, TraceWriter};

/// Writes until something fails, and remembers what: the program runs on in any case.
pub struct Output {
    pub writer: TraceWriter,
    pub failed: Option<Error>,
}

impl Output {
    /// Adds a record.
    pub fn record(&mut self, record: &Record) {
        self.attempt(|writer| writer.record(record));
    }

    /// Empties the encoder, whatever becomes of its events.
    pub fn events(&mut self, encoder: &mut ThreadEncoder) {
        self.attempt(|writer| writer.events(encoder));
        if self.failed.is_some() {
            *encoder = ThreadEncoder::new(encoder.thread());
        }
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) {
        self.attempt(TraceWriter::flush);
    }

    fn attempt(&mut self, act: impl FnOnce(&mut TraceWriter) -> Result<(), Error>) {
        if self.failed.is_none() {
            self.failed = act(&mut self.writer).err();
        }
    }
}
