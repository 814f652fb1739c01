//! Tests of `diff`.

use crate::common::{output, recording, same, site};
use calltap_analysis::diff::{Diff, Finding, Measure, Options, collect};
use calltap_analysis::{MemorySource, Source, Word, report};
use calltap_trace::{ClockKind, Session};

fn compared(a: &MemorySource, b: &MemorySource, options: &Options) -> Diff {
    collect([&[("a.data", a)], &[("b.data", b)]], options, None).unwrap()
}

/// Compares several recordings per side.
fn several(a: &[MemorySource], b: &[MemorySource], options: &Options) -> Diff {
    let named = |name: &'static str, side| -> Vec<(&str, &dyn Source)> {
        Vec::from_iter(<[MemorySource]>::iter(side).map(|source| (name, source as &dyn Source)))
    };
    let (a, b) = (named("a", a), named("b", b));
    collect([&a, &b], options, None).unwrap()
}

fn text(diff: &Diff) -> String {
    output(|out| Ok(diff.write_text(out)?))
}

fn json(diff: &Diff) -> serde_json::Value {
    serde_json::from_str(&output(|out| Ok(diff.write_json(out)?))).unwrap()
}

#[track_caller]
fn check(a: &MemorySource, b: &MemorySource, options: &Options, expected: &str) {
    same(&text(&compared(a, b, options)), expected);
}

/// Makes a recording of calls within `main`: of each function this number, with durations up to a
/// tenth around a mean.
fn calls(of: &[(&str, u64, u64)]) -> MemorySource {
    let (mut now, mut events) = (0, vec!["E main @0".to_owned()]);
    for &(name, number, mean) in of {
        for at in 0..number {
            let duration = mean - mean / 10 + at * 7919 % (mean / 5);
            events.push(format!("E {name} @{now}; X {name} @{}", now + duration));
            now += duration;
        }
    }
    recording(&format!("main: {}; X main @{now}", events.join("; ")))
}

fn columns(list: &[Measure]) -> Options {
    Options { columns: list.to_vec(), ..Options::default() }
}

#[test]
fn differences_are_separated_from_noise() {
    check(
        &calls(&[("f", 100, 1000), ("g", 100, 1000), ("h", 100, 1000)]),
        &calls(&[("f", 100, 1200), ("g", 100, 1010), ("h", 101, 1000)]),
        &Options { all: true, ..columns(&[Measure::Total, Measure::Calls]) },
        "
        # A: a.data: 602 events, 1 thread
        # B: b.data: 604 events, 1 thread
        # beyond the noise within one recording a side (4 standard errors, and 5 %): 2 of 4 functions
        # called too seldom to tell (?): 1 function, first main
           TOTAL A     TOTAL B   CHANGE  CALLS A  CALLS B  CHANGE  MODULE  FUNCTION
        300.150 us  328.396 us  ?+9.4 %        1        1       =  app     main
        100.050 us  126.810 us  +26.7 %      100      100       =  app     f
        100.050 us  101.050 us  ~+1.0 %      100      101  +1.0 %  app     h
        100.050 us  100.536 us  ~+0.5 %      100      100       =  app     g
    ",
    );
}

#[test]
fn variance_of_calls_widens_noise_of_sums() {
    // The mean is 100 ns more: of calls that are alike, and of calls of which one took most of the
    // time.
    let alike = |mean| calls(&[("f", 100, mean)]);
    let wild = |mean| calls(&[("f", 100, mean), ("f", 1, 100_000)]);
    let options = columns(&[Measure::SelfTime]);
    assert!(compared(&alike(1000), &alike(1100), &options).differs());
    assert!(!compared(&wild(1000), &wild(1100), &options).differs());
    // A single outlier does not affect percentiles.
    assert!(compared(&wild(1000), &wild(1300), &columns(&[Measure::P50])).differs());
    // A change below 5 % is not reported, however many calls there are, unless `min_change` is
    // lower.
    assert!(!compared(&alike(1000), &alike(1045), &options).differs());
    assert!(compared(&alike(1000), &alike(1045), &Options { min_change: 0.01, ..options.clone() }).differs());
}

#[test]
fn the_same_recording_twice_does_not_differ() {
    let source = calls(&[("f", 100, 1000), ("g", 3, 77)]);
    let every = columns(&Measure::ALL);
    assert!(!compared(&source, &source, &every).differs());
    assert!(!compared(&source, &source, &Options { by_path: true, ..Options::default() }).differs());
}

