//! Tests of parts of a trace: their calls are the whole's, and calls cut by their bounds have no
//! duration.

use crate::common::{output, recording, same};
use calltap_analysis::sources::part::Which;
use calltap_analysis::{
    Call, Ending, Enter, MemorySource, Part, Source, Visitor, Word, paths, replay, report, run_by_thread,
    run_in_file_order,
};
use calltap_trace::{Batch, Event, EventKind, SiteId, ThreadId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CALLS: &str = "main: E main @0; E f @10us; E g @20us; X g @30us; X f @40us; E f @50us; E g @52us; E h @53us; X h @58us; X g @90us; X f @95us; X main @100us
    other: E g @5us; X g @95us";

fn replayed(which: Which) -> String {
    let source = recording(CALLS);
    let options = replay::Options { no_header: true, ..replay::Options::default() };
    output(|out| replay::write(&Part::new(&source, which.clone()), &options, out, None).map(drop))
}

#[test]
fn window_cuts_calls_at_its_bounds() {
    let which = Which {
        from: Some(25_000),
        until: Some(60_000),
        threads: Some(vec![ThreadId(0)]),
        ..Which::default()
    };
    same(
        &replayed(which),
        "
           main-100    |               |  main() {
           main-100    |               |    f() {
           main-100    |               |      g() {
           main-100    |   ~           |      } /* outside */
           main-100    |   ~           |    } /* outside */
           main-100    |               |    f() {
           main-100    |               |      g() {
           main-100    |   5.000 us    |        h();
           main-100    |   ~           |      } /* outside */
           main-100    |   ~           |    } /* outside */
           main-100    |   ~           |  } /* outside */
        # 5 calls cut: begun before the part, or going on after it
    ",
    );
}

#[test]
fn marks_before_a_part_are_not_counted() {
    let before = "off f @2us; E f @3us; off g @4us; off f @5us; < f @6us; L 1/1 @7us; off g @8us; ".repeat(3);
    let source = recording(&format!("main: E main @0; {before}E f @30us; X f @40us; X main @100us"));
    let marks = |from| {
        let part = Part::new(&source, Which { from: Some(from), ..Which::default() });
        run_by_thread(&part, &mut Seen::default(), None).unwrap().marks
    };
    // Within the part, main may have ended in the losses before, and ends outside.
    assert_eq!((marks(0), marks(20_000)), (18, 2));
}

#[test]
fn empty_part_names_time_of_events() {
    let source = recording(CALLS);
    let said =
        |from, until| Part::new(&source, Which { from, until, ..Which::default() }).part().map(str::to_owned);
    let are = "all events are from 0.000000 s to 0.000100 s";
    assert_eq!(said(Some(2_000_000), None), Some(format!("from 0.002000 s; {are}")));
    assert_eq!(said(None, Some(0)), Some(format!("until 0.000000 s; {are}")));
    assert_eq!(said(Some(100_000), None), Some("from 0.000100 s".to_owned()));
}

#[test]
fn a_subtree_its_first_levels_and_long_calls() {
    let roots = vec![Word::new("f")];
    same(
        &replayed(Which { roots: roots.clone(), depth: Some(2), ..Which::default() }),
        "
           main-100    |               |  f() {
           main-100    |   10.000 us   |    g();
           main-100    | + 30.000 us   |  }
           main-100    |               |  f() {
           main-100    | + 38.000 us   |    g();
           main-100    | + 45.000 us   |  }
    ",
    );
    same(
        &replayed(Which { targets: vec![Word::new("h")], ..Which::default() }),
        "
           main-100    |               |  main() {
           main-100    |               |    f() {
           main-100    |               |      g() {
           main-100    |   5.000 us    |        h();
           main-100    | + 38.000 us   |      }
           main-100    | + 45.000 us   |    }
           main-100    | + 100.000 us  |  }
    ",
    );
    same(
        &replayed(Which { roots: roots.clone(), targets: vec![Word::new("h")], ..Which::default() }),
        "
           main-100    |               |  f() {
           main-100    |               |    g() {
           main-100    |   5.000 us    |      h();
           main-100    | + 38.000 us   |    }
           main-100    | + 45.000 us   |  }
    ",
    );
    same(
        &replayed(Which { roots, longer: Some(30_000), ..Which::default() }),
        "
           main-100    |               |  f() {
           main-100    | + 38.000 us   |    g();
           main-100    | + 45.000 us   |  }
    ",
    );
}

#[test]
fn calls_of_some_functions_alone() {
    let which = Which { functions: vec![Word::new("f"), Word::new("h")], ..Which::default() };
    same(
        &replayed(which),
        "
           main-100    | + 30.000 us   |  f();
           main-100    |               |  f() {
           main-100    |   5.000 us    |    h();
           main-100    | + 45.000 us   |  }
    ",
    );
}

#[test]
fn views_announce_partial_recordings() {
    let source = recording(CALLS);
    let which = Which { from: Some(25_000), until: Some(60_000), ..Which::default() };
    let part = Part::new(&source, which);
    let text = output(|out| {
        report::write(&part, &report::Options::default(), report::Format::Text, out, None).map(drop)
    });
    assert!(text.starts_with("# part of the trace: from 0.000025 s; until 0.000060 s\n"), "{text}");
    assert!(text.contains("6 calls cut: begun before the part, or going on after it"), "{text}");
}

/// The calls of a source in the order of their ends.
#[derive(Default)]
struct Seen {
    calls: Vec<(ThreadId, Call)>,
    entered: u64,
}

impl Visitor for Seen {
    fn enter(&mut self, _: ThreadId, _: &Enter) {
        self.entered += 1;
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.calls.push((thread, *call));
    }
}

fn seen(source: &dyn Source) -> Seen {
    let mut seen = Seen::default();
    run_by_thread(source, &mut seen, None).unwrap();
    assert_eq!(seen.entered, seen.calls.len() as u64, "every call that begins ends");
    let mut again = Seen::default();
    run_in_file_order(source, &mut again, None).unwrap();
    let in_order = |calls: &[(ThreadId, Call)]| {
        let mut calls = calls.to_vec();
        calls.sort_by_key(|(thread, call)| (*thread, call.end, std::cmp::Reverse(call.depth)));
        calls
    };
    assert_eq!(in_order(&seen.calls), in_order(&again.calls), "in either order of reading");
    seen
}

/// Identifies the calls with a known end; a tail call may be shown without the call whose frame it
/// shares.
fn known(seen: &Seen) -> Vec<(ThreadId, SiteId, u64, u64)> {
    let calls = seen.calls.iter().filter(|(_, call)| !call.ending.is_cut());
    let mut calls: Vec<_> = calls.map(|(thread, call)| (*thread, call.site, call.start, call.end)).collect();
    calls.sort_unstable();
    calls
}

/// Returns own ticks by path.
fn own(source: &dyn Source) -> BTreeMap<Vec<u32>, u64> {
    let (paths, _) = paths::collect(source, 1 << 16, false, None).unwrap();
    let mut sums = BTreeMap::new();
    for at in 1..paths.nodes.len() as u32 {
        let (mut path, mut node) = (Vec::new(), at);
        while let paths::Of::Site(site) = paths.of(node) {
            path.push(site.0);
            node = paths.nodes[node as usize].parent;
        }
        *sums.entry(path).or_default() += paths.nodes[at as usize].own;
    }
    sums.retain(|_, ticks| *ticks > 0);
    sums
}

/// Makes two threads with arbitrary events; with `tame`, every call returns and none is cut.
fn source(words: &[(u8, u8, u8, u64)], tame: bool) -> MemorySource {
    let mut source =
        recording("a: E f0 @0; X f0 @0; E f1 @0; X f1 @0; E f2 @0; X f2 @0\nb: E f3 @0; X f3 @0");
    let mut open: [Vec<SiteId>; 2] = Default::default();
    let mut now = 0;
    for &(kind, site, thread, ticks) in words {
        let (lane, site) = (usize::from(thread % 2), SiteId(u32::from(site % 4)));
        now += ticks;
        let depth = open[lane].len() as u32;
        let kind = match kind % if tame { 6 } else { 12 } {
            0..3 => EventKind::Entry,
            3 if depth > 0 => EventKind::TailEntry,
            4..6 | 10 if depth > 0 => EventKind::Exit { pops: 1 },
            6 => EventKind::Left { pops: 1 },
            7 => EventKind::SwitchedOff,
            8 => EventKind::Lost { entries: 1, exits: 0 },
            9 => EventKind::Call { parent: 0 },
            11 => EventKind::Exit { pops: 2 },
            _ => EventKind::Entry,
        };
        let site = match kind {
            EventKind::Exit { pops: 1 } => open[lane].pop().unwrap_or(site),
            EventKind::Entry | EventKind::TailEntry => {
                open[lane].push(site);
                site
            }
            _ => site,
        };
        source.batches.push(Batch {
            thread: ThreadId(lane as u32),
            events: vec![Event { ticks: now, site, kind }],
            ..Batch::default()
        });
    }
    if tame {
        for (lane, open) in open.iter_mut().enumerate() {
            while let Some(site) = open.pop() {
                now += 1;
                let event = Event { ticks: now, site, kind: EventKind::Exit { pops: 1 } };
                source.batches.push(Batch {
                    thread: ThreadId(lane as u32),
                    events: vec![event],
                    ..Batch::default()
                });
            }
        }
    }
    source
}

fn words() -> impl Strategy<Value = Vec<(u8, u8, u8, u64)>> {
    prop::collection::vec((0..12_u8, 0..4_u8, 0..2_u8, 0..20_u64), 0..120)
}

proptest! {
    /// The calls of a part that have durations are calls of the whole, with equal durations; a
    /// window has all calls that lie within it.
    #[test]
    fn the_calls_of_a_part_are_the_calls_of_the_whole(
        words in words(), from in 0..400_u64, length in 0..400_u64, root in 0..5_u8, depth in 0..5_usize, longer in 0..60_u64,
    ) {
        let source = source(&words, false);
        let whole = known(&seen(&source));
        let to = from + length;
        let within = |call: &(ThreadId, SiteId, u64, u64)| from <= call.2 && call.3 < to;
        let window = Which { from: Some(from), until: Some(to), ..Which::default() };
        let expected: Vec<_> = whole.iter().copied().filter(within).collect();
        prop_assert_eq!(known(&seen(&Part::new(&source, window.clone()))), expected);
        let long = Which { longer: Some(longer), ..Which::default() };
        let expected: Vec<_> = whole.iter().copied().filter(|call| call.3 - call.2 > longer).collect();
        prop_assert_eq!(known(&seen(&Part::new(&source, long))), expected);
        let which = Which {
            roots: if root < 4 { vec![Word::new(&format!("f{root}"))] } else { Vec::new() },
            depth: (depth > 0).then_some(depth),
            longer: (longer > 30).then_some(longer),
            ..window
        };
        let part = seen(&Part::new(&source, which));
        for call in known(&part) {
            prop_assert!(whole.contains(&call) && within(&call), "{:?}", call);
        }
        prop_assert!(depth == 0 || part.calls.iter().all(|(_, call)| (call.depth as usize) < depth));
        if root < 4 {
            prop_assert!(part.calls.iter().all(|(_, call)| call.depth > 0 || call.site == SiteId(root.into())));
        }
    }

    /// A part has all calls of the target function that the whole has, and besides them only calls
    /// that lead to them.
    #[test]
    fn target_part_has_targets_and_their_callers(words in words(), target in 0..4_u8) {
        let source = source(&words, false);
        let is_target = |call: &(ThreadId, SiteId, u64, u64)| call.1 == SiteId(target.into());
        let whole: Vec<_> = known(&seen(&source)).into_iter().filter(is_target).collect();
        let part = seen(&Part::new(
            &source,
            Which { targets: vec![Word::new(&format!("f{target}"))], ..Which::default() },
        ));
        let shown: Vec<_> = known(&part).into_iter().filter(is_target).collect();
        prop_assert_eq!(shown, whole);
        let mut deeper = BTreeMap::new();
        for (thread, call) in &part.calls {
            let before: Option<u32> = deeper.insert(*thread, call.depth);
            let calls_another = before.is_some_and(|before| before > call.depth);
            prop_assert!(calls_another || call.site == SiteId(target.into()), "{:?}", call);
        }
    }

    /// Of chosen functions, a part has all calls of the whole, and none of another function. Calls
    /// that are left out take no time away.
    #[test]
    fn calls_of_chosen_functions_are_those_of_the_whole(words in words(), chosen in 0..4_u8, tame in any::<bool>()) {
        let source = source(&words, tame);
        let is_chosen = |call: &(ThreadId, SiteId, u64, u64)| call.1 == SiteId(chosen.into());
        let whole: Vec<_> = known(&seen(&source)).into_iter().filter(is_chosen).collect();
        let part = Part::new(&source, Which { functions: vec![Word::new(&format!("f{chosen}"))], ..Which::default() });
        let shown = seen(&part);
        prop_assert_eq!(known(&shown), whole);
        prop_assert!(shown.calls.iter().all(|(_, call)| call.site == SiteId(chosen.into())));
    }

    /// Consecutive windows add up to the whole, path by path; so do threads.
    #[test]
    fn parts_add_up_to_the_whole(words in words(), first in 0..300_u64, second in 0..300_u64) {
        let source = source(&words, true);
        let whole = own(&source);
        let (first, second) = (first.min(second), first.max(second));
        let windows = [(None, Some(first)), (Some(first), Some(second)), (Some(second), None)];
        let threads = [0, 1].map(|thread| Which { threads: Some(vec![ThreadId(thread)]), ..Which::default() });
        let windows = windows.map(|(from, until)| Which { from, until, ..Which::default() });
        for parts in [&windows[..], &threads[..]] {
            let mut sum = BTreeMap::new();
            for which in parts {
                for (path, ticks) in own(&Part::new(&source, which.clone())) {
                    *sum.entry(path).or_insert(0) += ticks;
                }
            }
            prop_assert_eq!(&sum, &whole);
        }
    }

    /// Levels that are not shown count as their callers' own time.
    #[test]
    fn levels_that_are_not_shown_take_no_time_away(words in words(), depth in 1..5_usize) {
        let source = source(&words, true);
        let total = |source: &dyn Source| own(source).values().sum::<u64>();
        let part = Part::new(&source, Which { depth: Some(depth), ..Which::default() });
        prop_assert_eq!(total(&part), total(&source));
    }
}

#[test]
fn a_call_that_may_have_ended_before_the_part_stays_uncertain() {
    let source = recording("main: E main @0; E f @10; off f @20; E g @100; X g @110; X main @200");
    let part = seen(&Part::new(&source, Which { from: Some(50), ..Which::default() }));
    let endings: Vec<_> = part.calls.iter().map(|(_, call)| (call.site.0, call.ending)).collect();
    assert_eq!(endings, [(2, Ending::Returned), (1, Ending::SwitchedOff), (0, Ending::Outside)]);
}
