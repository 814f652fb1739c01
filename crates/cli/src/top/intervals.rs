//! The intervals of the watched processes, received from the threads that watch them.

use calltap_analysis::intervals::Interval;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

/// A message of a thread that watches a process.
pub enum Message {
    /// An interval ended; `None` when the first one begins.
    Interval(Option<Interval>),
    /// The process is no longer watched.
    Ended,
}

/// The receiver of the messages, each with the index of its process in the list.
pub struct Intervals {
    receiver: Receiver<(usize, Message)>,
    /// The intervals that arrived before all processes had begun.
    waiting: VecDeque<(usize, Option<Interval>)>,
    running: Vec<bool>,
}

impl Intervals {
    /// Returns the receiver for `count` processes.
    pub fn new(receiver: Receiver<(usize, Message)>, count: usize) -> Intervals {
        Intervals { receiver, waiting: VecDeque::new(), running: vec![true; count] }
    }

    /// Waits until each process has begun or ended. Returns whether one is still running.
    pub fn begin(&mut self) -> bool {
        let mut begun = vec![false; self.running.len()];
        while (0..begun.len()).any(|at| self.running[at] && !begun[at]) {
            let Ok((at, message)) = self.receiver.recv() else { break };
            let interval = self.take(at, message);
            begun[at] = true;
            if interval.is_some() {
                self.waiting.push_back((at, interval));
            }
        }
        self.running.contains(&true) || !self.waiting.is_empty()
    }

    /// Whether a process is still being watched.
    pub fn runs(&self, at: usize) -> bool {
        self.running[at]
    }

    /// Waits for the next interval; `None` in its place is the end of a process. Returns `None`
    /// once all have ended.
    pub fn next(&mut self) -> Option<(usize, Option<Interval>)> {
        if let Some(first) = self.waiting.pop_front() {
            return Some(first);
        }
        let (at, message) = self.receiver.recv().ok()?;
        Some((at, self.take(at, message)))
    }

    /// Returns the next interval without waiting. An error says that none has arrived yet, or that
    /// all processes have ended.
    pub fn try_next(&mut self) -> Result<(usize, Option<Interval>), TryRecvError> {
        if let Some(first) = self.waiting.pop_front() {
            return Ok(first);
        }
        let (at, message) = self.receiver.try_recv()?;
        Ok((at, self.take(at, message)))
    }

    fn take(&mut self, at: usize, message: Message) -> Option<Interval> {
        match message {
            Message::Interval(interval) => interval,
            Message::Ended => {
                self.running[at] = false;
                None
            }
        }
    }
}