#[test]
fn functions_come_and_go() {
    check(
        &recording("main: E main @0; E old @1000; X old @3000; X main @4000"),
        &recording("main: E main @0; E new @1000; X new @3000; X main @4000"),
        &columns(&[Measure::Total, Measure::Calls]),
        "
        # A: a.data: 4 events, 1 thread
        # B: b.data: 4 events, 1 thread
        # beyond the noise within one recording a side (4 standard errors, and 5 %): 2 of 3 functions
         TOTAL A   TOTAL B  CHANGE  CALLS A  CALLS B  CHANGE  MODULE  FUNCTION
            0 ns  2.000 us     new        0        1     new  app     new
        2.000 us      0 ns    gone        1        0    gone  app     old
    ",
    );
}

#[test]
fn paths_locate_differences() {
    let program = |one: u64, two: u64| {
        let call = |at: u64, by: &str, long: u64| {
            let (from, to) = (at * 10_000, at * 10_000 + long + at % 7);
            format!("E {by} @{from}; E leaf @{from}; X leaf @{to}; X {by} @{to}")
        };
        let calls: Vec<String> =
            (0..40).map(|at| if at % 2 == 0 { call(at, "one", one) } else { call(at, "two", two) }).collect();
        recording(&format!("main: {}", calls.join("; ")))
    };
    check(
        &program(500, 500),
        &program(500, 700),
        &Options { by_path: true, columns: vec![Measure::SelfTime, Measure::Avg], ..Options::default() },
        "
        # A: a.data: 160 events, 1 thread
        # B: b.data: 160 events, 1 thread
        # beyond the noise within one recording a side (4 standard errors, and 5 %): 2 of 4 paths
           SELF A     SELF B   CHANGE   AVG A   AVG B   CHANGE  MODULE  PATH
        10.057 us  14.057 us  +39.8 %  502 ns  702 ns  +39.8 %  app     two > leaf
             0 ns       0 ns        =  502 ns  702 ns  +39.8 %  app     two
    ",
    );
}

fn with_clock(clock: ClockKind) -> MemorySource {
    let mut source = recording("main: E f @0; X f @10");
    source.meta.session = Some(Session::of(clock));
    source.ns_per_tick = u64::from(clock != ClockKind::Counter);
    source
}

#[test]
fn times_of_different_clocks_are_not_compared() {
    let more = |clock| {
        let mut source = recording("main: E f @0; X f @900; E f @1000; X f @1100");
        source.meta.session = Some(Session::of(clock));
        source
    };
    let (tsc, counter) = (with_clock(ClockKind::Tsc), with_clock(ClockKind::Counter));
    check(
        &tsc,
        &more(ClockKind::Sparse),
        &Options::default(),
        "
        # A: a.data: 2 events, 1 thread
        # B: b.data: 4 events, 1 thread
        # B: sparse clock: times between its readings are interpolated, and how long a call ran or waited is not exact
        # B: sparse clock: calls that an exception or longjmp left stay open, with later calls beneath them, until an outer call returns
        # the clock of A is tsc, that of B is sparse: only calls are compared
        # beyond the noise within one recording a side (4 standard errors, and 5 %): 1 of 1 function
        CALLS A  CALLS B    CHANGE  MODULE  FUNCTION
              1        2  +100.0 %  app     f
    ",
    );
    let says = "A has no times (its clock is counter): only calls are compared";
    assert_eq!(compared(&counter, &tsc, &Options::default()).restriction(), Some(says));
    let options = Options { conditions: vec!["total(f)>1x".parse().unwrap()], ..Options::default() };
    let error = collect([&[("a", &counter)], &[("b", &tsc)]], &options, None).err().unwrap();
    assert_eq!(error.to_string(), format!("'total(f)>1x' cannot be tried: {says}"));
    assert_eq!(
        json(&compared(&tsc, &counter, &Options::default()))["functions"][0]["total_ns"],
        serde_json::Value::Null
    );
}

/// Returns the sentences about conditions that hold, with five equal recordings per side.
fn tried(a: &MemorySource, b: &MemorySource, conditions: &[&str]) -> Result<Vec<String>, String> {
    let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
    // The filter does not affect conditions.
    let options = Options { conditions, filter: vec![Word::new("nothing")], ..Options::default() };
    let by_path = Options { by_path: true, ..options.clone() };
    let tried = |options| {
        let five = |source: &'static str, recording| [(source, recording as &dyn Source); 5];
        let diff =
            collect([&five("a", a), &five("b", b)], options, None).map_err(|error| error.to_string())?;
        Ok(diff.outcomes.iter().flat_map(|outcome| outcome.sentences()).collect())
    };
    let sentences = tried(&options);
    assert_eq!(sentences, tried(&by_path));
    sentences
}

