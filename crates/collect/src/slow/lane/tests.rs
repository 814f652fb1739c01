//! Calls written by hand, and the events that are kept of them.

use super::*;

/// Feeds events like `f@1 g@2 .g@3 .f@9` (entries and returns with their times; `.f/2` closes two):
/// `f` is slow above 5 ticks, `g` above 3. Returns the kept events in the same form.
fn lane(room: usize, text: &str, end: Option<u64>) -> (String, SlowFilter, usize) {
    let (mut lane, mut room, mut out) = (SlowFilter::default(), room, Vec::new());
    for word in text.split_whitespace() {
        let (what, ticks) = word.split_once('@').expect("a time");
        let name = |text: &str| SiteId(u32::from(text.as_bytes()[0]));
        let (site, kind) = match what.strip_prefix('.') {
            Some(exit) => {
                let (exit, pops) = exit.split_once('/').unwrap_or((exit, "1"));
                (name(exit), EventKind::Exit { pops: pops.parse().expect("a number") })
            }
            None if what.starts_with("left") => {
                (SiteId(0), EventKind::Left { pops: what[5..].parse().expect("a number") })
            }
            None if what.starts_with("off:") => (name(&what[4..]), EventKind::SwitchedOff),
            None if what == "end" => (SiteId(0), EventKind::ThreadEnded),
            None if what == "lost" => (SiteId(0), EventKind::Lost { entries: 7, exits: 6 }),
            None => (name(what), EventKind::Entry),
        };
        let limit = match site.0 as u8 {
            b'f' => Some(5),
            b'g' => Some(3),
            b'm' => Some(1000),
            _ => None,
        };
        let event = Event { ticks: ticks.parse().expect("ticks"), site, kind };
        let with_values = EventWithValues { event, values: what.as_bytes().into() };
        lane.take(with_values, limit.filter(|_| kind == EventKind::Entry), &mut room, &mut |with_values| {
            out.push(with_values)
        });
    }
    lane.end(end, &mut room, &mut |with_values| out.push(with_values));
    let text: Vec<String> = out.iter().map(show).collect();
    (text.join(" "), lane, room)
}

