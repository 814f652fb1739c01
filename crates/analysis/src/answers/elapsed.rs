//! The time in which the calls of an answer were recorded.

/// Time in which calls were recorded: from the first to the newest clock pair; of a process that
/// was attached to, from when its functions were enabled to when calltap began to detach.
#[derive(Clone, Copy, Default, Debug)]
pub struct Elapsed {
    /// The first clock pair, in nanoseconds.
    first: Option<u64>,
    /// The moment at which the functions of a process that was attached to were enabled.
    enabled: Option<u64>,
    /// Number of flushes of a process that was attached to.
    flushes: u32,
    ns: u64,
}

impl Elapsed {
    /// Returns the time of a recording that has ended.
    pub fn of(ns: u64) -> Elapsed {
        Elapsed { ns, ..Elapsed::default() }
    }

    /// Returns the nanoseconds so far.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// Takes the time of a new clock pair.
    pub fn now(&mut self, ns: u64) {
        let first = *self.first.get_or_insert(ns);
        // Pairs that follow the last flush are those of detaching.
        if self.flushes < 2 {
            self.ns = ns.saturating_sub(self.enabled.unwrap_or(first));
        }
    }

    /// Takes the time until which all events of a process that was attached to have arrived, and
    /// when its functions were on; if that is not known, they have just been enabled. The last
    /// time, calltap begins to detach.
    pub fn flushed(&mut self, ns: u64, began: Option<u64>) {
        let enabled = *self.enabled.get_or_insert(began.map_or(ns, |began| began.min(ns)));
        self.flushes += 1;
        self.ns = ns.saturating_sub(enabled);
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
