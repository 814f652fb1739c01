//! Triggers: actions on a call of a function, and how often they may still happen. The control
//! directory and a recorder share them.

/// The action of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The recording resumes.
    TraceOn,
    /// The recording pauses.
    TraceOff,
    /// The callers are recorded.
    StackTrace,
    /// The recording so far is put aside.
    Snapshot,
    /// The recording so far is written out, once.
    Dump,
    /// The recording of one processor so far is written out, once.
    CpuDump,
    /// While the call is open, this many levels of calls are kept, the first of which is the call
    /// itself.
    Depth(usize),
}

impl Action {
    /// Whether the action has an effect in a recording that is on, or that is off.
    pub fn applies(self, is_on: bool) -> bool {
        match self {
            Action::TraceOn => !is_on,
            Action::TraceOff | Action::StackTrace | Action::Snapshot => is_on,
            Action::Dump | Action::CpuDump | Action::Depth(_) => true,
        }
    }

    /// Whether the recording is on after the action.
    pub fn leaves(self, is_on: bool) -> bool {
        match self {
            Action::TraceOn => true,
            Action::TraceOff => false,
            _ => is_on,
        }
    }

    /// Whether the action can turn the recording on or off.
    pub fn switches(self) -> bool {
        matches!(self, Action::TraceOn | Action::TraceOff)
    }
}

/// Uses up one of a trigger's uses, or one of any number if there is no limit. Returns whether one
/// was left.
pub fn uses(left: &mut Option<i64>) -> bool {
    match left {
        None => true,
        Some(number @ 1..) => {
            *number -= 1;
            true
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_counts_only_if_there_is_something_to_do() {
        let (mut is_on, mut left) = (true, Some(2));
        let mut call = |action: Action| {
            if action.applies(is_on) && (action != Action::TraceOff || uses(&mut left)) {
                is_on = action.leaves(is_on);
            }
            is_on
        };
        let states = [
            Action::TraceOff,
            Action::TraceOff,
            Action::TraceOn,
            Action::TraceOff,
            Action::TraceOn,
            Action::TraceOff,
        ]
        .map(&mut call);
        assert_eq!(states, [false, false, true, false, true, true], "the third time it has no use left");
        assert!(uses(&mut None) && !uses(&mut Some(0)) && !uses(&mut Some(-1)));
    }
}
