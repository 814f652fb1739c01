//! Calls written as texts, and random programs that note their own calls.

use super::*;
use calltap_trace::{ClockKind, Session, TraceWriter};
use proptest::prelude::*;

/// Checks calls written as text: `f@N` enters f with its slot N bytes below the top of the stack,
/// `~f@N` by a jump, `+f@N` nested in an open frame; `/f@N` returns. `!@N` is a longjmp to the
/// frame whose next call has this slot, and `^@N<M` an exit of the unwinder that runs M bytes below
/// the top. `expected` lists how many calls each return closes or shows to be left, and in front of
/// an entry `-n`, if it proves n frames dead or left, and `=f` for each frame that is open again.
pub(super) fn check(calls: &str, expected: &str) {
    let mut open = OpenCalls::new(true);
    let mut got = Vec::new();
    for word in calls.split_whitespace() {
        let (code, call) = match word.as_bytes()[0] {
            b'/' => (code::EXIT, &word[1..]),
            b'~' => (code::TAIL_ENTRY, &word[1..]),
            b'+' => (code::NESTED_ENTRY, &word[1..]),
            b'!' => (code::NONLOCAL, word),
            b'^' => (code::UNWINDING, word),
            _ => (code::ENTRY, word),
        };
        let (name, at) = call.split_once('@').expect("f@N");
        let place = |at: &str| 0x7fff_0000_0000 - 8 * at.parse::<u64>().expect("a number");
        let (at, from) = at.split_once('<').map_or((at, 0), |(at, from)| (at, place(from)));
        let frame = (place(at) >> 3 & (SLOTS - 1)) << SLOT | u64::from(name.as_bytes()[0]);
        let (outside, resumed) = pass_from(&mut open, code, frame, from);
        got.extend((outside > 0).then(|| format!("-{outside}")));
        got.extend(resumed.iter().map(|site| format!("={}", site.0 as u8 as char)));
        if is_nonlocal(code) {
            continue;
        }
        let PairedEvent { left, resumed, kind } = open.pair_event(code, frame, 0);
        if let EventKind::Exit { pops } = kind
            && resumed.is_empty()
        {
            got.push((left + pops).to_string());
            continue;
        }
        got.extend((left > 0).then(|| format!("-{left}")));
        got.extend(resumed.iter().map(|site| format!("={}", site.0 as u8 as char)));
        if let EventKind::Exit { pops } = kind {
            got.push(pops.to_string());
        }
    }
    assert_eq!(got.join(" "), expected, "{calls}");
}

/// Passes a nonlocal exit, or an event behind one.
pub(super) fn pass(open: &mut OpenCalls, code: u32, frame: Frame) -> (u32, Vec<SiteId>) {
    pass_from(open, code, frame, 0)
}

/// Passes a nonlocal exit from this place, or an event behind one.
fn pass_from(open: &mut OpenCalls, code: u32, frame: Frame, parent: u64) -> (u32, Vec<SiteId>) {
    let low = code | (frame as u32 & 0xfffff) << 5;
    open.pass_nonlocal_exit(RawEvent { ticks: 0, low, slot: frame >> SLOT, parent }).unwrap_or_default()
}

#[test]
fn nested_calls_close_one_by_one() {
    check("f@1 g@2 /g@2 g@2 /g@2 /f@1", "1 1 1");
}

#[test]
fn a_return_closes_the_tail_calls_that_share_its_frame() {
    check("f@1 ~g@1 /f@1", "2");
    check("f@1 ~g@1 ~f@1 /f@1", "3");
    check("m@1 f@2 ~g@2 h@3 /h@3 /f@2 /m@1", "1 2 1");
}

#[test]
fn frames_left_by_longjmp_are_closed_by_the_frame_below() {
    check("m@1 f@2 g@3 h@4 /m@1", "4");
    check("m@1 f@2 g@3 f@4 g@5 /m@1", "5");
}

#[test]
fn recursion_is_paired_by_stack_position() {
    check("f@1 f@2 f@3 /f@1", "3");
    check("f@1 f@2 f@3 /f@2 /f@1", "2 1");
}

#[test]
fn a_return_without_its_entry_closes_nothing() {
    check("/f@1 g@1 /g@1", "0 1");
    check("g@1 /f@1 /g@1", "0 1");
}

