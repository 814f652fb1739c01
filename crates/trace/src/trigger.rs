//! Triggers: what is done when a function is called, and how often still. The control directory and a recorder have them in common.

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The recording goes on,
    TraceOn,
    /// or pauses.
    TraceOff,
    /// The callers are recorded.
    StackTrace,
    /// What was recorded is put aside.
    Snapshot,
    /// What was recorded is written out, once.
    Dump,
    /// The same of one processor.
    CpuDump,
    /// While the call is open, so many levels of calls are kept, the first of which is the call itself.
    Depth(usize),
}

impl Action {
    /// Is there anything to do for it in a recording that is on, or that is not?
    pub fn applies(self, is_on: bool) -> bool {
        match self {
            Action::TraceOn => !is_on,
            Action::TraceOff | Action::StackTrace | Action::Snapshot => is_on,
            Action::Dump | Action::CpuDump | Action::Depth(_) => true,
        }
    }

    /// Is the recording on behind it?
    pub fn leaves(self, is_on: bool) -> bool {
        match self {
            Action::TraceOn => true,
            Action::TraceOff => false,
            _ => is_on,
        }
    }

    /// Can it change whether the recording is on?
    pub fn switches(self) -> bool {
        matches!(self, Action::TraceOn | Action::TraceOff)
    }
}

/// May a trigger do what it does, that has so many uses left, or any number? That is one use less.
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
