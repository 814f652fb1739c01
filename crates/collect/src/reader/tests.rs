//! Calls that are open while their functions are disabled, written as text; and losses in front of
//! events that were written by hand.

use super::history::{ChunkOfThread, ForkPoint};
use super::*;
use crate::output::Consumer;
use crate::raw::{RawEvent, Sink};
use calltap_abi::event::{code, epoch_word, event_word, stack_word};
use calltap_trace::{Batch, Calls, ClockPair, Ending, Error, Record, Unpacker};
use std::collections::HashSet;
use std::sync::OnceLock;

/// Checks how calls end. `f@N` enters f with its slot N words below the top of the stack, `/f@N`
/// returns; each event takes a microsecond. `off:fg` begins to disable functions whose returns are
/// seen all the same, `mute:fg` functions whose exits are rewritten; `done` ends that. At `read` an
/// interval ends. `expected` lists the calls as they end.
fn check(events: &str, expected: &str) {
    let (mut open, mut encoder) = (OpenCalls::new(true), ThreadEncoder::new(ThreadId::default()));
    let (mut switching, mut newest) = (Switching::default(), None);
    for (ticks, word) in (1_u64..).zip(events.split_whitespace()).map(|(n, word)| (n * 1000, word)) {
        let named = |names: &str| names.bytes().map(|name| SiteId(name.into())).collect::<HashSet<_>>();
        let unrecorded = word.strip_prefix("mute:");
        if let Some(names) = word.strip_prefix("off:").or(unrecorded) {
            let (sites, unrecorded_returns) = (named(names), unrecorded.map(named).unwrap_or_default());
            let off = SwitchedOff {
                sites,
                unrecorded_returns,
                began: OnceLock::from(ticks),
                ended: OnceLock::new(),
            };
            switching.announce(newest.insert(Arc::new(off)), 1);
        } else if word == "read" {
            let mut pairs = PairedOutput { open: &mut open, encoder: &mut encoder, unwinding: None };
            switching.release(false, &mut pairs);
        } else if let ("done", Some(off)) = (word, &newest) {
            off.ended.set(ticks).expect("it ends once");
        } else {
            let call = word.trim_start_matches('/');
            let (name, at) = call.split_once('@').expect("f@N");
            let code = if call == word { code::ENTRY } else { code::EXIT };
            let slot = 0xfff_0000_0000 - at.parse::<u64>().expect("a number");
            let low = u32::from(name.as_bytes()[0]) << 5 | code;
            let raw = RawEvent { ticks, low, slot, parent: 0 };
            let pairs = PairedOutput { open: &mut open, encoder: &mut encoder, unwinding: None };
            Encode::new(pairs, None, &mut switching).take(raw, &[], &[]);
        }
    }
    let mut pairs = PairedOutput { open: &mut open, encoder: &mut encoder, unwinding: None };
    switching.end_before(u64::MAX, &mut pairs);
    assert_eq!(endings(&mut encoder), expected, "{events}");
}

/// Returns how the calls in the encoder ended.
fn endings(encoder: &mut ThreadEncoder) -> String {
    let (mut calls, mut got) = (Calls::default(), Vec::new());
    let mut end = |calls: &mut Calls<()>, closing| {
        while let Some((call, ending)) = calls.close(&closing) {
            got.push(format!("{}:{}", call.site.0 as u8 as char, ending.name()));
        }
    };
    Unpacker::default().events(encoder, |batch: &Batch| {
        for event in &batch.events {
            match event.kind {
                EventKind::Entry => calls.enter(event.site, false, ()),
                _ => calls.end(event).into_iter().for_each(|closing| end(&mut calls, closing)),
            }
        }
    });
    let closing = calls.finish(Ending::Running);
    end(&mut calls, closing);
    got.join(" ")
}

#[test]
fn open_call_with_disabled_return_is_not_unwound() {
    check("m@1 f@2 off:f done n@2 /n@2 /m@1", "f:switched_off n:returned m:returned");
    // The event that shows the end of the call comes before all functions are disabled.
    check("m@1 f@2 off:f n@2 /n@2 done /m@1", "f:switched_off n:returned m:returned");
    check("m@1 f@2 g@3 off:fg /m@1 done", "g:switched_off f:switched_off m:returned");
}

#[test]
fn so_is_one_that_begins_before_its_function_is_off() {
    check("m@1 off:f f@2 n@2 /n@2 done /m@1", "f:switched_off n:returned m:returned");
    check("m@1 off:fg f@2 g@3 /m@1 m@1 done /m@1", "g:switched_off f:switched_off m:returned m:returned");
}

