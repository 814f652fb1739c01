//! The states of a thread over time: off-CPU time of any interval, and pieces at any resolution.

use crate::off::Off;
use crate::states::State;
use calltap_trace::RunState;

/// Adjacent intervals in which a thread did not run all the time, or in which its state is unknown.
/// Times are nanoseconds since the start of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Beginning of the first interval.
    pub start: u64,
    /// End of the last interval.
    pub end: u64,
    /// Off-CPU time between them.
    pub off: Off,
}

/// The states of one thread.
#[derive(Clone, Debug, Default)]
pub struct Band {
    /// The intervals in which it did not run.
    pieces: Vec<Piece>,
    /// For each piece, the sum of those before it.
    before: Vec<Off>,
    /// Beginning and end of the known time.
    known: (u64, u64),
}

impl Band {
    /// Makes a band from states in order; time outside of them is unknown.
    pub(super) fn new(states: &[State], to_ns: impl Fn(u64) -> u64) -> Band {
        let mut band = Band::default();
        let mut sum = Off::default();
        for state in states {
            let (start, end) = (to_ns(state.from), to_ns(state.to));
            if state.state != RunState::Running && end > start {
                let mut off = Off::default();
                off.add(state.state, end - start);
                band.pieces.push(Piece { start, end, off });
                band.before.push(sum);
                sum += off;
            }
        }
        if let (Some(first), Some(last)) = (states.first(), states.last()) {
            band.known = (to_ns(first.from), to_ns(last.to));
        }
        band
    }

    /// Number of pieces.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the off-CPU time of an interval.
    pub fn off(&self, from: u64, to: u64) -> Off {
        let to = to.max(from);
        let (low, high) = self.known;
        let mut off = Off::unknown((to - from) - to.min(high).saturating_sub(from.max(low)));
        let first = self.pieces.partition_point(|piece| piece.end <= from);
        let behind = self.pieces.partition_point(|piece| piece.start < to);
        if let Some(piece) = self.pieces.get(first..behind).and_then(<[Piece]>::first) {
            off += piece.cut(from, to);
        }
        if behind > first + 1 {
            off += self.pieces[behind - 1].cut(from, to);
            let (a, b) = (self.before[first + 1], self.before[behind - 1]);
            off += Off {
                runnable: b.runnable - a.runnable,
                blocked: b.blocked - a.blocked,
                unknown: b.unknown - a.unknown,
                tracing: b.tracing - a.tracing,
            };
        }
        off
    }

    /// Returns the pieces in a window; pieces within `resolution` are merged into one.
    pub fn window(&self, from: u64, to: u64, resolution: u64) -> Vec<Piece> {
        let first = self.pieces.partition_point(|piece| piece.end < from);
        let behind = self.pieces.partition_point(|piece| piece.start <= to);
        let mut window: Vec<Piece> = Vec::new();
        for piece in self.pieces.get(first..behind).unwrap_or_default() {
            match window.last_mut() {
                Some(last) if piece.end - last.start <= resolution => {
                    last.end = piece.end;
                    last.off += piece.off;
                }
                _ => window.push(*piece),
            }
        }
        let (low, high) = self.known;
        let unknown =
            |start: u64, end: u64| Piece { start, end, off: Off::unknown(end.saturating_sub(start)) };
        if low > from {
            window.insert(0, unknown(from, low.min(to)));
        }
        if high < to && high > from {
            window.push(unknown(high, to));
        }
        window
    }
}

impl Piece {
    /// Returns the off-CPU time of a piece of one state within an interval.
    fn cut(&self, from: u64, to: u64) -> Off {
        let length = self.end.min(to).saturating_sub(self.start.max(from));
        self.off.map(|ns| ns.min(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Blocked, Runnable, Running, Unknown};
    use proptest::prelude::*;

    fn states(of: &[(u64, RunState)]) -> Vec<State> {
        let state = |pair: &[(u64, RunState)]| State { from: pair[0].0, to: pair[1].0, state: pair[0].1 };
        of.windows(2).map(state).filter(|state| state.to > state.from).collect()
    }

    #[test]
    fn adjacent_pieces_are_merged_and_uncovered_time_is_unknown() {
        let known = [
            (10, Running),
            (20, Blocked),
            (22, Running),
            (23, Runnable),
            (24, Running),
            (60, Blocked),
            (70, Running),
            (80, Unknown),
        ];
        let band = Band::new(&states(&known), |ticks| ticks);
        let piece = |start, end, runnable, blocked, unknown| Piece {
            start,
            end,
            off: Off { runnable, blocked, unknown, tracing: 0 },
        };
        let window = band.window(5, 90, 8);
        assert_eq!(
            window,
            [piece(5, 10, 0, 0, 5), piece(20, 24, 1, 2, 0), piece(60, 70, 0, 10, 0), piece(80, 90, 0, 0, 10)]
        );
        assert_eq!(band.window(5, 90, 0).len(), 5);
        assert_eq!(Band::default().off(5, 9), Off::unknown(4));
    }

    proptest! {
        #[test]
        fn any_stretch_has_the_sum_of_its_nanoseconds(
            changes in proptest::collection::vec((0..9_u64, 0..4_usize), 0..30),
            from in 0..150_u64,
            length in 0..150_u64,
        ) {
            let mut at = 3;
            let known: Vec<(u64, RunState)> =
                changes.iter().map(|(step, state)| { at += step; (at, RunState::ALL[*state]) }).collect();
            let states = states(&known);
            let band = Band::new(&states, |ticks| ticks);
            let mut expected = Off::default();
            for tick in from..from + length {
                let state = states.iter().find(|state| state.from <= tick && tick < state.to);
                expected.add(state.map_or(Unknown, |state| state.state), 1);
            }
            prop_assert_eq!(band.off(from, from + length), expected);
        }
    }
}
