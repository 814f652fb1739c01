//! Nonlocal exits in calls written as texts, and in random programs.

use super::super::tests::{check, pass};
use super::super::*;
use proptest::prelude::*;

#[test]
fn a_nonlocal_exit_ends_the_frames_below_the_one_where_the_thread_continues() {
    check("m@1 f@2 g@3 h@4 !@3 h@9 /h@9 /f@2 /m@1", "-2 1 1 1");
    check("m@1 f@2 !@2 h@9 /h@9 /m@1", "-1 1 1");
    check("m@1 f@2 !@3 g@3 /g@3 /f@2", "1 1");
    check("m@1 f@2 ~g@2 !@2 h@9 /h@9 /m@1", "-2 1 1");
    // The function where the thread continues is not recorded.
    check("f@3 g@4 !@2 h@9 /h@9", "-2 1");
    // No function is entered before the catching one returns.
    check("m@1 f@2 g@3 !@2 /m@1 h@9 /h@9", "3 1");
}

#[test]
fn frames_of_the_unwinder_return_before_the_thread_continues() {
    check("m@1 f@2 u@3 p@9 !@2 /p@9 h@5 /h@5 /m@1", "1 -2 1 1");
    // A landing pad that cleans up throws and catches another exception.
    check("m@1 f@2 u@3 p@9 !@2 /p@9 !@30 h@40 /h@40 /m@1", "1 -2 1 1");
    check("m@1 f@8 u@9 p@12 !@8 /p@12 !@2 h@40 /h@40 /m@1", "1 -2 1 1");
}

#[test]
fn a_nonlocal_exit_to_another_stack_leaves_the_frames_there_and_here_open() {
    check("m@1 f@2 g@100000 !@100001 h@100002 /h@100002 /g@100000 /f@2", "1 1 1");
    check("m@1 f@2 g@100000 !@3 h@3 /h@3 /f@2 /m@1", "-1 1 1 1");
}

/// A coroutine throws, catches and yields, or returns; so does a handler on another stack. The
/// frames of the stack to which the thread returns stay open.
#[test]
fn a_nonlocal_exit_on_another_stack_leaves_the_frames_of_this_one_open() {
    // The catching function is recorded and returns.
    check("m@1 f@2 r@3 c@100001 t@100002 !@100002 /c@100001 /r@3 a@3 /a@3 /f@2 /m@1", "2 1 1 1 1");
    // The catching function is not recorded.
    check("m@1 f@2 r@3 t@100002 !@100002 /r@3 a@3 /a@3 /f@2 /m@1", "2 1 1 1");
    // The catching function is recorded, and goes on after the coroutine has yielded.
    check(
        "m@1 f@2 r@3 c@100001 t@100002 !@100002 /r@3 a@3 /a@3 r@3 t@100002 /t@100002 /c@100001",
        "3 1 =c 1 1",
    );
    // No function of the coroutine is recorded.
    check("m@1 f@2 r@3 !@100002 /r@3 a@3 /a@3 /f@2 /m@1", "1 1 1 1");
    check("m@1 f@2 !@100002 a@3 /a@3 /f@2 /m@1", "1 1 1");
    // Another exit follows, in another coroutine or on this stack.
    check("m@1 f@2 !@100002 !@200002 a@3 /a@3 /f@2 /m@1", "1 1 1");
    check("m@1 f@2 g@3 !@100002 !@3 a@3 /a@3 /f@2 /m@1", "-1 1 1 1");
    // A personality routine returns on the stack of a handler, before the thread continues.
    check("m@1 f@2 h@100001 u@100002 p@100003 !@3 /p@100003 a@3 /a@3 /f@2 /m@1", "1 -2 1 1 1");
}

/// An exception passes pieces of a stack that lie anywhere (`-fsplit-stack`), whose cleanups run on
/// the piece that they leave.
#[test]
fn the_unwinder_leaves_only_the_frames_that_the_continuing_one_has_called() {
    check(
        "m@1 s@2 r@100001 f@100500 l@200001 /l@200001 ^@200000 u@200000 /u@200000 ^@100001 w@100001 /w@100001 /s@2 /m@1",
        "1 1 -2 1 1 1",
    );
    // The cleanup is not recorded.
    check("m@1 s@2 r@100001 f@100500 ^@200000 ^@100001 w@100001 /w@100001 /s@2 /m@1", "-2 1 1 1");
    // The frame that catches is on the first piece, or is a recorded one.
    check("m@1 s@2 r@100001 f@200001 ^@300000 ^@3 w@3 /w@3 /s@2 /m@1", "-2 1 1 1");
    check("m@1 s@2 r@100001 f@200001 ^@100002 w@100002 /w@100002 /r@100001 /s@2 /m@1", "-1 1 1 1 1");
    // No function of the piece where the thread continues is recorded: f may have called it.
    check("m@1 s@2 f@200001 ^@100001 w@100001 /w@100001 /s@2 /m@1", "1 2 1");
}

