//! Tests of joining polls into futures.

use super::*;

const STATE: u32 = 0;
const DROP: u32 = 1;
const OUTER: u32 = 2;
const WRITTEN: u32 = 3;
const TASK: u32 = 4;
const WOKEN: u32 = 5;
const COROUTINE: u32 = 6;

fn joiner() -> Joiner {
    let mut joiner = Joiner::default();
    for (values, key, drops) in [
        (FutureValues::State, "inner", vec![]),
        (FutureValues::Dropped, "drop", vec!["inner".to_owned()]),
        (FutureValues::State, "outer", vec![]),
        (FutureValues::Written, "written", vec![]),
        (FutureValues::Task, "task", vec![]),
        (FutureValues::Woken, "waker", vec![]),
        (FutureValues::Coroutine, "coroutine", vec![]),
    ] {
        joiner.role(&Role { values, key: key.into(), name: key.into(), drops });
    }
    joiner
}

/// Thread, role, depth, times, address, and the values captured before and after.
type Line = (u32, u32, u32, (u64, u64), u64, Option<u64>, Option<u64>);

/// Joins polls, of which the line with number `turn` arrives first, into spans in the order in
/// which they began.
fn join(lines: &[Line], turn: usize) -> Vec<Span> {
    let (mut joiner, mut spans) = (joiner().keeping_polls(), Vec::new());
    let rotated = lines.iter().cycle().skip(turn).take(lines.len());
    for (thread, role, depth, ticks, address, before, after) in rotated.copied() {
        joiner.seen(FutureEvent {
            process: 0,
            thread: ThreadId(thread),
            role,
            ticks,
            depth,
            unwound: before == Some(9),
            before: [Some(address), before.filter(|state| *state != 9).or(Some(3))],
            after,
            told: None,
            caller: None,
        });
    }
    joiner.finish(&mut |span| spans.push(span));
    spans.sort_by_key(|span| span.id);
    spans
}

/// Checks the spans joined from polls in every rotated order of arrival: name, polls, busy, idle,
/// end.
fn check(lines: &[Line], expected: &[(&str, u64, u64, u64, End)]) {
    for turn in 0..lines.len() {
        let spans = join(lines, turn);
        let found: Vec<_> = spans
            .iter()
            .map(|span| (span.name.as_str(), span.polls, span.busy, span.idle, span.how))
            .collect();
        assert_eq!(found, expected, "begun with line {turn}");
    }
}

#[test]
fn a_task_is_runnable_from_its_first_waking_on() {
    let lines = [
        (1, TASK, 0, (10, 20), 0x500, None, None),
        (1, STATE, 1, (11, 19), 0x100, Some(0), Some(3)),
        // Another task wakes it twice, the first time long before a worker polls it.
        (2, TASK, 0, (30, 60), 0x600, None, None),
        (2, OUTER, 1, (31, 59), 0x200, Some(0), Some(3)),
        (2, WOKEN, 2, (40, 41), 0x500, None, None),
        (2, WOKEN, 2, (50, 51), 0x500, None, None),
        (1, TASK, 0, (70, 80), 0x500, None, None),
        // Tokio polls it by two functions.
        (1, TASK, 1, (70, 80), 0x500, None, None),
        (1, STATE, 2, (71, 79), 0x100, Some(3), Some(4)),
        // No future wakes it while it is polled, and no waking of the next poll is recorded.
        (3, WOKEN, 0, (75, 76), 0x500, None, None),
        (1, TASK, 0, (90, 95), 0x500, None, None),
        (1, STATE, 1, (91, 94), 0x100, Some(4), Some(4)),
        (1, TASK, 0, (100, 105), 0x500, None, None),
        (1, STATE, 1, (101, 104), 0x100, Some(4), Some(1)),
    ];
    for turn in 0..lines.len() {
        let spans = join(&lines, turn);
        let inner = spans.iter().find(|span| span.name == "inner").expect("it is polled");
        let outer = spans.iter().find(|span| span.name == "outer").expect("it is polled");
        assert_eq!((inner.idle, inner.runnable, inner.unknown), (52 + 12 + 7, 31 + 12, 7), "{turn}");
        let waking = inner.waking.expect("a waking");
        assert_eq!((waking.at, waking.thread, waking.future), (40, ThreadId(2), Some((outer.id, 2))));
        let wakings: Vec<Option<(u64, bool)>> =
            inner.waits.iter().map(|wait| Some((wait.waking?.at, wait.waking?.future.is_some()))).collect();
        assert_eq!(wakings, [Some((40, true)), Some((75, false)), None], "{turn}");
    }
}

