//! The collector's consumer for a question: passes events to the question, and its answers to the
//! thread that prints.

use super::printer::Printer;
use super::question::Answer;
use calltap_analysis::answers::{Listener, Question};
use calltap_process::clock::monotonic_ns;
use calltap_session::Consumer;
use calltap_trace::{ClockPair, Error, Profile, Record, Switch, ThreadEncoder, ThreadId, Unpacker};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

/// The sums of the profile tracer, as last read from the program.
#[derive(Clone, Default)]
pub struct SumsSeen(Arc<Mutex<Option<Vec<Profile>>>>);

impl SumsSeen {
    /// Replaces the sums by newly read ones.
    pub fn set(&self, rows: Vec<Profile>) {
        if let Ok(mut seen) = self.0.lock() {
            *seen = Some(rows);
        }
    }

    fn take(&self) -> Option<Vec<Profile>> {
        self.0.lock().ok()?.take()
    }
}

/// Feeds a question's listener with records and events.
pub struct Feed<'a> {
    listener: Listener<Answer>,
    unpacker: Unpacker,
    printer: &'a Printer,
    /// Whether the answer so far is drawn on the screen.
    draws: bool,
    /// When the functions of a process that calltap attached to were on, in nanoseconds; 0 before.
    /// `None`: calltap started it.
    began: Option<Arc<AtomicU64>>,
    sums: SumsSeen,
}

impl<'a> Feed<'a> {
    /// Returns a feed for a process that begins to be watched.
    pub fn new(
        listener: Listener<Answer>,
        printer: &'a Printer,
        draws: bool,
        began: Option<Arc<AtomicU64>>,
    ) -> Feed<'a> {
        let (unpacker, sums) = (Unpacker::default(), SumsSeen::default());
        Feed { listener, unpacker, printer, draws, began, sums }
    }

    /// Returns the handle through which the program's sums are passed in.
    pub fn sums(&self) -> SumsSeen {
        self.sums.clone()
    }

    /// Ends the recording and returns the listener with the whole answer.
    pub fn finish(mut self) -> Listener<Answer> {
        self.listener.finish();
        self.listener
    }

    fn print(&mut self) {
        let lines = self.listener.question.take();
        if !lines.is_empty() {
            self.printer.lines(lines);
        }
        if self.listener.question.is_full() {
            self.printer.end();
        }
    }
}

impl Consumer for Feed<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            // The final sums of the program.
            Record::Profile { rows } => {
                self.listener.known.elapsed.summed(monotonic_ns());
                self.listener.question.sums(&self.listener.known, rows);
            }
            _ => self.listener.record(record),
        }
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        self.unpacker.events(encoder, |batch| self.listener.events(batch));
        self.print();
        Ok(())
    }

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        self.listener.switches(thread, switches, until);
        self.print();
        Ok(())
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.listener.end(thread);
        Ok(())
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        if let Some(began) = &self.began {
            let began = Some(began.load(Relaxed)).filter(|began| *began != 0);
            self.listener.known.elapsed.flushed(at.monotonic_ns, began);
        }
        self.listener.known.now(at);
        self.print();
        if self.draws {
            if let Some(rows) = self.sums.take() {
                self.listener.question.sums(&self.listener.known, &rows);
            }
            self.printer.screen(self.listener.question.text(&self.listener.known));
        }
        Ok(())
    }
}
