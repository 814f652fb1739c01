//! Tests of the list of goroutines.

use crate::common::{output, recording, rows};
use calltap_analysis::goroutines::{Options, write};
use calltap_analysis::report::Format;
use calltap_analysis::{MemorySource, Source};
use calltap_trace::*;

/// Makes a recording of goroutines: `name number starter function`, with the calls of `name`. A
/// function is the place of a traced one, `-` unknown, or an address.
fn started(calls: &str, goroutines: &[(&str, u64, u64, &str)]) -> MemorySource {
    let mut source = recording(calls);
    for (name, number, by, function) in goroutines {
        let site = source.meta.sites.iter().find(|site| site.name == *function).map(|site| site.address);
        let bias = source.meta.modules[0].bias;
        let function = match *function {
            "-" => None,
            "0" => Some(0),
            _ => Some(site.expect("a traced function") + bias),
        };
        let thread = source.meta.threads.iter_mut().find(|thread| thread.comm == *name).expect("a thread");
        thread.goroutine = Some(*number);
        thread.started = function.map(|function| GoStart { by: *by, function });
    }
    source
}

fn text(source: &dyn Source) -> String {
    let text = output(|out| write(source, Options::default(), Format::Text, out, None));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn json(source: &dyn Source, limit: usize) -> serde_json::Value {
    let options = Options { limit: Some(limit), ..Options::default() };
    let json = output(|out| write(source, options, Format::Json, out, None));
    serde_json::from_str(&rows(&json)).expect("JSON")
}

const CALLS: &str = "a: E main @1ms; X main @90ms
    b: E work @20ms; E runtime.gopark @30ms; X runtime.gopark @34ms; X work @40ms
    c: E work @22ms; X work @23ms
    d: E leaf @25ms; X leaf @26ms
    thread: E main @1ms; X main @2ms";

#[test]
fn each_goroutine_is_below_its_starter() {
    let mut source =
        started(CALLS, &[("d", 9, 6, "leaf"), ("a", 1, 0, "main"), ("c", 7, 1, "work"), ("b", 6, 1, "work")]);
    source.meta.session = None;
    let expected = "CALLS FIRST SEEN WAITED GOROUTINE STARTED BY FUNCTION
1 0 ns 89.000 ms ? 1 runtime main
2 19.000 ms 20.000 ms ? 6 1 work
1 24.000 ms 1.000 ms ? 9 6 leaf
1 21.000 ms 1.000 ms ? 7 1 work
";
    assert_eq!(text(&source), expected);
    let rows = json(&source, 2);
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");
    assert_eq!((&rows[0]["started_by"], &rows[1]["started_by"]), (&0.into(), &1.into()), "{rows}");
}

/// Returns a session with one tracer.
fn session(kind: TracerKind) -> Session {
    let (filter, notrace) = (Vec::new(), Vec::new());
    let tracer = TracerInfo { id: 0, name: "t".to_owned(), kind, filter, notrace };
    Session { tracers: vec![tracer], ..Session::of(ClockKind::Tsc) }
}

#[test]
fn waits_need_recorded_returns_of_gopark() {
    let mut source = started(CALLS, &[("b", 6, 1, "work"), ("a", 1, 0, "main")]);
    for (kind, expected) in [
        (TracerKind::FunctionGraph, serde_json::json!([0, 4_000_000])),
        (TracerKind::Function, serde_json::json!([null, null])),
    ] {
        source.meta.session = Some(session(kind));
        let rows = json(&source, 9);
        let waited: Vec<_> =
            rows.as_array().expect("rows").iter().map(|row| row["waited_ns"].clone()).collect();
        assert_eq!(serde_json::Value::from(waited), expected, "{kind:?}");
    }
}

#[test]
fn a_wait_that_is_not_over_has_no_length() {
    let mut source = started(
        "a: E main @1ms; E runtime.gopark @5ms; X runtime.gopark @7ms; E runtime.gopark @8ms",
        &[("a", 1, 0, "main")],
    );
    source.meta.session = Some(session(TracerKind::FunctionGraph));
    let rows = json(&source, 9);
    assert_eq!(
        (&rows[0]["waited_ns"], &rows[0]["waits_at_end"]),
        (&2_000_000.into(), &true.into()),
        "{rows}"
    );
    assert!(text(&source).contains(" >2.000 ms 1 runtime main"), "{}", text(&source));
}

#[test]
fn unknown_goroutines_are_not_guessed() {
    // A program of an old version, a goroutine of a thread of C, and a circle of starters in a
    // damaged trace.
    let source =
        started(CALLS, &[("a", 1, 0, "-"), ("b", 5, 0, "0"), ("c", 7, 8, "work"), ("d", 8, 7, "leaf")]);
    let rows = json(&source, 9);
    let of = |number: u64| {
        let mut rows = rows.as_array().expect("rows").iter();
        rows.find(|row| row["goroutine"] == number).expect("a row").clone()
    };
    for number in [1, 5] {
        let row = of(number);
        assert!(row["started_by"].is_null() && row["function"].is_null(), "{row}");
    }
    assert_eq!((&of(7)["started_by"], &of(8)["started_by"]), (&8.into(), &7.into()));
}