#[test]
fn conditions_hold_or_not() {
    let a = calls(&[("f", 100, 1000), ("std::swap<int>(int&)", 20, 500), ("gone", 1, 10)]);
    let b = calls(&[("f", 100, 1200), ("std::swap<int>(int&)", 20, 500), ("fresh", 7, 10)]);
    let hold = |condition: &str| tried(&a, &b, &[condition]);
    let one = |text: &str| Ok(vec![text.to_owned()]);
    assert_eq!(hold("total(f)>1.1x"), one("total(f)>1.1x: f has 100.050 us in A, 126.810 us in B (1.27x)"));
    assert_eq!(hold("total(f)>1.5x"), Ok(vec![]));
    assert_eq!(hold("p99(f)>1ms"), Ok(vec![]));
    assert_eq!(hold("calls(fresh)>0"), one("calls(fresh)>0: fresh has 0 in A, 7 in B"));
    assert_eq!(hold("calls(gone)<1x"), one("calls(gone)<1x: gone has 1 in A, 0 in B (0.00x)"));
    assert_eq!(hold("calls(std::swap<int>(int&))<=20").map(|all| all.len()), Ok(1));
    assert_eq!(
        hold("avg(main)>1.1x"),
        one("avg(main)>1.1x: main has 109.969 us in A, 136.786 us in B (1.24x)")
    );
    assert_eq!(tried(&a, &b, &["avg(*)>1.15x", "calls(f)>99"]).map(|all| all.len()), Ok(4));
}

/// Makes a recording for each mean: `f` is called 20 times, 5 ns shorter or longer than it, and `g`
/// 20 times for 1 us.
fn recordings(means: &[u64]) -> Vec<MemorySource> {
    let of_mean = |mean: &u64| {
        let call = |at: u64| {
            let (from, long) = (at * 10_000, if at.is_multiple_of(2) { mean - 5 } else { mean + 5 });
            format!("E f @{from}; X f @{}; E g @{}; X g @{}", from + long, from + 5000, from + 6000)
        };
        recording(&format!("main: {}", (0..20).map(call).collect::<Vec<_>>().join("; ")))
    };
    means.iter().map(of_mean).collect()
}

#[test]
fn several_recordings_measure_noise() {
    // The calls of one recording are much alike, but some recordings are slow as a whole.
    let (a, b) = (recordings(&[1000, 1300, 1010, 1400, 1000]), recordings(&[1300, 1400, 1350, 1000, 1500]));
    let options = columns(&[Measure::Avg]);
    assert!(compared(&a[0], &b[0], &options).differs());
    let diff = several(&a, &b, &Options { all: true, filter: vec![Word::new("[fg]")], ..options.clone() });
    same(
        &text(&diff),
        "
        # A: a: 80 events, 1 thread
        # A: a: 80 events, 1 thread
        # A: a: 80 events, 1 thread
        # A: a: 80 events, 1 thread
        # A: a: 80 events, 1 thread
        # B: b: 80 events, 1 thread
        # B: b: 80 events, 1 thread
        # B: b: 80 events, 1 thread
        # B: b: 80 events, 1 thread
        # B: b: 80 events, 1 thread
        # beyond the noise between recordings (99.9 % confidence, and 5 %): 0 of 2 functions
           AVG A     AVG B          CHANGE  MODULE  FUNCTION
        1.142 us  1.310 us  ~+14.7 % ±64.3  app     f
        1.000 us  1.000 us               =  app     g
    ",
    );
    // All recordings of a side are about as slow as each other.
    let (a, b) = (recordings(&[1000, 1010, 1020, 1000, 1010]), recordings(&[1110, 1100, 1120, 1100, 1110]));
    let diff = several(&a, &b, &options);
    assert!(diff.differs());
    let change = &json(&diff)["functions"][0]["avg_ns"]["change"];
    let (low, high) = (change["low"].as_f64().unwrap(), change["high"].as_f64().unwrap());
    assert!(low > 0.0 && low < 100.0 && high > 100.0 && high < 200.0, "{change}");
}