#[test]
fn entry_at_or_above_a_frame_proves_the_frame_dead() {
    // The loop that catches: the same function again, another one at the same slot, another one a
    // little above.
    check("m@1 h@9 f@20 h@9 /h@9 l@9 /l@9 /m@1", "-2 1 1 1");
    check("m@1 h@9 f@20 l@5 /l@5 /m@1", "-2 1 1");
    check("m@1 h@9 f@20 l@15 /l@15 /h@9 /m@1", "-1 1 1 1");
    // Far below the frame that catches.
    check("m@1 h@20000 f@20010 l@19 /l@19 /m@1", "-2 1 1");
    check("m@1 s@2 h@40000 h@40000 l@40002 /l@40002 /h@40000 /s@2", "-1 1 1 1");
}

#[test]
fn the_outermost_frames_are_left_too() {
    check("h@9 f@20 h@9 /h@9", "-2 1");
    check("h@9 f@20 l@1 /l@1", "-2 1");
    check("h@900 l@1 h@900 /h@900 /l@1", "-1 1 1");
}

#[test]
fn a_tail_call_is_no_proof() {
    check("m@1 f@2 ~g@2 ~h@2 /f@2 /m@1", "3 1");
    check("m@1 f@2 x@3 ~g@2 /f@2", "-1 2");
}

#[test]
fn nested_calls_share_a_slot_and_return_one_by_one() {
    check("m@1 f@5 +g@5 +f@5 /f@5 /g@5 /f@5 /m@1", "1 1 1 1");
    check("f@5 +f@5 +f@5 /f@5 +f@5 /f@5 /f@5 /f@5", "1 1 1 1");
    // Inner functions return, and one is left.
    check("f@5 +g@5 c@9 /c@9 +h@5 /h@5 /g@5 /f@5", "1 1 1 1");
    check("f@5 +g@5 c@9 +h@5 /h@5 /g@5 /f@5", "-1 1 1 1");
    // Missing returns: the outer frame closes the calls, and so does another frame at the same
    // slot.
    check("f@5 +g@5 +h@5 /f@5", "3");
    check("m@1 f@5 +g@5 f@5 +g@5 /g@5 /f@5 /m@1", "-2 1 1 1");
    check("m@1 +g@5 /f@5 /g@5 /m@1", "0 1 1");
}

/// Slots around 900000 and around 1 lie on two stacks.
#[test]
fn entry_on_other_stack_proves_no_frame_dead() {
    // A handler on the alternate stack, above or below.
    check("m@1 f@2 s@900000 t@900001 /t@900001 /s@900000 /f@2 /m@1", "1 1 1 1");
    check("m@900000 f@900001 s@1 /s@1 /f@900001 /m@900000", "1 1 1");
    // A coroutine, left by a switch and entered anew.
    check("m@1 r@2 c@900000 y@900001 g@2 /g@2 r@2 c@900000 /c@900000 /r@2", "-3 1 1 1");
}

#[test]
fn frames_of_resumed_stack_are_open_again() {
    // The innermost frame of the stack returns, and its caller calls another function.
    check("m@1 c@900000 y@900001 g@2 /g@2 /y@900001 f@900001 /f@900001 /c@900000 /m@1", "-2 1 =c =y 1 1 1 1");
    // The innermost frame calls.
    check("m@1 c@900000 y@900001 g@2 /g@2 f@900003 /f@900003 /y@900001 /c@900000 /m@1", "-2 1 =c =y 1 1 1 1");
    // The resumed frames return meanwhile: only the return tells.
    check("m@1 r@2 c@900000 y@900001 /r@2 r@2 /y@900001 y@900001 /r@2 /m@1", "3 =c =y 1 3 1");
    // Some frames have ended: an entry at their slot shows it.
    check("m@1 c@900000 d@900010 y@900020 g@2 /g@2 f@900010 /f@900010 /c@900000 /m@1", "-3 1 =c 1 1 1");
}

#[test]
fn stacks_that_lie_next_to_each_other_are_known_from_their_first_return() {
    // Two stacks of 16 KiB, far from the thread's own, which calls nothing: b's first calls count
    // as calls of a.
    let first = "m@1 a@9000000 y@9000100 b@9016000 y@9016100 /y@9000100 f@9000200 /f@9000200 y@9000100";
    let second = "/y@9016100 f@9016200 /f@9016200 y@9016100 /y@9000100 f@9000200 /f@9000200 /a@9000000 /m@1";
    check(&format!("{first} {second}"), "3 1 -2 =b =y 1 1 -2 =a =y 1 1 1 1");
}

