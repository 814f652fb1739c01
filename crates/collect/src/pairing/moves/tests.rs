//! Stacks that move from one thread to another, in calls written as texts.

use super::super::*;

/// Parses an event as `check` writes it, of code ENTRY or EXIT.
fn raw(word: &str) -> RawEvent {
    let call = word.trim_start_matches('/');
    let (name, at) = call.split_once('@').expect("f@N");
    let slot = (0x7fff_0000_0000 - 8 * at.parse::<u64>().expect("a number")) >> 3;
    let code = if call == word { code::ENTRY } else { code::EXIT };
    RawEvent { ticks: 0, low: u32::from(name.as_bytes()[0]) << 5 | code, slot, parent: 0 }
}

/// Checks which frames `event` of the thread `other` takes from the thread `one`, and how many open
/// calls `one` leaves by that. The two threads have recorded the events in `one` and `other`
/// before.
fn check_move(one: &str, other: &str, event: &str, taken: &str, left: u32) {
    let after = |events: &str| {
        let mut open = OpenCalls::new(true);
        events.split_whitespace().for_each(|word| open.follow(raw(word)));
        open
    };
    let (mut one, mut other, event) = (after(one), after(other), raw(event));
    let own = other.distance_above(event).unwrap_or(u64::MAX);
    let is_elsewhere = other.seeks_stack(event) && one.distance_above(event).is_some_and(|above| above < own);
    let (frames, count) = if is_elsewhere { one.give_stack(event, true) } else { (Vec::new(), 0) };
    let names: String = frames.iter().map(|frame| site_of(*frame).0 as u8 as char).collect();
    assert_eq!((&*names, count), (taken, left), "{event:?}");
    other.take_stack(&frames);
    let shown = other.pair_event(event.code(), frame_of(event), 0);
    let resumed: String = shown.resumed.iter().map(|site| site.0 as u8 as char).collect();
    assert_eq!(resumed, taken, "all that is taken is open again");
    assert!(one.distance_above(event).is_none() || taken.is_empty(), "one thread alone has them");
}

#[test]
fn frames_go_with_their_stack_to_another_thread() {
    // In the first case the first thread has recorded that it has left the coroutine's stack, in
    // the second it has not.
    check_move("w@1 r@2 b@900001 y@900002 /r@2", "w@500001 r@500002", "l@900003", "by", 0);
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "l@900003", "by", 2);
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "/y@900002", "by", 2);
    // A call on the thread's own stack, or on a new one, takes no frames from the other thread.
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "l@500003", "", 0);
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "b@1900001", "", 0);
    // Frames below the event have ended.
    check_move("w@1 r@2 b@900001 /b@900001", "w@500001 r@500002", "l@900003", "", 0);
}

#[test]
fn frames_stay_with_a_thread_that_has_later_events_on_their_stack() {
    let mut open = OpenCalls::new(true);
    "w@1 r@2 b@900001 y@900002".split_whitespace().for_each(|word| open.follow(raw(word)));
    assert_eq!(open.give_stack(raw("l@900003"), false), (Vec::new(), 0));
    assert_eq!(open.give_stack(raw("l@900003"), true).1, 2);
}

#[test]
fn a_call_far_below_the_frames_of_another_thread_is_on_a_stack_of_its_own() {
    // 64 KiB lie between the two: stacks of this size are next to each other.
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "l@908194", "", 0);
    check_move("w@1 r@2 b@900001 y@900002", "w@500001 r@500002", "l@902000", "by", 2);
}

/// Checks whether `event` shows that a thread is on the stack of its newest frame after `events`.
fn check_stays(events: &str, event: &str, expected: bool) {
    let mut open = OpenCalls::new(true);
    events.split_whitespace().for_each(|word| open.follow(raw(word)));
    assert_eq!(open.stays(raw(event)), expected, "{events} {event}");
}

#[test]
fn thread_with_next_event_on_a_stack_is_still_there() {
    check_stays("w@1 r@2 b@900001 y@900002", "/y@900002", true);
    check_stays("w@1 r@2 b@900001 y@900002", "/b@900001", true);
    check_stays("w@1 r@2 b@900001 y@900002", "l@900003", true);
    check_stays("w@1 r@2 b@900001 y@900002", "/r@2", false);
    check_stays("w@1 r@2 b@900001 y@900002", "l@3", false);
    check_stays("w@1 r@2 b@900001 y@900002", "b@1900001", false);
    check_stays("", "l@3", false);
}

/// Checks whether `event` shows a thread on a far stack, after `events` and with these `unrecorded`
/// functions.
fn check_far(events: &str, unrecorded: &str, nonlocal: &str, event: &str, expected: bool) {
    let mut open = OpenCalls::new(true);
    events.split_whitespace().for_each(|word| open.follow(raw(word)));
    open.mark_unrecorded(&unrecorded.bytes().map(|name| SiteId(name.into())).collect());
    for target in nonlocal.split_whitespace() {
        let RawEvent { low, slot, .. } = raw(target);
        let exit = RawEvent { ticks: 0, low: low - code::ENTRY + code::NONLOCAL, slot, parent: 0 };
        open.pass_nonlocal_exit(exit);
    }
    assert_eq!(open.is_far(raw(event)), expected, "{events} {event}");
}

#[test]
fn a_thread_is_on_the_stack_of_its_muted_frames_and_where_a_nonlocal_exit_leads() {
    check_far("w@1 r@2", "", "", "l@900003", true);
    check_far("w@1 r@2", "", "", "l@3", false);
    check_far("w@5 r@6", "wr", "", "l@7", false);
    check_far("w@5 r@6", "wr", "", "l@3", false);
    check_far("w@5 r@6", "wr", "", "l@900003", true);
    check_far("w@1 h@900001 l@900002", "", "x@4", "l@5", false);
    check_far("h@900001 l@900002", "", "x@4", "l@1800005", true);
}
