//! Which of a thread's waits calltap has caused: it had stopped the thread, or the thread waited
//! for the recorder.

use calltap_trace::{RunState, Switch};
use std::ops::RangeInclusive;

/// The states of a thread over time, with waits for calltap told apart.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Times of holds in nanoseconds, each with its number: moments at which calltap had stopped
    /// the thread, or waits for the recorder.
    held: Vec<(u64, RangeInclusive<u64>)>,
    /// End of the time that was reported.
    until: u64,
    /// The thread's state there, according to the kernel.
    state: RunState,
    /// The thread's state there, as reported.
    told: RunState,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds { held: Vec::new(), until: 0, state: RunState::Unknown, told: RunState::Unknown }
    }
}

impl Holds {
    /// The thread's state at the end of the time that was reported, according to the kernel.
    pub(crate) fn state(&self) -> RunState {
        self.state
    }

    /// Notes that calltap held the thread in this time. A later call with the same number replaces
    /// the earlier.
    pub(crate) fn add(&mut self, number: u64, time: RangeInclusive<u64>) {
        match self.held.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = time,
            None => self.held.push((number, time)),
        }
    }

    /// Converts the switches until `until`, which are complete. A time off a processor in which
    /// calltap held the thread for a moment is calltap's as a whole: the thread had no processor
    /// because of that.
    pub(crate) fn tell(&mut self, switches: Vec<Switch>, until: u64) -> Vec<Switch> {
        let last = switches.last().map_or(self.state, |switch| switch.to);
        let told = if self.held.is_empty() && self.state == self.told {
            self.told = last;
            switches
        } else {
            self.tell_apart(&switches, until)
        };
        (self.state, self.until) = (last, until.max(self.until));
        self.held.retain(|(_, time)| *time.end() >= until);
        told
    }

    fn tell_apart(&mut self, switches: &[Switch], until: u64) -> Vec<Switch> {
        let mut told = Vec::new();
        let first = Switch { at: self.until, to: self.state };
        let pieces = std::iter::once(&first).chain(switches);
        for (at, Switch { at: from, to }) in pieces.enumerate() {
            let end = switches.get(at).map_or(until, |next| next.at);
            // The thread was off its processor, for calltap, when the last report ended, and still
            // is.
            let is_known = at == 0 && self.told == RunState::Tracing && *to != RunState::Running;
            let is_off = matches!(to, RunState::Runnable | RunState::Blocked);
            let is_held = || self.held.iter().any(|(_, time)| *time.start() < end && *time.end() >= *from);
            let to = if is_known || (is_off && is_held()) { RunState::Tracing } else { *to };
            if to != self.told {
                told.push(Switch { at: *from, to });
                self.told = to;
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::*;
    use proptest::prelude::*;

    fn switches(of: &[(u64, RunState)]) -> Vec<Switch> {
        of.iter().map(|(at, to)| Switch { at: *at, to: *to }).collect()
    }

    fn tell(holds: &mut Holds, of: &[(u64, RunState)], until: u64) -> Vec<(u64, RunState)> {
        holds.tell(switches(of), until).iter().map(|switch| (switch.at, switch.to)).collect()
    }

    #[test]
    fn stops_count_for_calltap_and_surrounding_waits_for_the_program() {
        let mut holds = Holds::default();
        holds.add(1, 45..=45);
        let of = [(10, Running), (20, Blocked), (40, Running), (42, Blocked), (50, Running), (52, Blocked)];
        let expected =
            [(10, Running), (20, Blocked), (40, Running), (42, Tracing), (50, Running), (52, Blocked)];
        assert_eq!(tell(&mut holds, &of, 60), expected);
        assert_eq!(tell(&mut holds, &[(70, Running)], 80), [(70, Running)]);
    }

    #[test]
    fn wait_for_recorder_is_reported_while_open() {
        let mut holds = Holds::default();
        // The wait begins at 15, and ends at 115 at the latest.
        holds.add(7, 15..=115);
        assert_eq!(tell(&mut holds, &[(10, Running), (20, Blocked)], 30), [(10, Running), (20, Tracing)]);
        assert_eq!(tell(&mut holds, &[], 40), []);
        assert_eq!(tell(&mut holds, &[(45, Running), (46, Runnable)], 48), [(45, Running), (46, Tracing)]);
        holds.add(7, 15..=50);
        let rest = [(49, Running), (55, Blocked), (90, Running)];
        assert_eq!(tell(&mut holds, &rest, 100), rest, "its own wait, in time of the former bound");
    }

    #[test]
    fn late_stop_starts_at_last_known_switch() {
        let mut holds = Holds::default();
        assert_eq!(tell(&mut holds, &[(10, Running), (20, Blocked)], 30), [(10, Running), (20, Blocked)]);
        holds.add(1, 35..=35);
        assert_eq!(tell(&mut holds, &[(50, Running)], 60), [(30, Tracing), (50, Running)]);
    }

    proptest! {
        /// Reported in any pieces, only time off a processor becomes calltap's, and all of it does
        /// that overlaps a hold known before.
        #[test]
        fn time_is_neither_made_nor_lost(
            steps in proptest::collection::vec((1..5_u64, 0..4_usize), 1..30),
            held in proptest::collection::vec((1..80_u64, 0..6_u64), 0..5),
            cut in 0..150_u64,
        ) {
            let mut at = 0;
            let mut of: Vec<Switch> = steps.iter().map(|(step, state)| { at += step; Switch { at, to: RunState::ALL[*state] } }).collect();
            of.dedup_by_key(|switch| switch.to);
            let until = at + 5;
            let mut holds = Holds::default();
            held.iter().enumerate().for_each(|(number, (from, length))| holds.add(number as u64, *from..=from + length));
            let split = of.partition_point(|switch| switch.at <= cut);
            let mut told = holds.tell(of[..split].to_vec(), cut.min(until));
            told.extend(holds.tell(of[split..].to_vec(), until));
            let state = |all: &[Switch], tick: u64| all.iter().rfind(|switch| switch.at <= tick).map_or(Unknown, |switch| switch.to);
            for tick in 0..until {
                let (kernel, shown) = (state(&of, tick), state(&told, tick));
                let is_off = matches!(kernel, Runnable | Blocked);
                prop_assert!(kernel == shown || is_off && shown == Tracing, "{tick}: {kernel:?} {shown:?}");
                let is_held = held.iter().any(|(from, length)| (*from..=from + length).contains(&tick));
                prop_assert!(!(is_off && is_held) || shown == Tracing, "{tick}: not told apart");
            }
        }
    }
}