#[test]
fn where_events_are_missing_a_return_is_of_no_frame_that_was_left_before() {
    let frame = |slot: u64, name: u8| (SLOTS / 2 - slot) << SLOT | u64::from(name);
    let left = || {
        let mut open = OpenCalls::new(true);
        for (code, frame) in
            [(code::ENTRY, frame(1, b'm')), (code::ENTRY, frame(9, b'f')), (code::ENTRY, frame(5, b'l'))]
        {
            open.pair_event(code, frame, 0);
        }
        open
    };
    let resumed = |mut open: OpenCalls| open.pair_event(code::EXIT, frame(9, b'f'), 0).resumed.len();
    assert_eq!(resumed(left()), 1);
    let mut open = left();
    open.lose();
    assert_eq!(resumed(open), 0);
}

#[test]
fn called_stack_is_paired_above_caller() {
    // a resumes b by r, and b yields by y.
    check(
        "m@1 a@900000 r@900010 b@990000 y@990010 /r@900010 r@900010 /y@990010 /b@990000 /r@900010 /a@900000 /m@1",
        "3 =b =y 1 1 1 1 1",
    );
}

#[test]
fn a_handler_that_jumps_out_of_its_stack_is_left() {
    check("m@1 f@2 s@900000 g@2 /g@2 /m@1", "-2 1 1");
}

/// A step of a random program: a call, a jump to a function, a return, or a longjmp to an outer
/// frame. `frame`: the size of the function's frame; the frames of its callees begin behind it.
#[derive(Clone, Debug)]
enum Step {
    Call { site: u32, frame: u64 },
    Tail { site: u32, frame: u64 },
    Return,
    Jump { to: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let frame = || prop_oneof![9 => 1..20_u64, 1 => 1..4 * NEAR];
    let step = prop_oneof![
        6 => (0..5_u32, frame()).prop_map(|(site, frame)| Step::Call { site, frame }),
        1 => (0..5_u32, frame()).prop_map(|(site, frame)| Step::Tail { site, frame }),
        4 => Just(Step::Return),
        1 => (0..30_usize).prop_map(|to| Step::Jump { to }),
    ];
    prop::collection::vec(step, 0..300)
}

/// A frame of the random program, with the functions that share its slot in the order in which they
/// were entered.
struct Live {
    slot: u64,
    size: u64,
    sites: Vec<u32>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The depth that the events tell for every call equals the depth that the program knows,
    /// whatever was left before. The `hidden` outermost calls had begun when recording began: no
    /// event tells of them. Frames are larger than [`NEAR`] only if the thread is known to have one
    /// stack.
    #[test]
    fn every_call_has_the_depth_the_program_knows(
        steps in steps(),
        mut hidden in 0..4_usize,
        is_one_stack: bool,
    ) {
        let (top, largest) = if is_one_stack { (SLOTS - 1, u64::MAX) } else { (0x7fff_0000_0000 >> 3, NEAR - 1) };
        let outermost = |n: usize| Live { slot: top - 2 * n as u64, size: 2, sites: vec![9] };
        let mut stack: Vec<Live> = (0..=hidden).map(outermost).collect();
        let mut open = if is_one_stack { OpenCalls::on_one_stack() } else { OpenCalls::new(true) };
        let mut has_left = false;
        let frame = |slot: u64, site: u32| slot << SLOT | u64::from(site);
        if hidden == 0 {
            open.pair_event(code::ENTRY, frame(stack[0].slot, 9), 0);
        } else {
            hidden += 1;
        }
        for step in steps {
            let is_hidden = stack.len() <= hidden;
            let is_outermost = stack.len() == 1;
            let top = stack.last_mut().expect("the outermost one never returns");
            match step {
                // A jump has no effect in a call that had begun before recording.
                Step::Tail { .. } if is_hidden => continue,
                Step::Return if is_hidden && !is_outermost => {
                    stack.pop();
                    hidden = stack.len();
                    continue;
                }
                Step::Call { site, frame: size } => {
                    let slot = top.slot - top.size;
                    stack.push(Live { slot, size: size.min(largest), sites: vec![site] });
                    open.pair_event(code::ENTRY, frame(slot, site), 0);
                }
                Step::Tail { site, frame: size } => {
                    top.sites.push(site);
                    top.size = size.min(largest);
                    open.pair_event(code::TAIL_ENTRY, frame(top.slot, site), 0);
                }
                Step::Return if !is_outermost => {
                    let Live { slot, sites, .. } = stack.pop().expect("there are two");
                    let PairedEvent { left, kind, .. } = open.pair_event(code::EXIT, frame(slot, sites[0]), 0);
                    let EventKind::Exit { pops } = kind else { unreachable!() };
                    prop_assert!(left == 0 || has_left);
                    prop_assert_eq!(pops as usize, sites.len());
                }
                Step::Return => continue,
                Step::Jump { to } => {
                    // Only the next event tells of the jump.
                    has_left |= stack.len() > 1 + to;
                    stack.truncate(1 + to);
                    hidden = hidden.min(stack.len());
                    continue;
                }
            }
            let depth: usize = stack[hidden..].iter().map(|live| live.sites.len()).sum();
            prop_assert_eq!(open.depth, depth);
        }
    }
}

/// A step of a thread with several stacks.
#[derive(Clone, Debug)]
enum Turn {
    Call { site: u32, frame: u64 },
    Return,
    Switch { to: usize },
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        5 => (0..5_u32, 1..20_u64).prop_map(|(site, frame)| Turn::Call { site, frame }),
        4 => Just(Turn::Return),
        2 => (0..STACKS).prop_map(|to| Turn::Switch { to }),
    ];
    prop::collection::vec(turn, 0..400)
}

