//! Functions by interval: what counts where, and in which order it is shown.

use crate::common::recording;
use calltap_analysis::live::{Column, Interval, Live};
use calltap_trace::{Batch, ClockPair, Record, ThreadId};

/// Intervals of a microsecond with the events of `texts` in them.
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

/// `function calls avg max total`, of every row.
fn check(texts: &[&str], expected: &[&[&str]]) {
    let shown = |interval: &Interval| -> Vec<String> {
        let rows = interval.rows.iter();
        rows.map(|r| format!("{} {} {} {} {}", r.function, r.calls, r.avg_ns, r.max_ns, r.total_ns)).collect()
    };
    assert_eq!(intervals(texts).iter().map(shown).collect::<Vec<_>>(), expected);
}

#[test]
fn calls_count_where_they_begin_and_durations_where_they_end() {
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
fn time_is_that_of_the_outermost_call_also_while_it_goes_on() {
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
fn what_was_lost_and_what_was_only_seen_is_counted() {
    let [first, second] = &intervals(&["a: C f @10; C f @20; L 4/3 @50", "a: C f @1010"])[..] else {
        panic!()
    };
    assert_eq!((first.events, first.lost, first.rows[0].calls), (3, 7, 2));
    assert_eq!((second.events, second.lost, second.rows[0].calls), (1, 0, 1));
    assert_eq!((second.rate(5), second.percent(250)), (5e6, 25.0));
}

#[test]
fn a_thread_that_ends_takes_its_open_calls_with_it() {
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
fn the_time_of_events_that_come_late_is_not_made_up_and_not_forgotten() {
    let source = recording("a: E f @100; E g @300; X g @400\na: X f @900; E h @950\na: X h @1800");
    let mut live = Live::default();
    live.record(&Record::Sites { sites: source.meta.sites.clone() });
    let at = |ns| ClockPair { ticks: ns, monotonic_ns: ns };
    live.interval(at(0));
    let mut totals = |batch: usize, behind: bool, end: u64| -> Vec<u64> {
        live.events(&source.batches[batch]);
        if behind {
            live.behind(ThreadId(0));
        }
        live.interval(at(end)).unwrap().rows.iter().map(|row| row.total_ns).collect()
    };
    assert_eq!(totals(0, true, 1000), [300, 100]);
    assert_eq!(totals(1, true, 2000), [500, 0, 0]);
    assert_eq!(totals(2, false, 3000), [0, 0, 850]);
}

#[test]
fn who_was_called_before_the_first_interval_has_a_row_in_it() {
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
fn events_that_nothing_explains_do_no_harm() {
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
    assert!("much".parse::<Column>().is_err_and(|error| error.contains("calls, total")));
    assert_eq!(Column::Function.next(), Column::Calls);
}

#[test]
fn no_thread_spends_more_than_the_interval_however_late_its_events_come() {
    // They happened before the interval began: of a thread without open calls, and of one that was not known.
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
