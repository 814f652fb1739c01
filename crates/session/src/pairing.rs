//! Finds the entry that a return belongs to.
//!
//! A return names its function and seven bits of its stack position. Frames that were left by longjmp or an exception never return: they are
//! closed by the next return below them.

use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, SiteId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    site: u32,
    tag: u8,
    tail: bool,
}

/// The open calls of a thread.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls {
    frames: Vec<Frame>,
}

impl OpenCalls {
    /// The event, with a return's number of closed calls.
    pub fn pair(&mut self, raw: RawEvent) -> Event {
        let kind = match raw.code {
            code::EXIT => EventKind::Exit { pops: self.close(raw.site, raw.tag) },
            code::CALL => EventKind::Call { parent: raw.parent },
            code::ENTRY => self.open(raw, false, EventKind::Entry),
            code::ENTRY_FROM => self.open(raw, false, EventKind::EntryFrom { parent: raw.parent }),
            code::TAIL_ENTRY => self.open(raw, true, EventKind::TailEntry),
            _ => self.open(raw, true, EventKind::TailEntryFrom { parent: raw.parent }),
        };
        Event { ticks: raw.ticks, site: SiteId(raw.site), kind }
    }

    fn open(&mut self, raw: RawEvent, tail: bool, kind: EventKind) -> EventKind {
        self.frames.push(Frame { site: raw.site, tag: raw.tag, tail });
        kind
    }

    fn close(&mut self, site: u32, tag: u8) -> u32 {
        let returned = Frame { site, tag, tail: false };
        if self.frames.last() == Some(&returned) {
            self.frames.pop();
            return 1;
        }
        match self.frames.iter().rposition(|frame| *frame == returned) {
            Some(at) => {
                let pops = self.frames.len() - at;
                self.frames.truncate(at);
                pops as u32
            }
            None => 0,
        }
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
            let site = u32::from(name.as_bytes()[0]);
            let tag = name[1..].parse().unwrap_or(0);
            if let EventKind::Exit { pops } = open.pair(RawEvent { ticks: 0, site, tag, code, parent: 0 }).kind {
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
