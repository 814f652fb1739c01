//! The collector's consumer for a mount: passes records and events to the directory.

use super::server::Server;
use calltap_process::clock::others_ns;
use calltap_process::memory::maps::stack_around;
use calltap_session::Consumer;
use calltap_trace::{ClockPair, Error, Record, ThreadEncoder, ThreadId, Unpacker};
use calltap_tracefs::Moment;
use std::sync::atomic::Ordering::Acquire;

/// Feeds a directory with records and events.
pub struct Feed<'a> {
    server: &'a Server,
    unpacker: Unpacker,
}

impl<'a> Feed<'a> {
    /// Returns a feed for the directory of `server`.
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
        // After the end no reader is left, and detaching waits for this function: a busy program's
        // rings are discarded.
        if self.server.over.load(Acquire) {
            self.unpacker.events(encoder, |_| {});
            return Ok(());
        }
        let mut tracefs = self.server.tracefs();
        self.unpacker.events(encoder, |batch| tracefs.events(batch));
        Ok(())
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.server.tracefs().end_thread(thread);
        Ok(())
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        if self.server.over.load(Acquire) {
            return Ok(());
        }
        let sought = self.server.tracefs().stacks_sought();
        for (thread, pid, tid, address) in sought {
            // The stack is read without the directory's lock, so that no request waits for it.
            let stack = stack_around(pid, tid, address);
            self.server.tracefs().set_stack(thread, stack);
        }
        let ClockPair { ticks, monotonic_ns } = at;
        let [raw_ns, boot_ns, tai_ns] = others_ns(monotonic_ns);
        self.server.tracefs().settle(Moment { monotonic_ns, ticks, raw_ns, boot_ns, tai_ns });
        self.server.tell();
        Ok(())
    }
}