#[test]
fn one_that_returns_meanwhile_has_returned() {
    check("m@1 f@2 off:f g@3 n@3 /n@3 /f@2 done /m@1", "g:left n:returned f:returned m:returned");
}

#[test]
fn one_that_was_left_before_or_of_another_function_was_left() {
    check("m@1 f@2 n@2 off:f /n@2 done /m@1", "f:left n:returned m:returned");
    check("m@1 f@2 off:g n@2 done /n@2 /m@1", "f:left n:returned m:returned");
    check("m@1 off:f done g@2 n@2 /n@2 /m@1", "g:left n:returned m:returned");
}

#[test]
fn nothing_is_shown_inside_a_call_that_may_have_returned_unseen() {
    // The next entry is not of a callee of f, as far as is known.
    check("m@1 mute:f f@2 g@3 /g@3 done /m@1", "f:switched_off g:returned m:returned");
    check("m@1 f@2 mute:f done g@3 /g@3 /m@1", "f:switched_off g:returned m:returned");
    check("m@1 f@2 mute:fg g@3 h@4 /h@4 done /m@1", "f:switched_off g:switched_off h:returned m:returned");
    check("f@2 mute:f done g@3 /g@3", "f:switched_off g:returned");
    // Entered again at the same slot: the call had returned.
    check("m@1 f@2 mute:f g@3 /g@3 f@2 /f@2 done /m@1", "f:switched_off g:returned f:returned m:returned");
}

#[test]
fn call_is_open_while_its_callees_are() {
    check(
        "m@1 f@2 g@3 mute:f h@4 /h@4 done i@4 /i@4 /g@3 k@3 /k@3 /m@1",
        "h:returned i:returned g:returned f:switched_off k:returned m:returned",
    );
}

#[test]
fn call_is_open_until_its_observed_return() {
    check("m@1 f@2 mute:f g@3 /g@3 /f@2 n@2 /n@2 done /m@1", "g:returned f:returned n:returned m:returned");
    // The exits of f are restored after the end of an interval.
    check("m@1 f@2 mute:f g@3 /g@3 read /f@2 done /m@1", "g:returned f:returned m:returned");
    // A thread that was in the out-of-line copy of an exit all the time.
    check("m@1 f@2 mute:f done /f@2 /m@1", "f:returned m:returned");
}

/// A consumer that keeps losses as `entries/exits@ticks`, and other events as `@ticks`.
#[derive(Default)]
struct Words(Vec<String>);

impl Consumer for Words {
    fn record(&mut self, _: &Record) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        Unpacker::default().events(encoder, |batch: &Batch| {
            self.0.extend(batch.events.iter().map(|event| match event.kind {
                EventKind::Lost { entries, exits } => format!("{entries}/{exits}@{}", event.ticks),
                _ => format!("@{}", event.ticks),
            }));
        });
        Ok(())
    }

    fn flush(&mut self, _: ClockPair) -> Result<(), Error> {
        Ok(())
    }
}

/// A thread that has lost calls and returns.
struct Lossy {
    shared: Shared,
    reader: Reader,
    words: Words,
}

impl Lossy {
    fn new(lost: (u64, u64), overwrite: bool) -> Lossy {
        let shared = Shared::map(&tempfile::tempfile().expect("a file"), 8, 8).expect("its mapping");
        shared.control().overwrite.store(overwrite.into(), Relaxed);
        let entry = shared.thread(0).expect("an entry");
        entry.lost_entries.store(lost.0, Relaxed);
        entry.lost_exits.store(lost.1, Relaxed);
        Lossy { shared, reader: Reader::new(ThreadId(0), 0, 0, 7, false, None), words: Words::default() }
    }

    /// Gives the thread its first chunk, with `lost` events lost before, and an entry and a return
    /// in it.
    fn link(&mut self, lost: (u64, u64), ticks: u64) {
        let words = self.shared.chunk(0).expect("a chunk");
        let event = |ticks, code| event_word(ticks, 0, 3 << 5 | code);
        let all = [epoch_word(ticks), event(ticks, code::ENTRY), event(ticks + 5, code::EXIT)];
        words[CHUNK_DATA / 8..].iter().zip(all).for_each(|(place, word)| place.store(word, Relaxed));
        let header = self.shared.chunk_header(0).expect("a header");
        header.lost_entries.store(lost.0, Relaxed);
        header.lost_exits.store(lost.1, Relaxed);
        self.shared.thread(0).expect("an entry").first_chunk.store(1, Release);
    }