const STACKS: usize = 5;
/// The function in which a stack is left for another one, and in which it continues.
const YIELD: u32 = 7;

/// Stacks that begin `apart` from each other, with the open frames of each.
struct Coroutines {
    open: OpenCalls,
    stacks: Vec<Vec<(u64, u32)>>,
    /// Number of outermost frames of each stack that had begun when recording began.
    hidden: Vec<usize>,
    now: usize,
}

impl Coroutines {
    fn new(apart: u64) -> Coroutines {
        // The thread has left each stack for another one, and has returned to it, once.
        let outermost = |n: usize| vec![((0xfff_0000_0000 & (SLOTS - 1)) - apart * n as u64, 9)];
        let stacks: Vec<_> = (0..STACKS).map(outermost).collect();
        let mut all = Coroutines { open: OpenCalls::new(true), stacks, hidden: vec![0; STACKS], now: 0 };
        let first: Vec<u64> = all.stacks.iter().map(|stack| stack[0].0).collect();
        for slot in first {
            all.open.pair_event(code::ENTRY, slot << SLOT | 9, 0);
            all.open.pair_event(code::ENTRY, (slot - 4) << SLOT | u64::from(YIELD), 0);
        }
        for stack in &mut all.stacks {
            stack.push((stack[0].0 - 4, YIELD));
        }
        for n in 0..STACKS {
            all.now = n;
            all.leave();
            all.enter(YIELD, 4);
        }
        all.now = 0;
        all.leave();
        all
    }

    /// Creates stacks with `hidden + 2` frames each that were open when recording began.
    fn running(apart: u64, hidden: usize) -> Coroutines {
        let open = |n: usize| {
            (0..=1 + hidden as u64)
                .map(|at| (0xfff_0000_0000 % SLOTS - apart * n as u64 - 20 * at, 9))
                .collect()
        };
        let stacks = (0..STACKS).map(open).collect();
        Coroutines { open: OpenCalls::new(true), stacks, hidden: vec![hidden + 2; STACKS], now: 0 }
    }

    /// Whether the innermost frame of the stack is unknown.
    fn is_hidden(&self) -> bool {
        self.stacks[self.now].len() <= self.hidden[self.now]
    }

    /// Enters a function. Returns the frame of its caller, as the program knows it and as `open`
    /// has it.
    fn enter(&mut self, site: u32, frame: u64) -> (Frame, Frame) {
        let stack = &mut self.stacks[self.now];
        let (caller, of) = *stack.last().expect("the outermost one never returns");
        stack.push((caller - frame, site));
        self.open.pair_event(code::ENTRY, (caller - frame) << SLOT | u64::from(site), 0);
        (caller << SLOT | u64::from(of), self.open.frames[self.open.depth - 1])
    }

