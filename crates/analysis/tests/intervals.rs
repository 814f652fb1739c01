//! Tests of functions by interval: the interval that calls and times count in, and the order of
//! rows.

use crate::common::recording;
use calltap_analysis::intervals::{Column, Interval, Live};
use calltap_trace::{Batch, ClockPair, Event, EventKind, Record, SiteId, ThreadId};
use proptest::prelude::*;

/// Returns the intervals of a microsecond each that contain the events of `texts`.
fn intervals(texts: &[&str]) -> Vec<Interval> {
    let source = recording(&texts.join("\n"));
    let mut live = Live::default();
    live.record(&Record::Module(source.meta.modules[0].clone()));
    live.record(&Record::Sites { sites: source.meta.sites.clone() });
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    assert_eq!(live.interval(at(0)), None);
    let mut batches = source.batches.iter();
    (1..)
        .zip(texts)
        .map(|(n, text)| {
            let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
            batches.by_ref().take(lines).for_each(|batch| live.events(batch));
            let mut interval = live.interval(at(1000 * n)).expect("an interval");
            interval.sort(Column::Function);
            interval
        })
        .collect()
}

/// Checks `function calls avg max total` of every row.
fn check(texts: &[&str], expected: &[&[&str]]) {
    let shown = |interval: &Interval| -> Vec<String> {
        let rows = interval.rows.iter();
        rows.map(|r| format!("{} {} {} {} {}", r.function, r.calls, r.avg_ns, r.max_ns, r.total_ns)).collect()
    };
    assert_eq!(intervals(texts).iter().map(shown).collect::<Vec<_>>(), expected);
}

#[test]
fn calls_count_in_their_first_interval_and_durations_in_their_last() {
    check(
        &[
            "a: E f @100; X f @300; E f @500; X f @600; E g @900",
            "a: X g @1200",
            "",
            "a: E f @3100; X f @3110",
        ],
        &[
            &["f 2 150 200 300", "g 1 0 0 100"],
            &["f 0 0 0 0", "g 0 300 300 200"],
            &["f 0 0 0 0", "g 0 0 0 0"],
            &["f 1 10 10 10", "g 0 0 0 0"],
        ],
    );
}

#[test]
fn time_counts_outermost_call_while_open() {
    check(
        &["a: E f @100; E f @200; E g @300; X g @400; X f @500", "", "a: X f @2500"],
        &[
            &["f 2 300 300 900", "g 1 100 100 100"],
            &["f 0 0 0 1000", "g 0 0 0 0"],
            &["f 0 2400 2400 500", "g 0 0 0 0"],
        ],
    );
}

#[test]
fn threads_add_up_and_their_calls_do_not_mix() {
    check(
        &["a: E f @0\nb: E f @500\na: E g @600; X g @700\nb: X f @800", "a: X f @1400"],
        &[&["f 2 300 300 1300", "g 1 100 100 100"], &["f 0 1400 1400 400", "g 0 0 0 0"]],
    );
}

#[test]
fn lost_calls_and_calls_without_durations_are_counted() {
    let [first, second] = &intervals(&["a: C f @10; C f @20; L 4/3 @50", "a: C f @1010"])[..] else {
        panic!()
    };
    assert_eq!((first.events, first.lost, first.rows[0].calls), (3, 7, 2));
    assert_eq!((second.events, second.lost, second.rows[0].calls), (1, 0, 1));
    assert_eq!((second.rate(5), second.percent(250)), (5e6, 25.0));
}

#[test]
fn thread_end_closes_its_open_calls() {
    let source = recording("a: E f @100; E g @300");
    let mut live = Live::default();
    live.record(&Record::Sites { sites: source.meta.sites.clone() });
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    live.interval(at(0));
    live.events(&source.batches[0]);
    live.end(ThreadId(0));
    let first = live.interval(at(1000)).unwrap();
    assert_eq!(
        first.rows.iter().map(|row| (row.calls, row.avg_ns, row.total_ns)).collect::<Vec<_>>(),
        [(1, 0, 200), (1, 0, 0)]
    );
    assert!(live.interval(at(2000)).unwrap().rows.iter().all(|row| row.total_ns == 0));
}

#[test]
fn events_after_interval_end_count_in_next_interval() {
    let source = recording("a: E f @100; E g @300; X g @400; E g @1100; X g @1300; X f @1500\nb: E f @900");
    let mut live = Live::default();
    live.record(&Record::Sites { sites: source.meta.sites.clone() });
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    live.interval(at(0));
    live.interval_ends(at(1000));
    source.batches.iter().for_each(|batch| live.events(batch));
    // The thread ends after the interval.
    live.end(ThreadId(0));
    let mut shown = |end: u64| -> Vec<[u64; 3]> {
        let rows = live.interval(at(end)).unwrap().rows;
        rows.iter().map(|row| [row.calls, row.max_ns, row.total_ns]).collect()
    };
    assert_eq!(shown(1000), [[2, 0, 1000], [1, 100, 100]]);
    assert_eq!(shown(2000), [[0, 1400, 1500], [1, 200, 200]]);
}

/// Events of a thread: time since the last one, whether it is an entry, and of which function.
type Steps = Vec<(u64, bool, u32)>;

/// Number of functions in the recordings below.
const FUNCTIONS: u32 = 3;

