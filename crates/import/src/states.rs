//! What a thread does, as far as context switches and wakings tell it.
//!
//! A recording that was filtered does not have all switches. A thread that leaves a processor to which it did not come, that comes to one while it
//! has another, that is woken twice, or that has an event while it is off shows that switches are missing. What lies between the last switch that was
//! recorded and that moment is not known then, but for this: a thread that slept did so until it was woken for the first time.

use calltap_trace::{RunState, Switch};

/// What it does since its last switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Doing {
    #[default]
    Unknown,
    /// It has this processor.
    Runs { cpu: u32 },
    /// It could run.
    Waits,
    /// It sleeps; when it was woken first, nanoseconds.
    Sleeps { woken: Option<u64> },
}

/// What is known at the end of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Complete {
    /// No event has shown that switches are missing.
    pub(crate) switches: bool,
    /// Wakings were recorded.
    pub(crate) wakings: bool,
}

/// The switches of a thread that are not written yet.
#[derive(Default)]
pub(crate) struct States {
    pub(crate) switches: Vec<Switch>,
    doing: Doing,
}

impl States {
    /// It comes to a processor. False if switches are missing before that.
    pub(crate) fn come(&mut self, at: u64, cpu: u32) -> bool {
        let follows = !matches!(self.doing, Doing::Runs { .. });
        if !follows {
            self.forget();
        }
        self.push(at, RunState::Running, Doing::Runs { cpu });
        follows
    }

    /// It leaves a processor, and does this from now on. False if switches are missing before that.
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

    /// It is woken. False if switches are missing: a thread that has been woken has to run before it sleeps again.
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

    /// It runs on a processor, as another event than a switch tells. False if switches are missing before that.
    pub(crate) fn run(&mut self, cpu: u32) -> bool {
        let follows = matches!(self.doing, Doing::Unknown) || self.doing == Doing::Runs { cpu };
        if !follows {
            self.forget();
        }
        follows
    }

    /// Another thread has a processor: this one has left it unseen, if it had that.
    pub(crate) fn lose(&mut self, cpu: u32) {
        if self.doing == (Doing::Runs { cpu }) {
            self.forget();
        }
    }

    /// Of what happens from `at` on, nanoseconds, not everything is known.
    pub(crate) fn gap(&mut self, at: u64) {
        if self.doing != Doing::Unknown {
            self.push(at, RunState::Unknown, Doing::Unknown);
        }
    }

    /// Nothing follows. A thread that was woken and has not come back is known to have slept until then.
    pub(crate) fn finish(&mut self, complete: Complete) {
        match self.doing {
            Doing::Sleeps { woken: None } if complete.switches || complete.wakings => {}
            Doing::Runs { .. } | Doing::Waits if complete.switches => {}
            _ => self.forget(),
        }
    }

    /// The last switch stays: what follows it may turn out not to be known.
    pub(crate) fn take_settled(&mut self) -> Vec<Switch> {
        let rest = self.switches.split_off(self.switches.len().saturating_sub(1));
        std::mem::replace(&mut self.switches, rest)
    }

    /// What it has done since its last switch is not known, or since it was woken.
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

    /// Steps as words: `+3@7` comes to processor 3 at 7, `-3@9` leaves it asleep, `=3@9` preempted, `!@8` is woken, `.3@8` has an event there, `x3@8` loses
    /// it, `gap@9`. The states that follow, with `?` for the unknown, and how often switches were missing.
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
    fn what_a_thread_did_last_is_known_as_far_as_all_is_recorded() {
        check("+0@1 -0@3 !@5", "r1 b3 ?5", 0);
        check("+0@1 -0@3", "r1 b3", 0);
        check("+0@1 =0@3", "r1 w3", 0);
        for (steps, expected) in [("+0@1 -0@3", "r1 ?3"), ("+0@1 =0@3", "r1 ?3"), ("-0@1 +0@3", "b1 ?3")] {
            assert_eq!(states(steps, PART), (expected.to_owned(), 0), "{steps}");
        }
        check("+0@1 -0@3 gap@5 !@6 +0@7", "r1 b3 ?5 r7", 0);
    }
}