    /// Returns from a function. Returns the number of calls that the return ends.
    fn leave(&mut self) -> u32 {
        let is_hidden = self.is_hidden();
        let (slot, site) = self.stacks[self.now].pop().expect("a call");
        if is_hidden {
            self.hidden[self.now] = self.stacks[self.now].len();
            return 1;
        }
        match self.open.pair_event(code::EXIT, slot << SLOT | u64::from(site), 0).kind {
            EventKind::Exit { pops } => pops,
            _ => unreachable!(),
        }
    }

    fn switch(&mut self, to: usize) {
        if to != self.now {
            self.enter(YIELD, 4);
            self.now = to;
            self.leave();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The caller that `open` has for every call is the one on its stack, and its return is found,
    /// whether the stacks lie far from each other or side by side.
    #[test]
    fn every_call_has_the_caller_on_its_stack(turns in turns(), far in any::<bool>()) {
        check_turns(Coroutines::new(if far { 1 << 20 } else { 16 << 10 >> 3 }), turns)?;
    }

    /// Recording begins while all stacks have open calls: the caller of a call, where it is known,
    /// is the one on its stack.
    #[test]
    fn every_known_caller_is_on_the_stack_of_its_call(turns in turns(), hidden in 0..4_usize) {
        check_turns(Coroutines::running(1 << 20, hidden), turns)?;
    }
}

fn check_turns(mut all: Coroutines, turns: Vec<Turn>) -> Result<(), TestCaseError> {
    for turn in turns {
        match turn {
            Turn::Call { site, frame } if all.stacks[all.now].len() < 60 => {
                let is_hidden = all.is_hidden();
                let (known, shown) = all.enter(site, frame);
                prop_assert!(is_hidden || known == shown);
            }
            // The outermost frame stays open, and so does the one by which the stack was left.
            Turn::Return if all.stacks[all.now].len() > 2 => prop_assert!(all.leave() > 0),
            Turn::Switch { to } => all.switch(to),
            _ => {}
        }
    }
    Ok(())
}

/// Encodes some events and returns their number and how many of them are returns. Rows of events
/// and single events give the same trace.
type Feed<'a> = dyn Fn(&[RawEvent], &mut OpenCalls, &mut ThreadEncoder) -> (usize, usize) + 'a;

#[test]
fn rows_are_paired_like_single_events() {
    let mut random = 1_u64;
    let mut stack: Vec<(u64, u32)> = Vec::new();
    let mut events = Vec::new();
    for ticks in 0..200_000_u64 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let (dice, site) = (random >> 40 & 0xff, (random >> 50) as u32 % 40);
        let next = 0xfff_0000_0000 - 4 * stack.len() as u64;
        // Now and then there is a return of another frame, or a longjmp, also beyond the depth that
        // a row can hold.
        let ((slot, site), code) = match dice {
            0 => ((0, site), code::EXIT),
            1 => ((next, site), code::ENTRY_FROM),
            2 => ((next + 400, site), code::ENTRY),
            3..30 => ((next + 4, site), code::TAIL_ENTRY),
            30..40 => ((next + 4, site), code::NESTED_ENTRY),
            // A nonlocal exit leaves none to ten frames, some of which return nevertheless, as the
            // unwinder's do.
            40 => ((next + u64::from(site), 0), code::NONLOCAL),
            41..160 if stack.len() < 700 => ((next, site), code::ENTRY),
            _ => {
                let jump = if dice == 255 { stack.len() / 2 } else { 0 };
                stack.truncate(stack.len() - jump);
                (stack.pop().unwrap_or((0, 0)), code::EXIT)
            }
        };
        if matches!(code, code::ENTRY | code::NESTED_ENTRY) {
            stack.push((slot, site));
        }
        events.push(RawEvent { ticks: ticks * 50, low: site << 5 | code, slot, parent: 0 });
    }
    for placed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let trace = |name: &str, feed: &Feed<'_>| {
            let path = folder.path().join(name);
            let mut writer = TraceWriter::create(&path, Session::of(ClockKind::Tsc)).unwrap();
            let (mut open, mut encoder) = (OpenCalls::new(placed), ThreadEncoder::new(Default::default()));
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