/// Returns the events of steps, without returns for which no call is open.
fn events_of(steps: &Steps) -> Vec<Event> {
    let (mut open, mut now, mut events) = (Vec::new(), 0, Vec::new());
    for (pause, enters, site) in steps {
        now += pause;
        let site = if *enters { Some(SiteId(*site)) } else { open.pop() };
        let kind = if *enters { EventKind::Entry } else { EventKind::Exit { pops: 1 } };
        open.extend(site.filter(|_| *enters));
        events.extend(site.map(|site| Event { ticks: now, site, kind }));
    }
    events
}

/// Returns the number of ticks of a range in which the function is open in the thread.
fn open_in(events: &[Event], site: SiteId, range: std::ops::Range<u64>) -> u64 {
    let depth_at = |tick: u64| -> i64 {
        let before = events.iter().filter(|event| event.site == site && event.ticks <= tick);
        before.map(|event| if event.kind == EventKind::Entry { 1 } else { -1 }).sum()
    };
    range.filter(|tick| depth_at(*tick) > 0).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Each function has the time that it was open in the interval, however far the recorder has
    /// read beyond the interval's end.
    #[test]
    fn time_is_that_of_the_interval(
        threads in prop::collection::vec(prop::collection::vec((0..9_u64, any::<bool>(), 0..FUNCTIONS), 0..40), 1..4),
        lengths in prop::collection::vec((1..40_u64, 0..60_u64), 1..8),
    ) {
        let source = recording("a: E f @0; E g @0; E h @0");
        let mut live = Live::default();
        live.record(&Record::Sites { sites: source.meta.sites });
        let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
        live.interval(at(0));
        let threads: Vec<Vec<Event>> = threads.iter().map(events_of).collect();
        let (mut read, mut since, mut furthest) = (vec![0; threads.len()], 0, 0);
        for (length, beyond) in lengths {
            // No event read so far is later than the time at which the next end is announced.
            let end = furthest + length;
            live.interval_ends(at(end));
            for (number, events) in threads.iter().enumerate() {
                // The first thread is read only as far as necessary, each further thread farther.
                let until = end + beyond * number as u64;
                let to = events.partition_point(|event| event.ticks < until).max(read[number]);
                let events = events[read[number]..to].to_vec();
                read[number] = to;
                live.events(&Batch { thread: ThreadId(number as u32), events, ..Batch::default() });
            }
            let interval = live.interval(at(end)).unwrap();
            for row in &interval.rows {
                let open = |events: &Vec<Event>| open_in(events, row.sites[0], since..end);
                prop_assert_eq!(row.total_ns, threads.iter().map(open).sum::<u64>(), "{} in {}..{}", row.function, since, end);
                prop_assert!(row.total_ns <= interval.length_ns * threads.len() as u64);
            }
            (since, furthest) = (end, end + beyond * threads.len() as u64);
        }
    }
}

#[test]
fn function_called_before_first_interval_has_a_row() {
    let source = recording("a: E f @100; X f @300");
    let mut live = Live::default();
    live.record(&Record::Sites { sites: source.meta.sites.clone() });
    live.events(&source.batches[0]);
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    assert_eq!(live.interval(at(500)), None);
    let first = live.interval(at(1500)).unwrap();
    assert_eq!((first.events, first.rows.len(), first.rows[0].calls, first.rows[0].total_ns), (0, 1, 0, 0));
}

#[test]
fn events_without_metadata_are_tolerated() {
    let source = recording("a: E f @100; X f @300");
    let mut live = Live::default();
    live.events(&Batch { thread: ThreadId(9), events: source.batches[0].events.clone(), ..Batch::default() });
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    assert_eq!(live.interval(at(0)), None);
    assert_eq!(live.interval(at(1)).unwrap().rows, []);
}

#[test]
fn every_column_sorts_numbers_down_and_names_up() {
    let mut interval =
        intervals(&["a: E few @0; X few @500; E many @500; X many @510; E many @520; X many @530; E also @540; X also @550; E also @560; X also @570"])
            .remove(0);
    let orders = ["also many few", "few also many", "few also many", "few also many", "also few many"];
    for (column, order) in Column::ALL.into_iter().zip(orders) {
        interval.sort(column);
        let names: Vec<&str> = interval.rows.iter().map(|row| row.function.as_str()).collect();
        assert_eq!(names.join(" "), order, "{}", column.name());
        assert_eq!(column.name().parse(), Ok(column));
    }
    assert!("much".parse::<Column>().is_err_and(|error| error.to_string().contains("calls, total")));
    assert_eq!(Column::Function.next(), Column::Calls);
}

#[test]
fn no_thread_spends_more_than_the_interval_however_late_its_events_come() {
    // The entries are before the interval: in a thread without open calls, and in an unknown
    // thread.
    check(
        &["a: E f @100; X f @200", "a: E f @700; X f @1300; E f @1300; X f @2000\nb: E g @400; X g @1100"],
        &[&["f 1 100 100 100"], &["f 2 650 700 1000", "g 1 700 700 100"]],
    );
}

#[test]
fn a_call_of_a_function_that_was_switched_off_spends_no_time_after_that() {
    check(
        &["a: E m @0; E f @100; off f @200", "a: E g @1500; X g @1600; X m/3 @1900"],
        &[&["f 1 0 0 0", "m 1 0 0 1000"], &["f 0 0 0 0", "g 1 100 100 100", "m 0 1900 1900 900"]],
    );
}