#[test]
fn polls_by_several_threads_are_one_future() {
    check(
        &[
            (1, STATE, 0, (10, 12), 0x100, Some(0), Some(3)),
            (2, STATE, 0, (20, 25), 0x100, Some(3), Some(3)),
            (1, STATE, 0, (30, 31), 0x100, Some(3), Some(1)),
        ],
        &[("inner", 3, 8, 13, End::Ready)],
    );
}

#[test]
fn another_one_at_the_same_address_is_another_one() {
    check(
        &[
            (1, STATE, 0, (10, 12), 0x100, Some(0), Some(1)),
            (1, STATE, 0, (20, 22), 0x100, Some(0), Some(3)),
            (1, STATE, 0, (30, 32), 0x100, Some(0), Some(4)),
            (1, DROP, 0, (40, 41), 0x100, None, None),
        ],
        &[("inner", 1, 2, 0, End::Ready), ("inner", 1, 2, 0, End::Dropped), ("inner", 1, 2, 8, End::Dropped)],
    );
}

#[test]
fn dropping_a_future_drops_owned_futures() {
    // A future's first field has the future's own address.
    check(
        &[
            (1, OUTER, 0, (10, 20), 0x100, Some(0), Some(3)),
            (1, STATE, 1, (11, 12), 0x100, Some(0), Some(3)),
            (1, OUTER, 0, (50, 60), 0x100, Some(3), Some(1)),
            (1, STATE, 1, (50, 51), 0x100, Some(3), Some(3)),
        ],
        &[("outer", 2, 20, 30, End::Ready), ("inner", 2, 2, 47, End::Dropped)],
    );
}

#[test]
fn panic_drops_future_during_poll() {
    check(
        &[(1, STATE, 0, (10, 30), 0x100, Some(9), None), (1, DROP, 1, (20, 21), 0x100, None, None)],
        &[("inner", 1, 10, 0, End::Panicked)],
    );
}

#[test]
fn poll_results_are_read_where_recorded() {
    check(
        &[
            (1, WRITTEN, 0, (10, 11), 0x2000, Some(7), Some(1)),
            (1, WRITTEN, 0, (20, 21), 0x2000, Some(7), Some(0xFF00)),
            (1, WRITTEN, 0, (30, 31), 0x2000, Some(7), Some(1)),
        ],
        &[("written", 2, 2, 9, End::Ready), ("written", 1, 1, 0, End::Waiting)],
    );
    // If two is the largest result, two is `Pending`.
    check(
        &[
            (1, WRITTEN, 0, (10, 11), 0x2000, Some(7), Some(2)),
            (1, WRITTEN, 0, (20, 21), 0x2000, Some(7), Some(1)),
        ],
        &[("written", 2, 2, 9, End::Ready)],
    );
    // A result is in the caller's memory: the future is the second argument.
    check(
        &[
            (1, WRITTEN, 0, (10, 11), 0x9000, Some(0x2000), Some(0x9000)),
            (1, WRITTEN, 0, (20, 21), 0x9100, Some(0x2000), Some(0x9100)),
        ],
        &[("written", 2, 2, 9, End::Unknown)],
    );
}

#[test]
fn runs_of_coroutines_are_joined_by_their_addresses() {
    // Flags: 1 it has run before, 2 it is outermost. States: 1 returned, 2 raised, 3 waits.
    check(
        &[
            (1, COROUTINE, 1, (10, 20), 64, Some(2), Some(3)),
            (1, COROUTINE, 2, (12, 18), 96, Some(0), Some(3)),
            (1, COROUTINE, 1, (30, 40), 64, Some(3), Some(1)),
            (1, COROUTINE, 2, (32, 36), 96, Some(1), Some(2)),
            // Another one at the same address; and one that ran before, and still waits.
            (1, COROUTINE, 1, (50, 54), 64, Some(2), Some(2)),
            (1, COROUTINE, 1, (60, 61), 80, Some(3), Some(3)),
        ],
        &[
            ("coroutine", 2, 20, 10, End::Ready),
            ("coroutine", 2, 10, 14, End::Raised),
            ("coroutine", 1, 4, 0, End::Raised),
            ("coroutine", 1, 1, 0, End::Waiting),
        ],
    );
}

#[test]
fn waiting_coroutine_outlives_its_first_runner() {
    let lines = [
        (1, COROUTINE, 1, (10, 20), 64, Some(2), Some(1)),
        (1, COROUTINE, 2, (12, 18), 96, Some(0), Some(3)),
    ];
    let spans = join(&lines, 0);
    let found: Vec<_> = spans.iter().map(|span| (span.how, span.task, span.parent)).collect();
    assert_eq!(found, [(End::Ready, Some(64), None), (End::Waiting, None, Some(spans[0].id))]);
}
