//! Tests of the timeline and the explorer: at every zoom level they agree with the single calls.

use crate::common::recording;
use calltap_analysis::explore::{Columns, Explorer};
use calltap_analysis::paths::By;
use calltap_analysis::report::{self, Options};
use calltap_analysis::timeline::{Block, Limits, Timeline};
use calltap_analysis::{Call, MemorySource, Visitor, run_by_thread};
use calltap_trace::ThreadId;

/// Limits so small that hardly any block is kept.
const TIGHT: Limits = Limits { blocks: 60, depth: 100, checkpoints: 40 };

/// Makes calls of two threads, nested, short and long, in batches of a few events.
fn random() -> MemorySource {
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = String::new();
    for thread in ["a", "b"] {
        let (mut at, mut open) = (next(500), Vec::new());
        for _ in 0..300 {
            let mut events = Vec::new();
            for _ in 0..=next(8) {
                at += [1, 5, 30, 900][next(4) as usize];
                if open.is_empty() || open.len() < 6 && next(2) == 0 {
                    let f = format!("f{}", next(5));
                    events.push(format!("E {f} @{at}"));
                    open.push(f);
                } else if let Some(f) = open.pop() {
                    events.push(format!("X {f} @{at}"));
                }
            }
            text += &format!("{thread}: {}\n", events.join("; "));
        }
    }
    recording(&text)
}

/// Every call: thread, depth, start, end, site.
#[derive(Default)]
struct Calls(Vec<(u32, u32, u64, u64, u32)>);

impl Visitor for Calls {
    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.0.push((thread.0, call.depth, call.start, call.end, call.site.0));
    }
}

/// Calls whose end is known: site, duration.
#[derive(Default)]
struct Durations(Vec<(u32, u64)>);

impl Visitor for Durations {
    fn close(&mut self, _: ThreadId, call: &Call) {
        if !call.ending.is_cut() {
            self.0.push((call.site.0, call.end - call.start));
        }
    }
}

fn calls(source: &MemorySource) -> Vec<(u32, u32, u64, u64, u32)> {
    let mut calls = Calls::default();
    run_by_thread(source, &mut calls, None).unwrap();
    calls.0.sort_unstable();
    calls.0
}

/// Returns the blocks of a window in the form of [`calls`].
fn blocks(
    timeline: &Timeline,
    source: &MemorySource,
    window: (u64, u64),
    resolution: u64,
) -> Vec<(u32, u32, Block)> {
    let mut all = Vec::new();
    for thread in timeline.threads() {
        let shown = timeline.window(source, thread, window, resolution);
        for (depth, track) in (0..).zip(shown.tracks) {
            all.extend(track.into_iter().map(|block| (thread.0, depth, block)));
        }
    }
    all
}

#[test]
fn every_call_is_visible_at_full_zoom() {
    let source = random();
    let all = calls(&source);
    for limits in [TIGHT, Limits::default()] {
        let (timeline, totals) = Timeline::new(&source, limits, None).unwrap();
        assert_eq!(totals.calls, all.len() as u64);
        let origin = timeline.origin();
        let mut windows = vec![(0, timeline.end())];
        windows.extend((0..timeline.end()).step_by(7_001).map(|from| (from, from + 2_000)));
        for (from, to) in windows {
            let mut shown: Vec<_> = blocks(&timeline, &source, (from, to), 0)
                .into_iter()
                .inspect(|(.., block)| assert_eq!((block.calls, block.busy), (1, block.end - block.start)))
                .map(|(thread, depth, b)| (thread, depth, b.start + origin, b.end + origin, b.site.0))
                .collect();
            shown.sort_unstable();
            let mut expected = all.clone();
            expected.retain(|(_, _, start, end, _)| *end >= from + origin && *start <= to + origin);
            // The end of a call that continues after the window is known as far as its block
            // extends.
            let cut = |calls: &[(u32, u32, u64, u64, u32)]| -> Vec<_> {
                calls.iter().map(|(t, d, s, e, f)| (*t, *d, *s, (*e).min(to + origin), *f)).collect()
            };
            assert_eq!(cut(&shown), cut(&expected), "{from}..{to}");
        }
    }
}

