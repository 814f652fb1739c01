//! Finds the entry that a return belongs to.
//!
//! A return names its function and seven bits of its stack position. Frames that were left by longjmp or an exception never return: they are
//! closed by the next return below them.

use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, ThreadEncoder};

/// Set in a frame that was entered by a jump; the low bits of [`RawEvent::frame`] are free.
const TAIL: u32 = 1;

/// The open calls of a thread.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls {
    /// Those below `depth` are open; one place above always exists.
    frames: Vec<u32>,
    depth: usize,
}

impl OpenCalls {
    /// Encodes the event, a return with its number of closed calls. True if it is a return.
    ///
    /// Whether an entry or a return comes next is what a processor cannot predict, so the two are one path without a branch
    /// between them.
    #[inline(always)]
    pub fn pair(&mut self, raw: RawEvent, encoder: &mut ThreadEncoder) -> bool {
        let (frame, code) = (raw.frame(), raw.code());
        let returns = code == code::EXIT;
        let top = self.frames.get(self.depth.wrapping_sub(1)).copied();
        let Some(place) = self
            .frames
            .get_mut(self.depth)
            .filter(|_| (code == code::ENTRY) | (returns & (top == Some(frame))))
        else {
            if code == code::CALL {
                let kind = EventKind::Call { parent: raw.parent };
                encoder.push(Event { ticks: raw.ticks, site: raw.site(), kind });
                return false;
            }
            return self.pair_other(raw, encoder);
        };
        *place = frame; // of no effect if it returns
        self.depth = if returns { self.depth - 1 } else { self.depth + 1 };
        encoder.push_graph(raw.ticks, raw.site(), returns);
        returns
    }

    #[inline(never)]
    fn pair_other(&mut self, raw: RawEvent, encoder: &mut ThreadEncoder) -> bool {
        let kind = self.pair_rare(raw.code(), raw.frame(), raw.parent);
        encoder.push(Event { ticks: raw.ticks, site: raw.site(), kind });
        matches!(kind, EventKind::Exit { .. })
    }

    fn pair_rare(&mut self, code: u32, frame: u32, parent: u64) -> EventKind {
        match code {
            code::EXIT => return EventKind::Exit { pops: self.close(frame) },
            code::CALL => return EventKind::Call { parent },
            code::ENTRY | code::ENTRY_FROM => self.open(frame),
            _ => self.open(frame | TAIL),
        }
        match code {
            code::ENTRY => EventKind::Entry,
            code::ENTRY_FROM => EventKind::EntryFrom { parent },
            code::TAIL_ENTRY => EventKind::TailEntry,
            _ => EventKind::TailEntryFrom { parent },
        }
    }

    fn open(&mut self, frame: u32) {
        if self.frames.len() < self.depth + 2 {
            self.frames.resize((self.depth + 2).next_power_of_two().max(64), 0);
        }
        self.frames[self.depth] = frame;
        self.depth += 1;
    }

    /// Closes the newest open call of the frame and all above it.
    fn close(&mut self, frame: u32) -> u32 {
        let Some(at) = self.frames[..self.depth].iter().rposition(|open| *open == frame) else { return 0 };
        let pops = self.depth - at;
        self.depth = at;
        pops as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f` is an entry, `~f` an entry by a jump, `/f` a return; `f2` is `f` at another stack position.
    fn check(calls: &str, pops: &[u32]) {
        let mut open = OpenCalls::default();
        let mut got = Vec::new();
        for word in calls.split_whitespace() {
            let (code, name) = match word.as_bytes()[0] {
                b'/' => (code::EXIT, &word[1..]),
                b'~' => (code::TAIL_ENTRY, &word[1..]),
                _ => (code::ENTRY, word),
            };
            let tag: u32 = name[1..].parse().unwrap_or(0);
            let frame = tag << 25 | u32::from(name.as_bytes()[0]) << 5;
            if let EventKind::Exit { pops } = open.pair_rare(code, frame, 0) {
                got.push(pops);
            }
        }
        assert_eq!(got, pops, "{calls}");
    }

    #[test]
    fn nested_calls_close_one_by_one() {
        check("f g /g g /g /f", &[1, 1, 1]);
    }

    #[test]
    fn a_return_closes_the_tail_calls_that_share_its_frame() {
        check("f ~g /f", &[2]);
        check("f ~g ~f /f", &[3]);
        check("m f ~g h /h /f /m", &[1, 2, 1]);
    }

    #[test]
    fn frames_left_by_longjmp_are_closed_by_the_frame_below() {
        check("main f g h /main", &[4]);
        check("main f g f g /main", &[5]);
    }

    #[test]
    fn recursion_is_told_apart_by_stack_position() {
        check("f1 f2 f3 /f1", &[3]);
        check("f1 f2 f3 /f2 /f1", &[2, 1]);
    }

    #[test]
    fn a_return_without_its_entry_closes_nothing() {
        check("/f g /g", &[0, 1]);
        check("g /f /g", &[0, 1]);
    }
}