    /// Reads and hands over all events, at `now`; `over`: the thread has ended.
    fn read(&mut self, now: u64, over: bool) -> String {
        let (mut output, mut unwinding) = (Output::new(&mut self.words), Unwinding::default());
        let extent = if over { Extent::Rest } else { Extent::Partial };
        self.reader.read(&self.shared, extent, u32::MAX, &mut output, &mut unwinding);
        if over {
            self.reader.end(&self.shared, (false, now), &mut output, &mut unwinding);
        } else {
            self.reader.flush(&self.shared, now, &mut output, &mut unwinding);
        }
        std::mem::take(&mut self.words.0).join(" ")
    }
}

#[test]
fn initial_loss_precedes_first_event() {
    let mut lossy = Lossy::new((9, 4), false);
    lossy.link((5, 2), 700);
    assert_eq!(lossy.read(900, false), "5/2@700 @700 @705");
    assert_eq!(lossy.read(950, true), "4/2@705");
}

#[test]
fn a_thread_without_a_chunk_has_lost_all_until_now() {
    let mut lossy = Lossy::new((9, 4), false);
    assert_eq!(lossy.read(600, false), "9/4@600");
    assert_eq!(lossy.read(650, false), "");
    lossy.link((11, 4), 700);
    assert_eq!(lossy.read(900, true), "2/0@700 @700 @705");
    assert_eq!(Lossy::new((9, 4), false).read(600, true), "9/4@600");
}

#[test]
fn overwritten_events_precede_all_readable_events() {
    let mut lossy = Lossy::new((9, 4), true);
    lossy.link((0, 0), 700);
    assert_eq!(lossy.read(950, true), "9/4@700 @700 @705");
}

/// Checks which calls are open in a child that was forked behind the event number `behind`,
/// outermost first. `f@N` enters, `/f@N` returns.
fn check_fork(events: &str, behind: usize, expected: Option<&str>) {
    const TOP: u64 = 0x7fff_0000_0000;
    let shared = Shared::map(&tempfile::tempfile().expect("a file"), 8, 8).expect("its mapping");
    let words: Vec<u64> = (1_u64..)
        .zip(events.split_whitespace())
        .flat_map(|(n, word)| {
            let call = word.trim_start_matches('/');
            let (name, at) = call.split_once('@').expect("f@N");
            let code = if call == word { code::ENTRY } else { code::EXIT };
            let slot = TOP - 8 * at.parse::<u64>().expect("a number");
            let low = (slot as u32) << 22 ^ (u32::from(name.as_bytes()[0]) << 5 | code);
            [stack_word(slot, low), epoch_word(1000 * n), event_word(1000 * n, slot, low)]
        })
        .collect();
    let chunk = shared.chunk(0).expect("a chunk");
    chunk[CHUNK_DATA / 8..].iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    shared.chunk_header(0).expect("a header").number.store(7, Relaxed);
    shared.thread(0).expect("an entry").first_chunk.store(1, Release);
    let mut reader = Reader::new(ThreadId(0), 0, 0, 7, false, None).keeping_history(true);
    let mut consumer = Words::default();
    let (mut output, mut unwinding) = (Output::new(&mut consumer), Unwinding::default());
    for number in [7, 8] {
        let offset = CHUNK_DATA + 8 * (3 * behind - 1);
        let fork = ForkPoint { thread: 0, chunk: ChunkOfThread { index: 0, number }, offset };
        // The first call reads up to the fork and beyond; the second finds it read.
        for _ in 0..2 {
            let open = reader.open_at(fork, &shared, &mut output, &mut unwinding);
            let names =
                |open: OpenCalls| open.sites().iter().map(|site| site.0 as u8 as char).collect::<String>();
            let expected = expected.filter(|_| number == 7).map(str::to_owned);
            assert_eq!(open.map(names), expected, "{events}: {behind}, chunk {number}");
        }
    }
}

#[test]
fn open_calls_at_fork_are_known_at_any_read_position() {
    for (behind, expected) in
        [(1, "m"), (2, "mf"), (3, "mfg"), (4, "mf"), (5, "m"), (6, "mh"), (7, "m"), (8, "")]
    {
        check_fork("m@1 f@2 g@3 /g@3 /f@2 h@2 /h@2 /m@1", behind, Some(expected));
    }
    // Calls that the thread has left are not open once an event shows it.
    check_fork("m@1 f@2 g@3 f@2 /m@1", 3, Some("mfg"));
    check_fork("m@1 f@2 g@3 f@2 /m@1", 4, Some("mf"));
    check_fork("m@1 f@2 /f@2", 9, None);
    // Where the calls of the thread lie on two stacks, not all of them are known.
    check_fork("m@1 c@900000 d@900001 m@2 e@900002", 4, None);
}