#[test]
fn from_afar_every_call_is_in_one_block_and_there_are_few() {
    let source = random();
    let all = calls(&source).len() as u64;
    for limits in [TIGHT, Limits::default()] {
        let (timeline, _) = Timeline::new(&source, limits, None).unwrap();
        let end = timeline.end();
        for columns in [1, 10, 100] {
            let shown = blocks(&timeline, &source, (0, end), end / columns);
            assert_eq!(shown.iter().map(|(.., block)| u64::from(block.calls)).sum::<u64>(), all);
            let tracks = 2 * 6;
            assert!(shown.len() as u64 <= tracks * (2 * columns + 2), "{columns}: {}", shown.len());
            for (.., block) in shown {
                assert!(block.calls == 1 || block.end - block.start <= end / columns, "{block:?}");
                assert!(block.longest <= block.busy && block.busy <= block.end - block.start, "{block:?}");
            }
        }
    }
}

#[test]
fn going_from_call_to_call_finds_all_outermost_ones_in_both_directions() {
    let source = random();
    let explorer = Explorer::new(source.clone(), TIGHT, None).unwrap();
    for function in &explorer.functions {
        let only = explorer.only(function).unwrap();
        let all = calls(&source);
        let own = all.iter().filter(|(.., site)| *site == function.site.0);
        let inside = |inner: &(u32, u32, u64, u64, u32)| {
            let around = |outer: &&(u32, u32, u64, u64, u32)| {
                outer.0 == inner.0
                    && outer.4 == inner.4
                    && outer.1 < inner.1
                    && outer.2 <= inner.2
                    && inner.3 <= outer.3
            };
            all.iter().any(|outer| around(&outer))
        };
        let origin = explorer.timeline.origin();
        let mut expected: Vec<(u32, u64, usize)> =
            own.filter(|call| !inside(call)).map(|c| (c.0, c.2 - origin, c.1 as usize)).collect();
        expected.sort_by_key(|(thread, start, _)| (*start, *thread));
        // Two threads may begin at the same time: only one of them is found.
        expected.dedup_by_key(|(_, start, _)| *start);
        let (mut forwards, mut moment) = (Vec::new(), None);
        while let Some((thread, start, _)) = explorer.next_call(&only, moment, true) {
            forwards.push((start, explorer.depth_of(thread, function, start)));
            moment = Some(start);
        }
        let starts: Vec<_> = expected.iter().map(|(_, start, depth)| (*start, *depth)).collect();
        assert_eq!(forwards, starts, "{}", function.name);
        let mut backwards = Vec::new();
        moment = None;
        while let Some((_, start, _)) = explorer.next_call(&only, moment, false) {
            backwards.push(start);
            moment = Some(start);
        }
        backwards.reverse();
        assert_eq!(backwards, starts.iter().map(|(start, _)| *start).collect::<Vec<_>>());
    }
}