/// Returns the outcome of a condition, and the sentences about it.
fn found(a: &[MemorySource], b: &[MemorySource], condition: &str) -> (Finding, Vec<String>) {
    let options = Options { conditions: vec![condition.parse().unwrap()], ..Options::default() };
    let outcome = several(a, b, &options).outcomes.remove(0);
    let said = outcome.sentences().into_iter().chain(outcome.doubt()).chain(outcome.lack()).collect();
    (outcome.finding, said)
}

#[test]
fn a_condition_on_times_needs_several_recordings() {
    let (a, b) = (recordings(&[1000]), recordings(&[2000]));
    let (finding, said) = found(&a, &b, "avg(f)>1.1x");
    assert_eq!(finding, Finding::TooFewRecordings([1, 1]));
    assert_eq!(
        said,
        ["avg(f)>1.1x: not enough evidence: 5 recordings a side are needed, A has 1 and B has 1"]
    );
    // A condition that does not hold is not tried either: one recording can never prove it.
    assert_eq!(found(&b, &a, "avg(f)>1.1x").0, Finding::TooFewRecordings([1, 1]));
    // A number is compared with B alone.
    assert_eq!(found(&a, &recordings(&[2000; 5]), "avg(f)>1us").0, Finding::Holds);
    assert_eq!(found(&a, &recordings(&[2000; 4]), "avg(f)>1us").0, Finding::TooFewRecordings([1, 4]));
    // Call counts need no evidence.
    assert_eq!(found(&a, &b, "calls(f)>=20").0, Finding::Holds);
    assert_eq!(found(&a, &b, "calls(f)>1x").0, Finding::HoldsNot);
}

/// Load that begins between two rows of recordings slows all of one side.
#[test]
fn a_condition_on_times_needs_recordings_in_turn() {
    let begun = |means: &[u64], at: fn(u64) -> u64| -> Vec<MemorySource> {
        let mut all = recordings(means);
        for (n, source) in (0..).zip(&mut all) {
            let session = Session { start_realtime_ns: at(n), ..Session::of(ClockKind::Tsc) };
            source.meta.session = Some(session);
        }
        all
    };
    let (slow, fast) = ([2000, 2010, 2020, 2000, 2010], [1000, 1010, 1020, 1000, 1010]);
    let a = begun(&fast, |n| 1 + n);
    let (finding, said) = found(&a, &begun(&slow, |n| 10 + n), "avg(f)>1.1x");
    assert_eq!(finding, Finding::NotAlternated);
    assert!(said.len() == 1 && said[0].contains("record A and B in turn, in two blocks each"), "{said:?}");
    assert_eq!(found(&a, &begun(&slow, |n| 10 + n), "avg(f)>1us").0, Finding::Holds);
    assert_eq!(found(&a, &begun(&slow, |n| 10 + n), "avg(f)>3x").0, Finding::HoldsNot);
    let in_turn = found(&begun(&fast, |n| 1 + 2 * n), &begun(&slow, |n| 2 + 2 * n), "avg(f)>1.1x");
    assert_eq!(in_turn.0, Finding::Holds);
}

#[test]
fn numbers_of_calls_that_vary_need_several_recordings_too() {
    let recordings = |numbers: &[u64]| -> Vec<MemorySource> {
        numbers.iter().map(|number| calls(&[("f", *number, 1000)])).collect()
    };
    let few = found(&recordings(&[10, 12]), &recordings(&[13, 14]), "calls(f)>1x");
    assert_eq!(few.0, Finding::TooFewRecordings([2, 2]));
    let a = recordings(&[10, 30, 20, 25, 15]);
    assert_eq!(found(&a, &recordings(&[25, 35, 15, 20, 10]), "calls(f)>1x").0, Finding::HoldsNot);
    assert_eq!(found(&a, &recordings(&[125, 135, 115, 120, 110]), "calls(f)>2x").0, Finding::Holds);
}

#[test]
fn a_condition_holds_with_its_whole_confidence_interval_or_not() {
    let a = recordings(&[1000, 1010, 1020, 1000, 1010]);
    let (finding, said) = found(&a, &recordings(&[1210, 1200, 1220, 1200, 1210]), "avg(f)>1.1x");
    assert_eq!(finding, Finding::Holds);
    assert_eq!(said, ["avg(f)>1.1x: f has 1.008 us in A, 1.208 us in B (1.20x, at least 1.17x)"]);
    let (finding, said) = found(&a, &recordings(&[1210, 1000, 1320, 1100, 1210]), "avg(f)>1.1x");
    assert_eq!(finding, Finding::HoldsNot);
    assert_eq!(
        said,
        [
            "avg(f)>1.1x: f has 1.008 us in A, 1.168 us in B (1.16x, at least 0.77x): not proven; more recordings may tell"
        ]
    );
    let (finding, said) = found(&a, &a, "avg(f)>1.1x");
    assert_eq!((finding, said.len()), (Finding::HoldsNot, 0));
    assert_eq!(found(&a, &recordings(&[500, 510, 520, 500, 510]), "avg(f)<0.6x").0, Finding::Holds);
}

