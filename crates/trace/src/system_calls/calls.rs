//! The system calls of a thread, from their entries and exits.

use crate::kernel_log::KernelLog;
use crate::wakings::{Edge, SystemCall};

/// System calls that do not return: `exit` and `exit_group`.
const ENDS: [u32; 2] = [60, 231];

/// A system call of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) arguments: [u64; 6],
    /// End and result; `None` if they are unknown, or the call had not returned.
    pub(super) end: Option<(u64, i64)>,
}

impl Call {
    /// Returns a time at which the thread certainly was in the call. Its start and end may be
    /// earlier or later by the error of the clocks' comparison than events around them.
    pub(super) fn middle(&self) -> u64 {
        self.end.map_or(self.start, |(end, _)| self.start + end.saturating_sub(self.start) / 2)
    }
}

/// Returns the calls of a log, oldest first. Those that began before the log are left out.
pub(super) fn calls(log: &KernelLog<SystemCall>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut is_open = false;
    for SystemCall { at, number, edge } in &log.entries {
        match edge {
            Edge::Enter(_) if ENDS.contains(number) => is_open = false,
            Edge::Enter(arguments) => {
                calls.push(Call { number: *number, start: *at, arguments: *arguments, end: None });
                is_open = true;
            }
            Edge::Exit(result) => {
                let own = calls.last_mut().filter(|call| is_open && call.number == *number);
                if let Some(call) = own.filter(|call| log.knows(call.start, *at)) {
                    call.end = Some((*at, *result));
                }
                is_open = false;
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_belongs_to_preceding_entry() {
        let entry = |at, number| SystemCall { at, number, edge: Edge::Enter([at; 6]) };
        let exit = |at, number| SystemCall { at, number, edge: Edge::Exit(at as i64) };
        let entries = vec![
            exit(1, 0),
            entry(2, 0),
            exit(5, 0),
            exit(6, 0),
            entry(10, 1),
            entry(11, 2),
            exit(12, 3),
            entry(20, 4),
            exit(40, 4),
            entry(50, 231),
        ];
        let log = KernelLog { entries, known: vec![(0, 30), (35, 60)] };
        let call = |number, start, end: Option<u64>| {
            let end = end.map(|end| (end, end as i64));
            Call { number, start, arguments: [start; 6], end }
        };
        let expected = [call(0, 2, Some(5)), call(1, 10, None), call(2, 11, None), call(4, 20, None)];
        assert_eq!(calls(&log), expected);
    }
}