/// The unwinder tells where it runs, so frames of any size have ended from there up.
#[test]
fn the_unwinder_leaves_frames_of_any_size() {
    // Neither the catching function nor the large one is recorded, then the catching one.
    check("f@100000 g@100002 ^@2<100010 h@50 /h@50", "-2 1");
    check("m@1 f@100000 ^@50002<100010 h@50003 /h@50003 /m@1", "-1 1 1");
    // The next call is far below, as the large frame is that of its caller.
    check("m@1 f@100000 g@100002 ^@2<100010 h@60000 /h@60000 /m@1", "-2 1 1");
    // A landing pad between the two, and the personality routine.
    check("f@200000 p@200005 ^@100000<200010 /p@200005 ^@2<100004 h@50 /h@50", "1 -1 1");
    // A coroutine has not called the frames above the one that catches.
    check("m@1 c@900001 f@1000000 ^@900003<1000009 h@900003 /h@900003 /c@900001 /m@1", "-1 1 1 1");
    // The unwinder ran on the stack of a signal handler.
    check("m@1 f@50 h@900001 ^@3<900009 a@3 /a@3 /m@1", "-2 1 1");
    check("m@900001 f@900050 h@1 ^@900003<9 a@900003 /a@900003 /m@900001", "-2 1 1");
}

/// A step of a random program of which not all functions are recorded.
#[derive(Clone, Debug)]
enum Partly {
    Call { site: u32, frame: u64, is_recorded: bool },
    Return,
    Jump { to: usize },
}

fn partly() -> impl Strategy<Value = Vec<Partly>> {
    let step = prop_oneof![
        6 => (0..5_u32, 1..100_u64, any::<bool>())
            .prop_map(|(site, frame, is_recorded)| Partly::Call { site, frame, is_recorded }),
        3 => Just(Partly::Return),
        1 => (0..30_usize).prop_map(|to| Partly::Jump { to }),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// With the events of nonlocal exits, every recorded call has as many calls around it as are
    /// open and recorded, whatever other functions lie in between or catch.
    #[test]
    fn with_nonlocal_exits_calls_that_are_not_recorded_hide_nothing(steps in partly()) {
        // The slot, the slot of the next callee, and the site of each frame, if it is recorded.
        let mut stack: Vec<(u64, u64, Option<u32>)> = vec![(1 << 40, (1 << 40) - 2, None)];
        let mut open = OpenCalls::new(true);
        let frame = |slot: u64, site: u32| (slot & (SLOTS - 1)) << SLOT | u64::from(site);
        for step in steps {
            let (_, next, _) = *stack.last().expect("the outermost one never returns");
            match step {
                Partly::Call { site, frame: size, is_recorded } => {
                    stack.push((next, next - size, is_recorded.then_some(site)));
                    if is_recorded {
                        pass(&mut open, code::ENTRY, frame(next, site));
                        open.pair_event(code::ENTRY, frame(next, site), 0);
                        let depth = stack.iter().filter(|(.., site)| site.is_some()).count();
                        prop_assert_eq!(open.depth, depth);
                    }
                }
                Partly::Return if stack.len() > 1 => {
                    if let Some((slot, _, Some(site))) = stack.pop() {
                        let kind = open.pair_event(code::EXIT, frame(slot, site), 0).kind;
                        // Frames that were left end with the first frame around them that returns.
                        let closes = matches!(kind, EventKind::Exit { pops: 1.. });
                        prop_assert!(closes);
                        prop_assert_eq!(open.depth, stack.iter().filter(|(.., site)| site.is_some()).count());
                    }
                }
                Partly::Return => {}
                Partly::Jump { to } => {
                    stack.truncate(1 + to);
                    let (_, next, _) = *stack.last().expect("the outermost one");
                    pass(&mut open, code::NONLOCAL, frame(next, 9));
                }
            }
        }
    }
}

/// Leaves many frames by a nonlocal exit from a handler on another stack.
#[test]
fn nonlocal_exit_from_another_stack_ends_many_frames() {
    let mut open = OpenCalls::new(true);
    let frame = |at: u64, site: u64| ((0x7fff_0000_0000 - 8 * at) >> 3 & (SLOTS - 1)) << SLOT | site;
    let count = 5 * SEARCHED as u64;
    open.pair_event(code::ENTRY, frame(10, 1), 0);
    for n in 0..count {
        open.pair_event(code::ENTRY, frame(20 + 10 * n, 2), 0);
    }
    open.pair_event(code::ENTRY, frame(900_000_000, 3), 0);
    let exit = |at: u64| {
        let slot = frame(at, 0) >> SLOT;
        RawEvent { ticks: 0, low: code::NONLOCAL, slot, parent: 0 }
    };
    assert_eq!(open.pass_nonlocal_exit(exit(15)), None);
    let next = RawEvent { low: 4 << 5 | code::ENTRY, ..exit(16) };
    assert_eq!(open.pass_nonlocal_exit(next), Some((count as u32 + 1, Vec::new())));
    assert_eq!(open.depth, 1);
}
