//! Tests of the answers about functions.

use crate::common::{recording, same};
use calltap_analysis::answers::{
    Buckets, By, Count, CountBy, Form, Histogram, Latency, Lines, Listener, QueryContext, Question, Side,
    Spans, Stacks, Widths,
};
use calltap_analysis::{MemorySource, Word};
use calltap_trace::{Callers, Captured, SiteId, Value as Captures, ValueForm};
use serde_json::{Value, json};

fn ask<Q: Question>(events: &str, globs: &[&str], question: Q) -> Listener<Q> {
    ask_recording(&recording(events), globs, question)
}

fn ask_recording<Q: Question>(source: &MemorySource, globs: &[&str], question: Q) -> Listener<Q> {
    let globs = globs.iter().map(|glob| Word::new(glob)).collect();
    let mut listener = Listener::new(QueryContext::new(globs, false, None), question);
    listener.read(source, None, &mut |_| false);
    listener
}

const NESTED: &str =
    "main: E main @0; E f @10; E g @20; E f @30; X f @40; X g @50; X f @110; E g @120; L 3/2 @125; E f @130";

#[test]
fn calls_are_counted_also_those_that_are_not_over() {
    let counted = ask(NESTED, &["f", "absent*"], Count::new(None));
    assert_eq!(counted.json("count")["functions"], json!([{ "function": "f", "module": "app", "calls": 3 }]));
    assert_eq!(
        (&counted.json("count")["lost"], &counted.json("count")["calltap_count"]),
        (&5.into(), &1.into())
    );
    let limited = ask(NESTED, &["*"], Count::new(Some(1)));
    assert!(limited.question.text(&limited.known).contains("# 2 functions not shown"));
}

#[test]
fn every_call_of_a_recursion_has_its_duration_and_open_ones_none() {
    let latency = ask(NESTED, &["f"], Latency::new(Buckets::Linear(50), By::Caller));
    let rows = latency.json("latency")["functions"].clone();
    let of = |caller: &str| -> Value {
        let rows = rows.as_array().expect("rows");
        rows.iter().find(|row| row["caller"] == caller).cloned().unwrap_or_else(|| panic!("{rows:?}"))
    };
    assert_eq!((&of("main")["calls"], &of("main")["total_ns"]), (&1.into(), &100.into()));
    assert_eq!(of("main")["buckets"], json!([{ "from_ns": 100, "to_ns": 150, "calls": 1 }]));
    let inner = of("g");
    assert_eq!((&inner["calls"], &inner["timed"], &inner["max_ns"]), (&2.into(), &1.into(), &10.into()));
}

#[test]
fn a_caller_is_known_by_its_return_address() {
    // g is at 0x1100 of the module mapped at 0x400000; an unmapped address is shown as a number.
    let events = "main: E f <-0x401110 @0; X f @5; E g @6; X g @7; E f <-0x7 @10; X f @11";
    let latency = ask(events, &["f"], Latency::new(Buckets::Log2, By::Caller)).json("latency");
    let callers: Vec<&Value> =
        latency["functions"].as_array().expect("rows").iter().map(|row| &row["caller"]).collect();
    assert_eq!(callers, ["g", "0x7"]);
}

#[test]
fn paths_are_listed_separately() {
    let stacks = ask(NESTED, &["f"], Stacks::new(None));
    same(
        &stacks.question.text(&stacks.known),
        "
        # these paths have the traced functions only, others are left out: name the functions ('stacks FUNCTION', or 'record -A FUNCTION@$callers') to have their callers unwound

        1 call, 100 ns, avg 100 ns, max 100 ns
            main
            f

        1 call, 10 ns, avg 10 ns, max 10 ns
            main
            f
            g
            f

        1 call; of them without a duration: 1 open at the end
            main
            g
            f

    ",
    );
}

#[test]
fn lines_are_of_calls_that_take_longer() {
    let mut slower = ask(NESTED, &["f", "g"], Lines::new(Form::Text, Some(20), None));
    let lines = slower.question.take();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.starts_with("# callers are the traced functions around a call"), "{lines}");
    assert!(lines.contains("30 ns  g  <- f") && lines.contains("100 ns  f  <- main"), "{lines}");
    let mut two = ask(NESTED, &["f", "g"], Lines::new(Form::Json("v"), None, Some(2)));
    assert!(two.question.is_full());
    assert_eq!(two.question.take().lines().count(), 2);
}

#[test]
fn recursion_sums_outermost_calls_only() {
    let slower = ask(NESTED, &["f"], Lines::new(Form::Text, Some(5), None)).json("slower");
    let row = &slower["functions"][0];
    assert_eq!((&row["slower"], &row["slower_ns"], &row["max_ns"]), (&2.into(), &100.into(), &100.into()));
    let latency = ask(NESTED, &["f"], Latency::new(Buckets::Log2, By::Function));
    assert_eq!(latency.json("latency")["functions"][0]["total_ns"], 100);
    assert!(latency.question.text(&latency.known).contains("3 calls, avg 55 ns"));
    // Calls of two threads overlap.
    let beside =
        ask("a: E f @10\nb: E f @10\na: X f @20\nb: X f @30", &["f"], Lines::new(Form::Text, None, None));
    assert_eq!(beside.json("slower")["functions"][0]["slower_ns"], 30);
}

