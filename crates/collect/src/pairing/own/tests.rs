//! Calls on the thread's own stack and on those of coroutines, written as texts.

use super::super::*;

/// Address above the thread's own stack.
const TOP: u64 = 0x7fff_0000_0000;

/// Checks the calls of a thread whose own stack is known: of each entry its depth and, behind it,
/// the functions that are open again before it. `f@N` enters f with its slot 8 * N bytes below the
/// top of the own stack, `~f@N` by a jump, `/f@N` returns. At `|` the length of the own stack
/// becomes known, else it is from the start.
fn check_depths(calls: &str, expected: &str) {
    let mut open = OpenCalls::new(true);
    open.set_own_stack(TOP, 16 << 10);
    if !calls.contains('|') {
        open.set_own_length(Some(64 << 10));
    }
    let mut got = Vec::new();
    for word in calls.split_whitespace() {
        if word == "|" {
            assert!(open.asks_own_length(), "{calls}");
            open.set_own_length(Some(64 << 10));
            continue;
        }
        let call = word.trim_start_matches(['/', '~']);
        let (name, at) = call.split_once('@').expect("f@N");
        let slot = TOP.wrapping_add_signed(-8 * at.parse::<i64>().expect("a number")) >> 3;
        let frame = (slot & (SLOTS - 1)) << SLOT | u64::from(name.as_bytes()[0]);
        let code = match word.as_bytes()[0] {
            b'/' => code::EXIT,
            b'~' => code::TAIL_ENTRY,
            _ => code::ENTRY,
        };
        let PairedEvent { resumed, .. } = open.pair_event(code, frame, 0);
        let resumed: String = resumed.iter().map(|site| site.0 as u8 as char).collect();
        if code != code::EXIT {
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

#[test]
fn coroutines_beside_a_small_own_stack_keep_their_calls() {
    check_depths(
        "t@10 o@20 r@30 l@40 /l@40 b@8600 w@8610 y@8620 l@8630 /l@8630 l@40 /l@40 /r@30 l@30 /l@30 r@30 l@40 /l@40 \
         l@8630 /l@8630 /y@8620 l@8620 /l@8620",
        "t1 o2 r3 l4 b4 w5 y6 l7 l4 l3 r3 l4 l7bwy l6",
    );
}

#[test]
fn tail_calls_of_resumed_coroutines_end_with_their_frames() {
    let begins = "t@10 o@20 r@30 b@8600 w@8610 y@8620 l@40 /l@40 /r@30 ";
    let resumes =
        "r@30 l@40 /l@40 ~l@8620 /y@8620 l@8620 /l@8620 w@8610 y@8620 l@8630 /l@8630 l@40 /l@40 /r@30 ";
    let shown = "t1 o2 r3 b4 w5 y6 l4";
    let resumed = "r3 l4 l7bwy l6 w5 y6 l7 l4";
    check_depths(&[begins, resumes, resumes].concat(), &[shown, resumed, resumed].join(" "));
    // Before the length is known, the first call beside the own stack counts as made there.
    let first = "r3 l4 l4 l6 w5 y6 l7 l4";
    check_depths(&[begins, "| ", resumes, resumes].concat(), &[shown, first, resumed].join(" "));
}

/// Frames that lie far below each other on the own stack do not begin another one.
#[test]
fn large_frames_that_longjmp_has_left_have_ended() {
    let mut open = OpenCalls::new(true);
    open.set_own_stack(TOP, 0);
    check_large_frames(&mut open, TOP >> 3);
    check_large_frames(&mut OpenCalls::on_one_stack(), 0);
}

fn check_large_frames(open: &mut OpenCalls, top: u64) {
    const FAR: u64 = 2 * NEAR;
    let mut depths = Vec::new();
    let words: [(u32, u8, u64); 8] = [
        (code::ENTRY, b'm', 2),
        (code::ENTRY, b'r', 9),
        (code::ENTRY, b'f', FAR),
        (code::NONLOCAL, b'm', 9),
        (code::ENTRY, b'w', 9),
        (code::ENTRY, b'c', FAR + 16),
        (code::EXIT, b'c', FAR + 16),
        (code::EXIT, b'w', 9),
    ];
    for (code, name, at) in words {
        let slot = top.wrapping_sub(at) & (SLOTS - 1);
        open.follow(RawEvent { ticks: 0, low: u32::from(name) << 5 | code, slot, parent: 0 });
        depths.push(open.depth);
    }
    assert_eq!(depths, [1, 2, 3, 3, 2, 3, 2, 1]);
    assert!(open.suspended.is_one_stack());
}
