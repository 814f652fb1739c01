//! Finds the entry that a return belongs to.
//!
//! A return names its function and seven bits of its stack position. Frames that were left by longjmp or an exception never return: they are
//! closed by the next return below them.

use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, GraphEvent, ThreadEncoder};

/// Set in a frame that was entered by a jump; the low bits of [`RawEvent::frame`] are free.
const TAIL: u32 = 1;
/// Below all frames, and none that a return could belong to.
const BOTTOM: u32 = 2;
/// The codes [`OpenCalls::pair_graph`] is for.
const GRAPH: u32 = 1 << code::ENTRY | 1 << code::EXIT | 1 << code::TAIL_ENTRY;
/// More calls than this do not end at once there.
const MANY: usize = 200;
/// Entries there is always room for when many events are paired at once.
const ROOM: usize = 64;

/// The open calls of a thread.
#[derive(Clone, Debug)]
pub struct OpenCalls {
    /// First [`BOTTOM`], then those that are open, the newest at `depth`.
    frames: Vec<u32>,
    depth: usize,
}

impl Default for OpenCalls {
    fn default() -> OpenCalls {
        OpenCalls { frames: vec![BOTTOM], depth: 0 }
    }
}

impl OpenCalls {
    /// Encodes the event, a return with its number of closed calls. True if it is a return.
    #[inline(never)]
    pub fn pair(&mut self, raw: RawEvent, values: &[u8], encoder: &mut ThreadEncoder) -> bool {
        let kind = self.kind(raw.code(), raw.frame(), raw.parent);
        let event = Event { ticks: raw.ticks, site: raw.site(), kind };
        if values.is_empty() {
            encoder.push(event);
        } else {
            encoder.push_with(event, values);
        }
        matches!(kind, EventKind::Exit { .. })
    }

    /// Encodes events up to the first that is not an entry or return without anything behind it. Says how many, and how many of them
    /// are returns. `event` reads one.
    #[inline(always)]
    pub fn pair_graph<T>(
        &mut self,
        words: &[T],
        event: impl Fn(&T) -> RawEvent,
        encoder: &mut ThreadEncoder,
    ) -> (usize, usize) {
        self.make_room(ROOM);
        let frames = &mut *self.frames;
        // 32 bits: then a compiler sees that one more does not overflow, and one check is enough for both places.
        let (mut depth, mut exits) = (self.depth as u32, 0);
        let count = encoder.push_graph(words, |word| {
            let raw = event(word);
            let (frame, code) = (raw.frame(), raw.code());
            if GRAPH >> code & 1 == 0 {
                return None;
            }
            let (returns, tail) = (code == code::EXIT, code == code::TAIL_ENTRY);
            let mut pops = u8::from(returns);
            frames.get(depth as usize + 1)?;
            if returns && frames[depth as usize] != frame {
                pops = above(frame, &frames[..depth as usize])? + 2;
                depth -= u32::from(pops);
            } else {
                frames[depth as usize + 1] = frame | (u32::from(tail) * TAIL); // of no effect if it returns
                depth = depth + 1 - 2 * u32::from(returns);
            }
            exits += usize::from(returns);
            Some(GraphEvent { ticks: raw.ticks, site: raw.site(), tail, pops })
        });
        self.depth = depth as usize;
        (count, exits)
    }

    #[inline(always)]
    fn make_room(&mut self, entries: usize) {
        if self.frames.len() < self.depth + 1 + entries {
            self.grow(entries);
        }
    }

    #[cold]
    fn grow(&mut self, entries: usize) {
        self.frames.resize((self.depth + 1 + entries).next_power_of_two(), BOTTOM);
    }

    fn kind(&mut self, code: u32, frame: u32, parent: u64) -> EventKind {
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
        self.make_room(1);
        self.depth += 1;
        self.frames[self.depth] = frame;
    }

    /// Closes the newest open call of the frame and all above it.
    fn close(&mut self, frame: u32) -> u32 {
        let Some(at) = self.frames[..=self.depth].iter().rposition(|open| *open == frame) else { return 0 };
        let closed = self.depth + 1 - at;
        self.depth = at - 1;
        closed as u32
    }
}

/// How many of the frames lie above the newest of that value; None if it is none of them, or they are too many.
#[inline(never)]
fn above(frame: u32, frames: &[u32]) -> Option<u8> {
    frames.iter().rev().take(MANY).position(|open| *open == frame).map(|above| above as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::{ClockKind, Session, TraceWriter};

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
            if let EventKind::Exit { pops } = open.kind(code, frame, 0) {
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

    fn session() -> Session {
        Session {
            calltap: String::new(),
            command: Vec::new(),
            host: String::new(),
            kernel: String::new(),
            cpu: String::new(),
            start_realtime_ns: 0,
            start_monotonic_ns: 0,
            clock: ClockKind::Tsc,
            clock_note: None,
            tracers: Vec::new(),
        }
    }

    /// Rows of events and events one by one come to the same trace.
    type Feed<'a> = dyn Fn(&[RawEvent], &mut OpenCalls, &mut ThreadEncoder) -> (usize, usize) + 'a;

    #[test]
    fn rows_are_paired_like_single_events() {
        let mut random = 1_u64;
        let mut stack: Vec<u32> = Vec::new();
        let mut events = Vec::new();
        for ticks in 0..200_000_u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (dice, site) = (random >> 40 & 0xff, (random >> 50) as u32 % 40);
            // Now and then a return of something else, and long jumps, also beyond what a row can hold.
            let (frame, code) = match dice {
                0 => (site << 5, code::EXIT),
                1 => (site << 5, code::ENTRY_FROM),
                2..30 => (site << 5, code::TAIL_ENTRY),
                30..160 if stack.len() < 700 => (site << 5 | (stack.len() as u32) << 25, code::ENTRY),
                _ => {
                    let jump = if dice == 255 { stack.len() / 2 } else { 0 };
                    stack.truncate(stack.len() - jump);
                    (stack.pop().unwrap_or(0), code::EXIT)
                }
            };
            if code == code::ENTRY {
                stack.push(frame);
            }
            events.push(RawEvent { ticks: ticks * 50, low: frame | code, parent: 0 });
        }
        let folder = tempfile::tempdir().unwrap();
        let trace = |name: &str, feed: &Feed<'_>| {
            let path = folder.path().join(name);
            let mut writer = TraceWriter::create(&path, session()).unwrap();
            let (mut open, mut encoder) = (OpenCalls::default(), ThreadEncoder::new(Default::default()));
            let (mut at, mut exits) = (0, 0);
            while at < events.len() {
                let (count, returns) = feed(&events[at..], &mut open, &mut encoder);
                (at, exits) = (at + count, exits + returns);
            }
            writer.events(&mut encoder).unwrap();
            writer.flush().unwrap();
            (std::fs::read(path).unwrap(), exits)
        };
        let one = |events: &[RawEvent], open: &mut OpenCalls, encoder: &mut ThreadEncoder| {
            (1, usize::from(open.pair(events[0], &[], encoder)))
        };
        let many = |events: &[RawEvent], open: &mut OpenCalls, encoder: &mut ThreadEncoder| match open
            .pair_graph(events, |event| *event, encoder)
        {
            (0, _) => one(events, open, encoder),
            row => row,
        };
        assert!(trace("many", &many) == trace("one", &one));
    }
}
