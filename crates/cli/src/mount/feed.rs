//! From the process's events to the directory.

use super::server::Server;
use calltap_session::Consumer;
use calltap_trace::{ClockPair, Error, Record, ThreadEncoder, ThreadId, Unpacker};

/// Takes what is collected.
pub struct Feed<'a> {
    server: &'a Server,
    unpacker: Unpacker,
}

impl<'a> Feed<'a> {
    /// Into the directory of `server`.
    pub fn new(server: &'a Server) -> Feed<'a> {
        Feed { server, unpacker: Unpacker::default() }
    }
}

impl Consumer for Feed<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        self.server.tracefs().record(record);
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        let mut tracefs = self.server.tracefs();
        self.unpacker.events(encoder, |batch| tracefs.events(batch));
        Ok(())
    }

    fn end(&mut self, thread: ThreadId) {
        self.server.tracefs().end_thread(thread);
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        self.server.tracefs().settle(at);
        self.server.tell();
        Ok(())
    }
}