#[test]
fn its_numbers_are_those_of_the_report() {
    let source = random();
    let explorer = Explorer::new(source.clone(), TIGHT, None).unwrap();
    let columns = vec![report::Column::P50];
    let report = report::collect(&source, &Options { columns, ..Options::default() }, None).unwrap();
    let ours: Vec<_> = explorer.functions.iter().map(|f| (f.name.clone(), f.calls, f.times)).collect();
    let theirs: Vec<_> = report.rows.into_iter().map(|row| (row.function, row.calls, row.times)).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn slow_calls_are_the_longest_of_all_or_of_a_bar() {
    let source = random();
    let explorer = Explorer::new(source.clone(), TIGHT, None).unwrap();
    for function in &explorer.functions {
        let mut all = Durations::default();
        run_by_thread(&source, &mut all, None).unwrap();
        let own = all.0.into_iter().filter(|(site, _)| *site == function.site.0);
        let mut durations: Vec<u64> = own.map(|(_, duration)| duration).collect();
        durations.sort_unstable_by(|a, b| b.cmp(a));
        let slowest = explorer.slowest(function);
        assert_eq!(
            slowest.iter().map(|call| call.duration_ns).collect::<Vec<_>>(),
            durations[..slowest.len()]
        );
        assert_eq!(slowest.len(), durations.len().min(64));
        let bars = explorer.histogram(function, 12);
        // Calls whose end is unknown have no duration.
        assert_eq!(bars.iter().map(|bar| bar.calls).sum::<u64>(), durations.len() as u64);
        for bar in bars {
            let calls = explorer.in_bar(function, &bar).unwrap();
            assert_eq!(calls.len() as u64, bar.calls.min(64), "{bar:?}");
            assert!(calls.iter().all(|call| (bar.from_ns..bar.to_ns).contains(&call.duration_ns)), "{bar:?}");
        }
    }
}

#[test]
fn a_heatmap_has_each_call_that_ended_once_and_a_cell_shows_its_own() {
    let source = random();
    let explorer = Explorer::new(source, TIGHT, None).unwrap();
    let end = explorer.timeline.end();
    let whole = Columns { of: 0..end, count: 7 };
    let all: Vec<_> = explorer.functions.iter().collect();
    let heats = explorer.heat(&all, &whole, 5).unwrap();
    assert_eq!(heats.len(), all.len());
    for (function, heat) in all.iter().zip(&heats) {
        let bars = explorer.histogram(function, 5);
        for (row, bar) in bars.iter().enumerate() {
            let cells = heat.cells.iter().filter(|((_, at), _)| *at == row as u32);
            assert_eq!(cells.map(|(_, calls)| calls).sum::<u64>(), bar.calls, "{} {bar:?}", function.name);
        }
        for ((column, row), calls) in &heat.cells {
            let found = explorer.in_cell(function, &bars[*row as usize], &whole, *column).unwrap();
            assert_eq!(found.len() as u64, *calls.min(&64));
            let begins = |start: u64| start * 7 / end == u64::from(*column) || start == end;
            assert!(found.iter().all(|call| begins(call.start_ns)), "{column} {row}: {found:?}");
        }
        // Two halves of the time together have all calls.
        let half = |of| {
            let cells = explorer.heat(&[function], &Columns { of, count: 3 }, 5).unwrap()[0].cells.clone();
            cells.values().sum::<u64>()
        };
        let sum: u64 = bars.iter().map(|bar| bar.calls).sum();
        assert_eq!(half(0..end / 2) + half(end / 2 + 1..end), sum, "{}", function.name);
    }
}

#[test]
fn callers_and_callees_are_direct_ones_with_their_time() {
    let source = recording(
        "a: E main @0; E f @10; E g @20; X g @50; X f @60; E g @70; X g @75; E f @80; E f @82; X f @85; X f @90; X main @100",
    );
    let explorer = Explorer::new(source, Limits::default(), None).unwrap();
    let name = |site| explorer.function(site).map_or("?", |function| function.name.as_str()).to_owned();
    let shown = |wanted: &str| {
        let function = explorer.functions.iter().find(|function| function.name == wanted).expect(wanted);
        let around = explorer.around(function);
        let list = |list: Vec<calltap_analysis::explore::Relative>| -> Vec<String> {
            list.iter().map(|r| format!("{} {} {}", name(r.site), r.calls, r.total_ns)).collect()
        };
        (list(around.callers), list(around.callees))
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(shown("g"), (words(&["f 1 30", "main 1 5"]), vec![]));
    assert_eq!(shown("main"), (vec![], words(&["f 2 60", "g 1 5"])));
    assert_eq!(shown("f"), (words(&["main 2 60", "f 1 0"]), words(&["g 1 30", "f 1 3"])));
}

#[test]
fn flame_graph_boxes_lie_on_callers_and_narrow_boxes_are_omitted() {
    let source = recording(
        "a: E main @0; E f @10; E g @20; X g @50; X f @60; E g @70; X g @75; E h @80; X h @81; X main @100",
    );
    let explorer = Explorer::new(source, Limits::default(), None).unwrap();
    let shown = |flame: &calltap_analysis::explore::Flame| -> Vec<String> {
        let name = |site| explorer.function(site).map_or("?", |function| function.name.as_str());
        let mut boxes = flame.boxes.clone();
        boxes.sort_by(|a, b| (a.level, a.left).partial_cmp(&(b.level, b.left)).unwrap());
        boxes
            .iter()
            .map(|b| {
                format!(
                    "{}{} {:.2} {}",
                    " ".repeat(b.level as usize),
                    b.site.map_or("all", name),
                    b.width,
                    b.own
                )
            })
            .collect()
    };
    let all = explorer.flame(0, By::Wall, 0.02);
    assert_eq!(shown(&all), ["all 1.00 0", " main 1.00 44", "  f 0.50 20", "  g 0.05 5", "   g 0.30 30"]);
    let f = all.boxes.iter().find(|b| b.level == 2 && b.width > 0.4).unwrap();
    let above = explorer.flame(f.node, By::Wall, 0.02);
    assert_eq!(
        (shown(&above), above.below.len()),
        (vec!["f 1.00 20".to_owned(), " g 0.60 30".to_owned()], 2)
    );
    let g = explorer.functions.iter().find(|function| function.name == "g").unwrap();
    let callers = explorer.flame_of(g, true, By::Wall, 0.02).unwrap();
    assert_eq!(callers.boxes.iter().filter(|b| b.level == 1).count(), 2, "{:?}", shown(&callers));
    assert_eq!(
        explorer.flame(4_000_000_000, By::Wall, 0.02).boxes.len(),
        all.boxes.len(),
        "what is not there is all"
    );
}

#[test]
fn losses_have_positions_and_calls_without_duration_are_kept() {
    let source = recording("a: E f @10; C g <-0x1 @20; L 3/2 @30; X f @90\nb: C g <-0x1 @40");
    let (timeline, _) = Timeline::new(&source, Limits::default(), None).unwrap();
    let window = timeline.window(&source, ThreadId(0), (0, 100), 0);
    assert_eq!(window.lost.iter().map(|b| (b.start, b.calls)).collect::<Vec<_>>(), [(20, 5)]);
    let spans: Vec<Vec<_>> =
        window.tracks.iter().map(|track| track.iter().map(|b| (b.start, b.end)).collect()).collect();
    assert_eq!(spans, [vec![(0, 80)], vec![(10, 10)]]);
    assert_eq!(timeline.window(&source, ThreadId(1), (0, 100), 0).tracks[0].len(), 1);
    assert!(timeline.window(&source, ThreadId(9), (0, 100), 0).tracks.is_empty());
}

#[test]
fn deeper_calls_than_are_kept_are_counted() {
    let source = recording("a: E f @0; E f @1; E f @2; E f @3; X f @4; X f @5; X f @6; X f @7");
    let (timeline, _) = Timeline::new(&source, Limits { depth: 2, ..Limits::default() }, None).unwrap();
    assert_eq!(timeline.depth(ThreadId(0)), (2, 2));
}

#[test]
fn call_of_unknown_end_is_cut_at_every_zoom_level() {
    let source = recording(
        "
        a: E f @0; E g @10; X g @20; E g @30; < g/1 @40; E h @40; X h @50; X f @2000
        b: E f @0; E g @10; X g @20; E h @30; end f @30
        c: E f @0; E g @10; X g @2000
        ",
    );
    for limits in [TIGHT, Limits::default()] {
        let (timeline, _) = Timeline::new(&source, limits, None).unwrap();
        let close = blocks(&timeline, &source, (0, timeline.end()), 0);
        let cut: Vec<_> =
            close.iter().filter(|(.., b)| b.cut > 0).map(|(t, d, b)| (*t, *d, b.start, b.calls)).collect();
        assert_eq!(cut, [(0, 1, 30, 1), (1, 0, 0, 1), (1, 1, 30, 1), (2, 0, 0, 1)]);
        // The window ends while the call continues, and the recording has no more of its end.
        let part = blocks(&timeline, &source, (0, 25), 0);
        let outer: Vec<u32> = part.iter().filter(|(_, depth, _)| *depth == 0).map(|(.., b)| b.cut).collect();
        assert_eq!(outer, [0, 1, 1]);
        for resolution in [25, 100, 10_000] {
            let far = blocks(&timeline, &source, (0, timeline.end()), resolution);
            assert_eq!(far.iter().map(|(.., b)| b.cut).sum::<u32>(), 4, "{resolution}");
        }
    }
}
