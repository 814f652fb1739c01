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
    let (frames, count) = if is_elsewhere { one.give_stack(event) } else { (Vec::new(), 0) };
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
