//! What is found in a site: one of its states, what a writer that was killed has left, or another tool's bytes.

use super::{Kind, NOP2, Site, State, short_jump};
use crate::bytes::Bytes;
use crate::steps::{INT3, JMP_3F, JUMP, TEST};

impl Site {
    /// Are these its bytes in a state?
    #[inline]
    pub fn is(&self, state: State, actual: &[u8]) -> bool {
        match state {
            State::Original => self.original == *actual,
            State::Disabled => self.disabled == *actual,
            State::Enabled(_) if self.len() == JUMP && !self.is_trap() => {
                self.switched(state).is_ok_and(|bytes| bytes == *actual)
            }
            State::Enabled(_) => self.bytes(state).is_ok_and(|bytes| bytes == *actual),
        }
    }

    /// The state that these bytes are, if it is one: the file's, disabled, or one of `others`.
    pub fn state_of(&self, actual: &[u8], others: impl IntoIterator<Item = State>) -> Option<State> {
        let mut states = [State::Original, State::Disabled].into_iter().chain(others);
        states.find(|state| self.is(*state, actual))
    }

    /// Are these bytes all another tool's: no state, nothing that batches between some states may have left, and nothing that leads where these do? By a displacement, wherever
    /// in the site that is; or a breakpoint, which hides what is behind it.
    pub fn is_foreign(&self, actual: &[u8], states: &[State]) -> bool {
        let bytes = |state: &State| self.bytes(*state).ok();
        let holds = |on: Bytes| {
            let mut windows = actual.windows(4).zip(on.windows(4)).zip(self.original.windows(4));
            windows.any(|((actual, on), original)| actual == on && on != original)
        };
        let leads_there = actual.first() == Some(&INT3) || states.iter().filter_map(bytes).any(holds);
        !leads_there
            && self.state_of(actual, states.iter().copied()).is_none()
            && self.recognise(actual, states, State::Original, true).is_none()
    }

    /// The state from which a change begins where batches between some states were cut short, if these bytes can be what they left. A breakpoint is believed to be
    /// theirs only where they may have left one.
    pub fn recognise(&self, actual: &[u8], between: &[State], to: State, int3: bool) -> Option<State> {
        let plain = [&self.original, &self.disabled];
        let on: Vec<_> = between.iter().copied().filter(|state| matches!(state, State::Enabled(_))).collect();
        let mut seen: Vec<Bytes> = plain.into_iter().copied().collect();
        seen.extend(on.iter().filter_map(|state| self.bytes(*state).ok()));
        if self.breakpoint().is_some() {
            let at = self.at as usize;
            let mut during = self.disabled;
            during[at] = TEST;
            seen.push(during);
            during[at..at + JMP_3F.len()].copy_from_slice(&JMP_3F);
            seen.push(during);
            during[at] = INT3;
            seen.extend(int3.then_some(during));
        }
        if let Kind::ShortJump(at) = self.kind {
            let mut carry = self.disabled;
            carry[at as usize..][..2].copy_from_slice(&[NOP2[0], short_jump(at)[1]]);
            seen.push(carry);
        }
        let known = |(i, byte): (usize, &u8)| seen.iter().any(|bytes| bytes[i] == *byte);
        if actual.len() != self.len() || !actual.iter().enumerate().all(known) {
            return None;
        }
        if self.is_displaced() {
            let whole = self.state_of(actual, on.iter().copied());
            // It is not what it shall become, so all of it is written.
            let torn =
                if matches!(to, State::Enabled(_)) { Some(State::Original) } else { on.first().copied() };
            return whole.or(torn);
        }
        // What leads nowhere and is no A9 may be normalized in part.
        match actual.iter().enumerate().all(|(i, byte)| plain.iter().any(|bytes| bytes[i] == *byte)) {
            // It is not what it shall become, so all of it is written.
            _ if self.is_call() && on.is_empty() => {
                Some(if to == State::Original { State::Disabled } else { State::Original })
            }
            true if to == State::Original => Some(State::Disabled),
            true if self.disabled != self.original => Some(State::Original),
            _ => on.first().or(between.first()).copied(),
        }
    }
}
