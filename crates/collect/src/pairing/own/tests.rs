//! Calls on the thread's own stack and on those of coroutines, written as texts.

use super::super::*;

/// Address above the thread's own stack, which is 800,000 bytes long.
const TOP: u64 = 0x7fff_0000_0000;

/// Checks the calls of a thread whose own stack is known: of each entry its depth and, behind it,
/// the functions that are open again before it. `f@N` enters f with its slot 8 * N bytes below the
/// top of the own stack, `/f@N` returns.
fn check_depths(calls: &str, expected: &str) {
    let mut open = OpenCalls::new(true);
    open.set_own_stack(TOP, 16 << 10);
    open.set_own_length(Some(800_000));
    let mut got = Vec::new();
    for word in calls.split_whitespace() {
        let call = word.trim_start_matches('/');
        let (name, at) = call.split_once('@').expect("f@N");
        let slot = TOP.wrapping_add_signed(-8 * at.parse::<i64>().expect("a number")) >> 3;
        let frame = (slot & (SLOTS - 1)) << SLOT | u64::from(name.as_bytes()[0]);
        let code = if call == word { code::ENTRY } else { code::EXIT };
        let PairedEvent { resumed, .. } = open.pair_event(code, frame, 0);
        let resumed: String = resumed.iter().map(|site| site.0 as u8 as char).collect();
        if code == code::ENTRY {
            got.push(format!("{name}{}{resumed}", open.depth));
        }
    }
    assert_eq!(got.join(" "), expected, "{calls}");
}

#[test]
fn calls_on_the_own_stack_are_not_made_by_coroutines() {
    // The event loop itself had begun when recording began.
    check_depths("p@9 /p@9 c@900001 w@900002 p@9 /p@9 p@9", "p1 c1 w2 p1 p1");
    check_depths("c@900001 w@900002 p@9 /p@9 l@900003", "c1 w2 p1 l3cw");
    // A coroutine's stack that lies directly above the own one.
    check_depths("p@9 /p@9 c@-20000 w@-19990 p@9", "p1 c1 w2 p1");
}

#[test]
fn resumed_coroutines_are_called_by_the_resuming_ones() {
    check_depths("c@900001 n@900002 g@1900001 y@1900002 l@900003", "c1 n2 g3 y4 l3");
    check_depths("c@900001 y@900002 p@9 /p@9 l@900003 /l@900003 g@1900001", "c1 y2 p1 l3cy g3");
}

#[test]
fn signal_handlers_on_other_stacks_keep_their_callers() {
    check_depths("f@1 g@2 h@900001 /h@900001 k@3", "f1 g2 h3 k3");
    check_depths("c@900001 f@900002 h@1900001 /h@1900001 l@900003", "c1 f2 h3 l3");
}

/// Checks that calls at `loop_at`, to which a handler at `handler_at` jumps, are not beneath it.
fn check_nonlocal(is_known: bool, handler_at: u64, loop_at: u64) {
    let mut open = OpenCalls::new(true);
    if is_known {
        open.set_own_stack(TOP, 16 << 10);
        open.set_own_length(Some(800_000));
    }
    let slot = |at: u64| ((TOP - 8 * at) >> 3) & (SLOTS - 1);
    let event = |code: u32, at: u64| RawEvent { ticks: 0, low: 7 << 5 | code, slot: slot(at), parent: 0 };
    for round in 0..3 {
        open.follow(event(code::ENTRY, handler_at));
        open.follow(event(code::NONLOCAL, loop_at));
        open.follow(event(code::ENTRY, loop_at + 1));
        assert_eq!(open.depth, 1, "{is_known} {handler_at} {loop_at}: {round}");
        open.follow(event(code::EXIT, loop_at + 1));
    }
}

#[test]
fn nonlocal_exits_leave_the_stack_of_longjmp() {
    check_nonlocal(true, 900_001, 9);
    check_nonlocal(false, 900_001, 9);
    // The loop runs on a coroutine's stack.
    check_nonlocal(true, 900_001, 1_900_001);
    check_nonlocal(false, 9, 1_900_001);
}

#[test]
fn own_stack_asks_for_its_length_beside_other_stacks() {
    let slot = |at: u64| (TOP - 8 * at) >> 3;
    let entry = |at: u64| RawEvent { ticks: 0, low: 7 << 5 | code::ENTRY, slot: slot(at), parent: 0 };
    let mut open = OpenCalls::new(true);
    open.set_own_stack(TOP, 16 << 10);
    open.follow(entry(9));
    open.follow(entry(900_001));
    assert!(!open.asks_own_length());
    open.follow(entry(10));
    open.follow(entry(8));
    let mut deep = OpenCalls::new(true);
    deep.set_own_stack(TOP, 16 << 10);
    deep.follow(entry(900_001));
    deep.follow(entry(10));
    assert!(deep.asks_own_length());
    deep.set_own_length(None);
    assert!(!deep.asks_own_length());
}
