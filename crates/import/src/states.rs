//! States of a thread, derived from context switches and wakings.
//!
//! A filtered recording lacks switches. This shows when a thread leaves a processor to which it did
//! not come, comes to one while it has another, is woken twice, or has an event while it is off.
//! The state between the last recorded switch and that time is then unknown, with one exception: a
//! thread that slept did so until its first waking.

use calltap_trace::{RunState, Switch};

/// State of a thread since its last switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Doing {
    #[default]
    Unknown,
    /// The thread runs on this processor.
    Runs { cpu: u32 },
    /// The thread is runnable.
    Waits,
    /// The thread sleeps; the time of its first waking, nanoseconds.
    Sleeps { woken: Option<u64> },
}

/// Completeness of a recording, known at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Complete {
    /// Whether no event shows that switches are missing.
    pub(crate) switches: bool,
    /// Whether wakings were recorded.
    pub(crate) wakings: bool,
}

/// The switches of a thread that are not written yet.
#[derive(Default)]
pub(crate) struct States {
    pub(crate) switches: Vec<Switch>,
    doing: Doing,
}

impl States {
    /// Switches the thread to a processor. Returns false if switches are missing before.
    pub(crate) fn come(&mut self, at: u64, cpu: u32) -> bool {
        let follows = !matches!(self.doing, Doing::Runs { .. });
        if !follows {
            self.forget();
        }
        self.push(at, RunState::Running, Doing::Runs { cpu });
        follows
    }

    /// Switches the thread away from a processor, into state `to`. Returns false if switches are
    /// missing before.
    pub(crate) fn leave(&mut self, at: u64, cpu: u32, to: RunState) -> bool {
        let follows = matches!(self.doing, Doing::Unknown) || self.doing == Doing::Runs { cpu };
        if !follows {
            self.forget();
        }
        let doing = match to {
            RunState::Runnable => Doing::Waits,
            RunState::Blocked => Doing::Sleeps { woken: None },
            _ => Doing::Unknown,
        };
        self.push(at, to, doing);
        follows
    }

    /// Wakes the thread. Returns false if switches are missing: a thread that was woken must run
    /// before it sleeps again.
    pub(crate) fn wake(&mut self, at: u64) -> bool {
        match &mut self.doing {
            Doing::Sleeps { woken: woken @ None } => *woken = Some(at),
            Doing::Sleeps { .. } => {
                self.forget();
                return false;
            }
            _ => {}
        }
        true
    }

    /// Records an event of the thread on a processor. Returns false if switches are missing before.
    pub(crate) fn run(&mut self, cpu: u32) -> bool {
        let follows = matches!(self.doing, Doing::Unknown) || self.doing == Doing::Runs { cpu };
        if !follows {
            self.forget();
        }
        follows
    }

    /// Records that another thread has a processor: if this thread had it, it left unseen.
    pub(crate) fn lose(&mut self, cpu: u32) {
        if self.doing == (Doing::Runs { cpu }) {
            self.forget();
        }
    }

    /// Marks a gap: from `at` on, nanoseconds, events are missing.
    pub(crate) fn gap(&mut self, at: u64) {
        if self.doing != Doing::Unknown {
            self.push(at, RunState::Unknown, Doing::Unknown);
        }
    }

    /// Ends the recording. A thread that was woken and did not run again is known to have slept
    /// until that waking.
    pub(crate) fn finish(&mut self, complete: Complete) {
        match self.doing {
            Doing::Sleeps { woken: None } if complete.switches || complete.wakings => {}
            Doing::Runs { .. } | Doing::Waits if complete.switches => {}
            _ => self.forget(),
        }
    }

    /// Takes all switches but the last one, whose state may still become unknown.
    pub(crate) fn take_settled(&mut self) -> Vec<Switch> {
        let rest = self.switches.split_off(self.switches.len().saturating_sub(1));
        std::mem::replace(&mut self.switches, rest)
    }

    /// Makes the state unknown since the last switch, or since the waking.
    fn forget(&mut self) {
        match (std::mem::take(&mut self.doing), self.switches.last_mut()) {
            (Doing::Sleeps { woken: Some(at) }, _) => self.push(at, RunState::Unknown, Doing::Unknown),
            (_, Some(last)) => last.to = RunState::Unknown,
            (_, None) => {}
        }
    }