/// Makes a recording in which f is called within g. Each element has the unwound callers of a call
/// of f and whether they are complete; `None`: the copy of the stack was lost.
fn unwound(calls: &[Option<(&[u64], bool)>]) -> MemorySource {
    let events: Vec<String> =
        (0..calls.len()).map(|n| format!("E f @{}; X f @{}", 10 * n + 1, 10 * n + 6)).collect();
    let mut source = recording(&format!("main: E g @0; {}; X g @1000", events.join("; ")));
    let f = source.meta.sites.iter().position(|site| site.name == "f").expect("f");
    let form = ValueForm::Callers;
    let arguments = vec![Captures { name: "callers".to_owned(), form }];
    source.meta.sites[f].captured = Some(Captured { arguments, ..Captured::default() }.into());
    let batch = &mut source.batches[0];
    let entries = (0..).zip(&batch.events).filter(|(_, event)| event.site == SiteId(f as u32));
    let entries: Vec<usize> = entries.map(|(n, _)| n).step_by(2).collect();
    for (entry, (addresses, whole)) in
        entries.into_iter().zip(calls).filter_map(|(n, call)| Some((n, (*call)?)))
    {
        let mut bytes = vec![0, 0];
        Callers { addresses: addresses.to_vec(), whole }.write(&mut bytes);
        batch.values.add(entry, &bytes);
    }
    source
}

#[test]
fn paths_that_were_unwound_have_functions_that_are_not_traced() {
    // g lies at 0x401000; 0x402000 is code without symbols.
    let way: (&[u64], bool) = (&[0x40_2010, 0x40_1010], true);
    let source = unwound(&[Some(way), Some(way), Some((&[0x40_1010], false)), None]);
    let stacks = ask_recording(&source, &["f"], Stacks::new(None));
    same(
        &stacks.question.text(&stacks.known),
        "
        2 calls, 10 ns, avg 5 ns, max 5 ns
            g
            app+0x2010
            f

        1 call, 5 ns, avg 5 ns, max 5 ns
            [unknown]
            g
            f

        1 call, 5 ns, avg 5 ns, max 5 ns
            [unknown]
            f

    ",
    );
    assert_eq!(stacks.json("stacks")["unwound_calls"], 4);
}

#[test]
fn lines_show_all_callers_that_were_unwound() {
    let source = unwound(&[Some((&[0x40_2010, 0x40_1010], true)), Some((&[0x40_1010], false))]);
    let mut lines = ask_recording(&source, &["f"], Lines::new(Form::Text, None, None));
    let text = lines.question.take();
    let callers: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("  <- ")?.1)).collect();
    assert_eq!(callers, ["app+0x2010  <- g", "g  <- [unknown]"], "{text}");
    let latency = ask_recording(&source, &["f"], Latency::new(Buckets::Log2, By::Caller)).json("latency");
    assert_eq!(
        (&latency["functions"][0]["caller"], &latency["traced_callers_only"]),
        (&"app+0x2010".into(), &0.into())
    );
}

/// Makes a recording in which a 64-bit number is captured at each entry and return of some
/// functions, in order.
fn with_numbers(events: &str, numbers: &[(&str, bool, i64)]) -> MemorySource {
    let mut source = recording(events);
    let value = |name: &str| vec![Captures { name: name.to_owned(), form: ValueForm::Signed(8) }];
    for site in &mut source.meta.sites {
        let captured = Captured { arguments: value("arg1"), results: value("retval"), ..Captured::default() };
        site.captured = Some(captured.into());
    }
    let mut next = vec![0; source.meta.sites.len() * 2];
    for batch in &mut source.batches {
        for (place, event) in batch.events.iter().enumerate() {
            let returns = matches!(event.kind, calltap_trace::EventKind::Exit { .. });
            let site = &source.meta.sites[event.site.0 as usize];
            let nth = &mut next[event.site.0 as usize * 2 + usize::from(returns)];
            let mut of_it = numbers.iter().filter(|(name, exits, _)| *name == site.name && *exits == returns);
            if let Some((.., number)) = of_it.nth(*nth) {
                *nth += 1;
                batch.values.add(place, &[&[0, 0], &number.to_le_bytes()[..]].concat());
            }
        }
    }
    source
}

fn sides(begin: (&str, bool), end: (&str, bool)) -> [Side; 2] {
    [begin, end].map(|(item, returns)| Side { text: item.to_owned(), item: item.to_owned(), returns })
}

