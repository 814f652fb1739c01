//! Recognition of a site's bytes: one of its states, the remains of an interrupted batch, or
//! another tool's bytes.

use super::{Kind, NOP2, Site, State, short_jump};
use crate::bytes::Bytes;
use crate::steps::{INT3, JMP_3F, JUMP, TEST};

impl Site {
    /// Whether these are the site's bytes in a state.
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

    /// Returns the state with these bytes, if there is one: the file's, disabled, or one of
    /// `others`.
    pub fn state_of(&self, actual: &[u8], others: impl IntoIterator<Item = State>) -> Option<State> {
        let mut states = [State::Original, State::Disabled].into_iter().chain(others);
        states.find(|state| self.is(*state, actual))
    }

    /// Whether these bytes are another tool's: they are no state, no remains of batches between
    /// some states, and do not lead to the target of one. A target is recognized by its
    /// displacement, anywhere in the site; a breakpoint counts as leading there, as it hides the
    /// byte behind it.
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

    /// Returns the state from which a change begins, if these bytes may be the remains of batches
    /// that were interrupted between some states. A breakpoint is accepted only if `int3` says that
    /// they may have left one.
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
            // This differs from the new state, so all of the site is written.
            let torn =
                if matches!(to, State::Enabled(_)) { Some(State::Original) } else { on.first().copied() };
            return whole.or(torn);
        }
        // A site with bytes of the two inactive states only may be normalized in part.
        match actual.iter().enumerate().all(|(i, byte)| plain.iter().any(|bytes| bytes[i] == *byte)) {
            // This differs from the new state, so all of the site is written.
            _ if self.is_call() && on.is_empty() => {
                Some(if to == State::Original { State::Disabled } else { State::Original })
            }
            true if to == State::Original => Some(State::Disabled),
            true if self.disabled != self.original => Some(State::Original),
            _ => on.first().or(between.first()).copied(),
        }
    }
}