    fn push(&mut self, at: u64, to: RunState, doing: Doing) {
        let last = self.switches.last().map_or(0, |last| last.at);
        self.switches.push(Switch { at: at.max(last), to });
        self.doing = doing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the states after steps, with `?` for unknown, and how often switches were missing.
    /// Steps are words: `+3@7` comes to processor 3 at 7, `-3@9` leaves it asleep, `=3@9`
    /// preempted, `!@8` is woken, `.3@8` has an event there, `x3@8` loses it, `gap@9`.
    fn states(steps: &str, complete: Complete) -> (String, usize) {
        let (mut states, mut missing) = (States::default(), 0);
        for step in steps.split_whitespace() {
            let (what, at) = step.split_once('@').unwrap();
            let (at, cpu) = (at.parse().unwrap(), what[1..].parse().unwrap_or(0));
            let follows = match &what[..1] {
                "+" => states.come(at, cpu),
                "-" => states.leave(at, cpu, RunState::Blocked),
                "=" => states.leave(at, cpu, RunState::Runnable),
                "!" => states.wake(at),
                "." => states.run(cpu),
                "x" => {
                    states.lose(cpu);
                    true
                }
                _ => {
                    states.gap(at);
                    true
                }
            };
            missing += usize::from(!follows);
        }
        states.finish(complete);
        let name = |to| match to {
            RunState::Running => 'r',
            RunState::Runnable => 'w',
            RunState::Blocked => 'b',
            _ => '?',
        };
        let words = states.switches.iter().map(|switch| format!("{}{}", name(switch.to), switch.at));
        (words.collect::<Vec<_>>().join(" "), missing)
    }

    const ALL: Complete = Complete { switches: true, wakings: true };
    const PART: Complete = Complete { switches: false, wakings: false };

    #[track_caller]
    fn check(steps: &str, expected: &str, missing: usize) {
        assert_eq!(states(steps, ALL), (expected.to_owned(), missing), "{steps}");
    }

    #[test]
    fn switches_that_follow_from_each_other_are_believed() {
        check("+0@1 -0@3 !@5 +1@6 =1@8 +0@9", "r1 b3 r6 w8 r9", 0);
        check("-0@3 !@5 +1@6", "b3 r6", 0);
        check("+0@1 !@2 -0@3 !@4 +0@5", "r1 b3 r5", 0);
        check("+0@1 .0@2 -0@3", "r1 b3", 0);
    }

    #[test]
    fn a_thread_that_is_off_and_runs_was_blocked_until_its_first_waking() {
        check("+0@1 -0@3 !@5 .0@7 -0@9 +0@10", "r1 b3 ?5 b9 r10", 1);
        check("+0@1 -0@3 !@5 -0@9 +0@10", "r1 b3 ?5 b9 r10", 1);
        check("+0@1 -0@3 !@5 !@6 +0@10", "r1 b3 ?5 r10", 1);
        check("+0@1 -0@3 -0@9 +0@10", "r1 ?3 b9 r10", 1);
        check("+0@1 -0@3 .1@7 +0@10", "r1 ?3 r10", 1);
        check("+0@1 =0@3 .0@7 +0@10", "r1 ?3 r10", 1);
    }

    #[test]
    fn a_thread_that_comes_or_leaves_twice_did_other_things_meanwhile() {
        check("+0@1 +1@4 -1@5 +0@6", "?1 r4 b5 r6", 1);
        check("+0@1 +0@4", "?1 r4", 1);
        check("+0@1 -1@4 +0@6", "?1 b4 r6", 1);
        check("+0@1 x1@2 -0@3 +0@4", "r1 b3 r4", 0);
        check("+0@1 x0@2 +0@4", "?1 r4", 0);
    }

    #[test]
    fn last_state_is_known_to_end_of_complete_recording() {
        check("+0@1 -0@3 !@5", "r1 b3 ?5", 0);
        check("+0@1 -0@3", "r1 b3", 0);
        check("+0@1 =0@3", "r1 w3", 0);
        for (steps, expected) in [("+0@1 -0@3", "r1 ?3"), ("+0@1 =0@3", "r1 ?3"), ("-0@1 +0@3", "b1 ?3")] {
            assert_eq!(states(steps, PART), (expected.to_owned(), 0), "{steps}");
        }
        check("+0@1 -0@3 gap@5 !@6 +0@7", "r1 b3 ?5 r7", 0);
    }
}
