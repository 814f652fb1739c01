//! The time in which the calls of an answer were recorded.

/// Time in which calls were recorded: from the first to the newest clock pair; of a process that
/// was attached to, from when its functions were enabled to when calltap began to detach. Functions
/// are enabled and disabled one after the other: the events before and after are in the answer, and
/// extend the time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Elapsed {
    /// The first clock pair, in nanoseconds.
    first: Option<u64>,
    /// The moment at which the functions of a process that was attached to were enabled.
    enabled: Option<u64>,
    /// Number of flushes of a process that was attached to.
    flushes: u32,
    /// The moment of the last flush before calltap detaches, or of the newest clock pair.
    end: u64,
    /// Moments of the first and the last event, if they are known.
    seen: Option<(u64, u64)>,
    /// The time of a recording that has ended.
    whole: Option<u64>,
}

impl Elapsed {
    /// Returns the time of a recording that has ended.
    pub(crate) fn of(ns: u64) -> Elapsed {
        Elapsed { whole: Some(ns), ..Elapsed::default() }
    }

    /// Returns the nanoseconds so far.
    pub fn ns(&self) -> u64 {
        if let Some(whole) = self.whole {
            return whole;
        }
        let Some(enabled) = self.enabled else {
            return self.end.saturating_sub(self.first.unwrap_or(self.end));
        };
        let (first, last) = self.seen.unwrap_or((enabled, self.end));
        self.end.max(last).saturating_sub(enabled.min(first))
    }

    /// Takes the time of a new clock pair.
    pub fn now(&mut self, ns: u64) {
        self.first.get_or_insert(ns);
        // Pairs that follow the last flush are those of detaching.
        if self.flushes < 2 {
            self.end = ns;
        }
    }

    /// Takes the times of the first and the last of some events.
    pub(crate) fn saw(&mut self, first: u64, last: u64) {
        let seen = self.seen.get_or_insert((first, last));
        *seen = (seen.0.min(first), seen.1.max(last));
    }

    /// Takes the time at which the program's own sums were final: they have all calls since the
    /// first function was enabled.
    pub fn summed(&mut self, ns: u64) {
        self.saw(self.first.unwrap_or(ns), ns);
    }

    /// Takes the time until which all events of a process that was attached to have arrived, and
    /// when its functions were on; if that is not known, they have just been enabled. The last
    /// time, calltap begins to detach.
    pub fn flushed(&mut self, ns: u64, began: Option<u64>) {
        self.enabled.get_or_insert(began.map_or(ns, |began| began.min(ns)));
        self.flushes += 1;
        self.end = ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attaching_and_detaching_do_not_count() {
        let mut elapsed = Elapsed::default();
        elapsed.now(100);
        elapsed.flushed(400, None);
        elapsed.flushed(900, Some(300));
        elapsed.now(1000);
        assert_eq!(elapsed.ns(), 500);
    }

    #[test]
    fn events_before_and_after_extend_the_time() {
        let mut elapsed = Elapsed::default();
        elapsed.now(100);
        elapsed.saw(350, 500);
        elapsed.flushed(600, Some(400));
        elapsed.flushed(900, None);
        assert_eq!(elapsed.ns(), 550);
        elapsed.saw(700, 950);
        elapsed.now(1000);
        assert_eq!(elapsed.ns(), 600);
        elapsed.summed(1100);
        assert_eq!(elapsed.ns(), 1000);
    }

    #[test]
    fn a_program_that_was_started_counts_from_the_first_clock_pair() {
        let mut elapsed = Elapsed::default();
        [100, 150, 300].into_iter().for_each(|ns| elapsed.now(ns));
        assert_eq!(elapsed.ns(), 200);
    }

    #[test]
    fn a_process_that_ends_before_the_second_flush_counts_to_its_end() {
        let mut elapsed = Elapsed::default();
        elapsed.now(100);
        elapsed.flushed(420, Some(400));
        elapsed.now(450);
        assert_eq!(elapsed.ns(), 50);
    }
}