#[test]
fn a_condition_on_an_unknown_function_names_the_nearest() {
    let source = calls(&[("parse_line", 10, 100), ("parse_lines", 10, 100)]);
    let error = tried(&source, &source, &["total(parse_lnie)>1x"]).unwrap_err();
    assert_eq!(error, "no recorded function matches 'parse_lnie'; similar: parse_line, parse_lines");
    // A function that was traced and never called is known.
    let mut more = source.clone();
    site(&mut more, "never");
    assert_eq!(tried(&source, &more, &["calls(never)>0"]), Ok(vec![]));
}

#[test]
fn conditions_on_times_need_times() {
    let marks = recording("main: C f @0; C f @10");
    let error = tried(&marks, &marks, &["avg(f)>1x"]).unwrap_err();
    assert_eq!(error, "'avg(f)>1x' cannot be tried: the calls of 'f' were not timed");
    assert_eq!(tried(&marks, &marks, &["calls(f)>1x"]), Ok(vec![]));
}

#[test]
fn a_function_is_the_same_in_another_build() {
    let named = |symbol: &str, module: &str, from: u64| {
        let mut source = recording(&format!("main: E f @{from}; X f @{}", from + 1000));
        source.meta.sites[0].name = symbol.to_owned();
        source.meta.sites[0].address += from;
        source.meta.modules[0].path = module.to_owned();
        source
    };
    let functions = |b: &MemorySource, linker_names| {
        let a = named("_ZN4core3fmt5write17h0123456789abcdefE", "/old/prog", 0);
        json(&compared(&a, b, &Options { linker_names, ..Options::default() }))["functions"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(functions(&named("_ZN4core3fmt5write17hfedcba9876543210E", "/new/prog", 64), false), 1);
    assert_eq!(functions(&named("_ZN4core3fmt5write17h0123456789abcdefE", "/new/prog-2", 64), false), 1);
    assert_eq!(functions(&named("_ZN4core3fmt5write17hfedcba9876543210E", "/new/prog", 64), true), 2);
}

#[test]
fn json_has_everything_and_the_sums_are_those_of_report() {
    let a = recording("main: E f @0; E f @10; X f @30; E g @30; X g @35; X f @50; C tick @60; L 4/3 @70");
    let b = recording("main: E f @0; X f @20");
    let options = Options { conditions: vec!["calls(f)<1x".parse().unwrap()], ..Options::default() };
    let json = json(&compared(&a, &b, &options));
    assert_eq!((&json["calltap_diff"], &json["compared"]), (&1.into(), &"times".into()));
    assert_eq!((&json["a"]["file"], &json["a"]["lost_calls"]), (&"a.data".into(), &4.into()));
    assert_eq!(json["conditions"][0]["holds_of"][0]["function"], "f");
    let percentiles = vec![report::Column::P50, report::Column::P999];
    for (side, source) in [("a", &a), ("b", &b)] {
        let columns = [
            &["total", "self", "calls", "avg", "min", "max", "stdev"]
                .iter()
                .map(|name| name.parse().unwrap())
                .collect(),
            &percentiles,
        ]
        .map(Vec::clone)
        .concat();
        let options = report::Options { columns, ..report::Options::default() };
        for row in report::collect(source, &options, None).unwrap().rows {
            let found =
                json["functions"].as_array().unwrap().iter().find(|f| f["function"] == row.function).unwrap();
            assert_eq!(found["calls"][side], row.calls);
            let Some(times) = row.times else { continue };
            let [p50, _, _, p999] = times.percentiles_ns.unwrap();
            for (key, ns) in [
                ("total_ns", times.total_ns),
                ("self_ns", times.self_ns),
                ("avg_ns", times.avg_ns),
                ("max_ns", times.max_ns),
                ("p50_ns", p50),
                ("p99_9_ns", p999),
            ] {
                assert_eq!(found[key][side], ns, "{key} of {}", row.function);
            }
        }
    }
}
