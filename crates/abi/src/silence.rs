//! Measures how long a recorder has shown no sign of life, for a process that waits for it.
//!
//! The clock alone would mislead: it runs on while the machine is suspended, or while the waiting
//! thread has no processor. The recorder may have had none either. So only the time between two
//! looks counts, up to a limited step.

/// The silence of a recorder, as one waiting thread observes it.
#[derive(Debug)]
pub struct Silence {
    beat: u64,
    looked_ns: u64,
    silent_ns: u64,
    longest_step_ns: u64,
}

impl Silence {
    /// Starts with the heartbeat `beat` at the time `now_ns`. Looks should be less than
    /// `longest_step_ns` apart; a longer pause counts as that much.
    pub fn new(beat: u64, now_ns: u64, longest_step_ns: u64) -> Silence {
        Silence { beat, looked_ns: now_ns, silent_ns: 0, longest_step_ns }
    }

    /// Looks at the heartbeat. Returns how long it has stood still, in nanoseconds.
    pub fn update(&mut self, beat: u64, now_ns: u64) -> u64 {
        let step = now_ns.saturating_sub(self.looked_ns).min(self.longest_step_ns);
        self.silent_ns = if beat == self.beat { self.silent_ns.saturating_add(step) } else { 0 };
        (self.beat, self.looked_ns) = (beat, now_ns);
        self.silent_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the silence after each look, in steps of at most 100 ns. A look is a beat and a time.
    fn check(looks: &[(u64, u64)], expected: &[u64]) {
        let mut silence = Silence::new(0, 0, 100);
        let found: Vec<u64> = looks.iter().map(|&(beat, now)| silence.update(beat, now)).collect();
        assert_eq!(found, expected, "{looks:?}");
    }

    #[test]
    fn silence_grows_while_the_heart_stands_still_and_ends_with_a_beat() {
        check(&[(0, 50), (0, 100), (1, 150), (1, 200), (1, 250), (2, 300)], &[50, 100, 0, 50, 100, 0]);
    }

    #[test]
    fn a_pause_of_the_thread_that_looks_counts_as_one_step() {
        check(&[(0, 50), (0, 5_000), (0, 5_050), (1, 9_000), (1, 90_000)], &[50, 150, 200, 0, 100]);
    }

    #[test]
    fn a_clock_that_steps_back_adds_nothing() {
        check(&[(0, 90), (0, 10), (0, 60)], &[90, 90, 140]);
    }
}
