//! What comes of the processes that are watched: their intervals, and their ends.

use calltap_analysis::live::Interval;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

/// What a thread that watches a process tells of it.
pub enum Came {
    /// An interval ended; None says that the first one begins.
    Interval(Option<Interval>),
    /// The process is watched no more.
    Ended,
}

/// All that comes, with the place of the process in the list.
pub struct Intervals {
    receiver: Receiver<(usize, Came)>,
    /// Those that came before all had begun.
    waiting: VecDeque<(usize, Option<Interval>)>,
    running: Vec<bool>,
}

impl Intervals {
    /// Of so many processes.
    pub fn new(receiver: Receiver<(usize, Came)>, count: usize) -> Intervals {
        Intervals { receiver, waiting: VecDeque::new(), running: vec![true; count] }
    }

    /// Waits until each has begun or ended; does one run?
    pub fn begin(&mut self) -> bool {
        let mut begun = vec![false; self.running.len()];
        while (0..begun.len()).any(|at| self.running[at] && !begun[at]) {
            let Ok((at, came)) = self.receiver.recv() else { break };
            let interval = self.take(at, came);
            begun[at] = true;
            if interval.is_some() {
                self.waiting.push_back((at, interval));
            }
        }
        self.running.contains(&true) || !self.waiting.is_empty()
    }

    /// Has this one not ended yet?
    pub fn runs(&self, at: usize) -> bool {
        self.running[at]
    }

    /// Waits for the next interval; an end is one that is not there. None once all have ended.
    pub fn next(&mut self) -> Option<(usize, Option<Interval>)> {
        if let Some(first) = self.waiting.pop_front() {
            return Some(first);
        }
        let (at, came) = self.receiver.recv().ok()?;
        Some((at, self.take(at, came)))
    }

    /// The same without waiting: an error says that there is none yet, or that all have ended.
    pub fn try_next(&mut self) -> Result<(usize, Option<Interval>), TryRecvError> {
        if let Some(first) = self.waiting.pop_front() {
            return Ok(first);
        }
        let (at, came) = self.receiver.try_recv()?;
        Ok((at, self.take(at, came)))
    }

    fn take(&mut self, at: usize, came: Came) -> Option<Interval> {
        match came {
            Came::Interval(interval) => interval,
            Came::Ended => {
                self.running[at] = false;
                None
            }
        }
    }
}