#[test]
fn spans_join_calls_of_any_threads_by_value() {
    let source = with_numbers(
        "a: E f @10; X f @15; E f @20; X f @25; E f @30; X f @35
         b: E g @40; X g @41; E g @60; X g @61; E g @70; X g @71",
        &[
            ("f", false, 7),
            ("f", false, 8),
            ("f", false, 9),
            ("g", false, 8),
            ("g", false, 7),
            ("g", false, 5),
            ("f", true, 8),
            ("f", true, 7),
            ("f", true, 1),
        ],
    );
    let by_argument = Spans::new(sides(("arg1", false), ("arg1", false)), Buckets::Log2, 10);
    let answer = ask_recording(&source, &["f", "g"], by_argument).json("span");
    let slowest: Vec<(u64, &str)> = answer["slowest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| (span["duration_ns"].as_u64().unwrap(), span["value"].as_str().unwrap()))
        .collect();
    assert_eq!(slowest, [(50, "7"), (20, "8")]);
    let of = |key: &str| answer[key].as_u64();
    assert_eq!(
        (of("unfinished"), of("ended_without_start"), of("unknown")),
        (Some(1), Some(1), Some(0)),
        "{answer}"
    );
    // The result of f begins the spans.
    let by_result = Spans::new(sides(("retval", true), ("arg1", false)), Buckets::Log2, 10);
    let answer = ask_recording(&source, &["f", "g"], by_result).json("span");
    assert_eq!((&answer["min_ns"], &answer["max_ns"]), (&25.into(), &35.into()), "{answer}");
}

#[test]
fn spans_in_which_anything_was_lost_are_unknown() {
    let source = with_numbers(
        "a: E f @10; X f @11; E g @20; X g @21; E f @30; X f @31; E f @80; X f @81
         b: E h @35; X h @36; L 1/1 @40; E g @50; X g @51; E g @90; X g @91",
        &[
            ("f", false, 1),
            ("g", false, 1),
            ("f", false, 2),
            ("g", false, 2),
            ("f", false, 3),
            ("g", false, 3),
        ],
    );
    let spans = Spans::new(sides(("arg1", false), ("arg1", false)), Buckets::Log2, 10);
    let answer = ask_recording(&source, &["f", "g"], spans);
    let json = answer.json("span");
    assert_eq!(
        (&json["spans"], &json["unknown"], &json["unfinished"]),
        (&2.into(), &1.into(), &0.into()),
        "{json}"
    );
    assert!(answer.question.text(&answer.known).contains("# 1 unknown: events were lost while open"));
}

#[test]
fn percentiles_are_of_the_calls_that_returned() {
    let events: Vec<String> = (1..=100).map(|n| format!("E f @{}; X f @{}", n * 1000, n * 1001)).collect();
    let events = format!("main: {}; E f @200000", events.join("; "));
    let answer = ask(&events, &["f"], Latency::new(Buckets::Log2, By::Function)).json("latency");
    let row = &answer["functions"][0];
    let got: Vec<Option<u64>> =
        ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].iter().map(|key| row[key].as_u64()).collect();
    assert_eq!(got, [50, 90, 99, 100, 100].map(Some), "{row}");
}

#[test]
fn values_are_bucketed_by_both_widths() {
    let source = with_numbers(
        "main: E f @1; X f @2; E f @3; X f @4; E f @5; X f @6",
        &[("f", false, 5), ("f", false, -3), ("f", false, 7)],
    );
    let answer = ask_recording(&source, &["f"], Histogram::new(Widths::Log2, By::Function, Vec::new()))
        .json("histogram");
    let row = &answer["histograms"][0];
    assert_eq!((&row["min"], &row["max"], &row["avg"]), (&(-3).into(), &7.into(), &3.0.into()), "{row}");
    let buckets = json!([{ "from": -3, "last": -2, "values": 1 }, { "from": 4, "last": 7, "values": 2 }]);
    assert_eq!(row["buckets"], buckets);
    let answer = ask_recording(&source, &["f"], CountBy::new(By::Value, None, Vec::new())).json("count");
    let words: Vec<&Value> =
        answer["functions"].as_array().unwrap().iter().map(|row| &row["value"]).collect();
    // The calls have returned without the results that are described.
    assert_eq!(words, ["arg1=-3, retval=?", "arg1=5, retval=?", "arg1=7, retval=?"]);
}

#[test]
fn lines_can_be_put_in_the_order_in_which_calls_began() {
    let events = "a: E f @10us; E f @30us; X f @40us; X f @90us\nb: E f @20us; X f @25us";
    let order = |lines: Lines| {
        let mut answer = ask(events, &["f"], lines);
        let text = answer.question.take();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lines = || Lines::new(Form::Text, None, None);
    assert_eq!(order(lines()), ["0.000030", "0.000010", "0.000020"]);
    assert_eq!(order(lines().sorted()), ["0.000010", "0.000020", "0.000030"]);
}
