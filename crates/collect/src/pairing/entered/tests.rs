//! Coroutines, in calls written as texts.

use crate::pairing::tests::check;
use crate::pairing::{EventKind, OpenCalls, PairedEvent, SEARCHED, SLOT, SLOTS};
use calltap_abi::event::code;

/// A call of a coroutine that longjmp has left, and a later one of the same function at the same
/// slot, which is suspended with its coroutine.
#[test]
fn left_calls_do_not_hide_those_of_a_coroutine() {
    check(
        "m@1 r@2 b@900001 f@900009 !x@900005 l@900005 /l@900005 f@900009 /r@2 r@2 /f@900009 /b@900001",
        "-1 1 3 =b =f 1 1",
    );
}

/// Coroutines on stacks of 64 KiB that lie next to each other, and on stacks of 1 MiB.
#[test]
fn distance_separates_neighbouring_stacks() {
    check("m@1 r@2 b@900001 y@900002 /r@2 r@2 b@908193 y@908194 /r@2 r@2 b@916385 /b@916385", "3 3 1");
    // Two are known that lie further apart.
    check("m@1 r@2 b@900001 y@900002 /r@2 r@2 b@932769 y@932770 /r@2 r@2 b@908193 /b@908193", "3 3 1");
    // A frame of 40 KB.
    check(
        "m@1 r@2 b@900001 y@900002 /r@2 r@2 b@1031073 w@1031074 l@1036000 /l@1036000 /r@2 r@2 l@1036000",
        "3 1 3 =b =w",
    );
}

/// Nests more calls than are searched usually, then enters a function above them.
#[test]
fn entry_above_many_frames_of_its_stack_ends_all() {
    let mut open = OpenCalls::new(true);
    let frame = |at: u64, site: u64| ((0x7fff_0000_0000 - 8 * at) >> 3 & (SLOTS - 1)) << SLOT | site;
    open.pair_event(code::ENTRY, frame(10, 1), 0);
    let count = 5 * SEARCHED as u64;
    for n in 0..count {
        open.pair_event(code::ENTRY, frame(20 + 10 * n, 2), 0);
    }
    // A handler on another stack ends none of them.
    let handler = open.pair_event(code::ENTRY, frame(900_000_000, 3), 0);
    assert_eq!(handler.left, 0);
    assert_eq!(open.pair_event(code::EXIT, frame(900_000_000, 3), 0).kind, EventKind::Exit { pops: 1 });
    let PairedEvent { left, .. } = open.pair_event(code::ENTRY, frame(15, 4), 0);
    assert_eq!(u64::from(left), count);
    assert_eq!(open.depth, 2);
}