fn show(event: &EventWithValues) -> String {
    let (name, ticks) = (char::from(event.site.0 as u8), event.ticks);
    match event.kind {
        EventKind::Exit { pops: 1 } => format!(".{name}@{ticks}"),
        EventKind::Exit { pops } => format!(".{name}/{pops}@{ticks}"),
        EventKind::Lost { entries, exits } => format!("lost-{entries}-{exits}@{ticks}"),
        EventKind::Left { pops } => format!("left/{pops}@{ticks}"),
        EventKind::SwitchedOff => format!("off:{name}@{ticks}"),
        EventKind::ThreadEnded => format!("end@{ticks}"),
        _ => format!("{name}@{ticks}"),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let (kept, lane, room) = lane(1000, text, None);
    assert_eq!(kept, expected, "{text}");
    assert_eq!((room, lane.held.len(), lane.marks.len()), (1000, 0, 0), "everything was let go: {text}");
    let is_call = |word: &&str| !["lost", "left", "off", "end"].iter().any(|other| word.starts_with(other));
    let of = |text: &str| text.split_whitespace().filter(is_call).count() as u64;
    assert_eq!(
        (lane.read.entries + lane.read.exits, lane.kept.entries + lane.kept.exits),
        (of(text), of(&kept))
    );
}

#[test]
fn slow_call_is_kept_with_callees_and_fast_call_is_dropped() {
    check("a@1 f@2 b@3 .b@4 .f@6 c@6 .c@7 .a@9", "");
    check("a@1 f@2 b@3 .b@4 .f@8 c@8 .c@9 .a@9", "f@2 b@3 .b@4 .f@8");
    // A call of exactly its limit is not slow.
    check("f@2 b@3 .b@4 .f@7", "");
    check("f@2 .f@3 f@4 b@6 .b@7 .f@20 f@21 .f@22", "f@4 b@6 .b@7 .f@20");
}

#[test]
fn slow_calls_in_fast_ones_and_in_slow_ones() {
    check("f@1 b@1 g@1 b@2 .b@3 .g@5 .b@5 .f@6", "g@1 b@2 .b@3 .g@5");
    check("f@1 g@1 b@2 .b@3 .g@5 c@6 .c@6 .f@9", "f@1 g@1 b@2 .b@3 .g@5 c@6 .c@6 .f@9");
    check("m@1 g@1 .g@5 b@6 .b@6 g@7 .g@8 g@8 g@9 .g@20 .g@21 .m@30", "g@1 .g@5 g@8 g@9 .g@20 .g@21");
}

#[test]
fn call_inside_one_that_turned_slow_leaves_no_part_behind() {
    check(
        "f@1 g@2 b@9 .b@10 .g@10 .f@11 f@20 b@20 .b@21 b@21 .b@21 .f@22 f@30 .f@31",
        "f@1 g@2 b@9 .b@10 .g@10 .f@11",
    );
}

#[test]
fn recursion() {
    check("f@1 f@2 f@3 .f@4 .f@5 .f@6", "");
    check("f@1 f@2 f@3 .f@4 .f@5 .f@7", "f@1 f@2 f@3 .f@4 .f@5 .f@7");
    check("g@1 g@2 b@2 .b@3 .g@3 .g@5", "g@1 g@2 b@2 .b@3 .g@3 .g@5");
}

#[test]
fn unwound_call_is_slow_only_if_observed_long_enough() {
    // The end of the call is not known: neither the return of a caller tells it, nor an entry that
    // proves the frame dead.
    check("a@1 f@2 b@3 .a/3@9", "");
    check("a@1 f@2 b@3 left/2@900 c@900 .c@901 .a@902", "");
    check("m@1 a@1 g@2 b@3 .a/3@9 .m@10", "");
    // The call took longer than its limit before it was left.
    check("a@1 f@2 b@3 .b@9 .a/2@10", "f@2 b@3 .b@9 left/1@10");
    check("a@1 f@2 b@3 b@9 left/3@10 .a@11", "f@2 b@3 b@9 left/3@10");
    check("f@1 g@2 b@9 left/2@10 c@10 .c@11 .f@12", "f@1 g@2 b@9 left/2@10 c@10 .c@11 .f@12");
    // A slow call inside is kept all the same.
    check("m@1 a@2 g@3 b@4 .b@5 .g@8 .m/2@20", "g@3 b@4 .b@5 .g@8");
}

#[test]
fn call_open_at_thread_end_is_slow_only_if_observed_long_enough() {
    check("a@1 f@2 b@3 end@3", "");
    check("a@1 f@2 b@3 b@9 end@9", "f@2 b@3 b@9 end@9");
}

#[test]
fn call_of_disabled_function_is_slow_only_if_returned() {
    check("a@1 f@2 off:f@4 b@30 .b@31 .a/2@40", "");
    check("a@1 f@2 off:f@4 b@30 .b@31 .f@32 .a@40", "f@2 off:f@4 b@30 .b@31 .f@32");
}

#[test]
fn losses_keep_their_positions() {
    check("a@1 lost@2 f@2 b@3 lost@3 .b@4 .f@6 .a@9", "lost-7-6@2 lost-7-6@3");
    check("f@2 lost@3 .f@9", "f@2 lost-7-6@3 .f@9");
    check("f@2 g@2 lost@3 .g@6 .f@7", "g@2 lost-7-6@3 .g@6");
}

#[test]
fn a_call_that_is_open_at_the_end_was_open_until_then() {
    assert_eq!(lane(1000, "f@2 b@3 .b@4", Some(9)).0, "f@2 b@3 .b@4");
    assert_eq!(lane(1000, "f@2 b@3 .b@4", Some(6)).0, "");
    assert_eq!(lane(1000, "f@2 b@3 .b@4", None).0, "", "as far as is known");
    assert_eq!(lane(1000, "m@1 a@2 g@3 b@4", Some(9)).0, "g@3 b@4");
}

#[test]
fn a_call_that_is_slow_already_holds_nothing_back() {
    let long: String = (3..5000).map(|n| format!("b@{n} .b@{n} ")).collect();
    let (kept, lane, room) = lane(10, &format!("f@1 {long} .f@5000"), None);
    assert_eq!((lane.too_large, room), (0, 10));
    assert_eq!(kept.split_whitespace().count(), 2 * (5000 - 3) + 2);
}

#[test]
fn overflow_is_lost_in_slow_calls_and_dropped_in_fast_calls() {
    let (kept, lane, room) = lane(4, "f@1 b@1 .b@1 b@1 .b@1 b@1 .b@2 .f@9 f@10 .f@20", None);
    assert_eq!((kept.as_str(), lane.too_large, room), ("lost-4-4@9 f@10 .f@20", 1, 4));
    let loss = lane.loss(&Loss::default());
    assert_eq!((loss.entries, loss.lost_entries, loss.dropped_entries), (1, 4, 0));
    assert_eq!((loss.exits, loss.lost_exits, loss.dropped_exits), (1, 4, 0));
    let (kept, lane, _) = lane_of_fast();
    assert_eq!((kept.as_str(), lane.too_large), ("", 0));
    let loss = lane.loss(&Loss::default());
    assert_eq!((loss.lost_entries, loss.dropped_entries, loss.dropped_exits), (0, 4, 4));
    // A slow call inside is kept all the same.
    let (kept, lane, room) = lane_of_nested();
    assert_eq!((kept.as_str(), lane.too_large, room), ("g@5 b@6 .b@7 .g@9", 0, 4));
}

fn lane_of_fast() -> (String, SlowFilter, usize) {
    lane(4, "f@1 b@1 .b@1 b@1 .b@1 b@1 .b@2 .f@3", None)
}

fn lane_of_nested() -> (String, SlowFilter, usize) {
    lane(4, "m@1 b@1 .b@1 b@2 .b@2 b@3 .b@3 g@5 b@6 .b@7 .g@9 .m@10", None)
}
