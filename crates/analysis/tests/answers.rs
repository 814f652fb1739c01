//! What is answered about some functions.

mod common;
use calltap_analysis::Glob;
use calltap_analysis::answers::{
    Buckets, By, Count, Form, Known, Latency, Lines, Listener, Question, Stacks,
};
use common::{recording, same};
use serde_json::{Value, json};

fn ask<Q: Question>(events: &str, globs: &[&str], question: Q) -> Listener<Q> {
    let globs = globs.iter().map(|glob| Glob::new(glob)).collect();
    let mut listener = Listener::new(Known::new(globs, false, None), question);
    listener.read(&recording(events), None, &mut |_| false);
    listener
}

const NESTED: &str =
    "main: E main @0; E f @10; E g @20; E f @30; X f @40; X g @50; X f @110; E g @120; L 3/2 @125; E f @130";

#[test]
fn calls_are_counted_also_those_that_are_not_over() {
    let counted = ask(NESTED, &["f", "nobody*"], Count::new(None));
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
    assert_eq!((&inner["calls"], &inner["unfinished"], &inner["max_ns"]), (&1.into(), &1.into(), &10.into()));
}

#[test]
fn a_caller_is_known_by_its_return_address() {
    // g is at 0x1100 of what is mapped at 0x400000; what is mapped nowhere is a number.
    let events = "main: E f <-0x401110 @0; X f @5; E g @6; X g @7; E f <-0x7 @10; X f @11";
    let latency = ask(events, &["f"], Latency::new(Buckets::Log2, By::Caller)).json("latency");
    let callers: Vec<&Value> =
        latency["functions"].as_array().expect("rows").iter().map(|row| &row["caller"]).collect();
    assert_eq!(callers, ["g", "0x7"]);
}

#[test]
fn paths_are_told_apart() {
    let stacks = ask(NESTED, &["f"], Stacks::new(None));
    same(
        &stacks.question.text(&stacks.known),
        "
        1 call, 100 ns, avg 100 ns, max 100 ns
            main
            f

        1 call, 10 ns, avg 10 ns, max 10 ns
            main
            f
            g
            f

        0 calls, 0 ns, avg 0 ns, max 0 ns; 1 not over
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
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains("30 ns  g  <- f") && lines.contains("100 ns  f  <- main"), "{lines}");
    let mut two = ask(NESTED, &["f", "g"], Lines::new(Form::Json("v"), None, Some(2)));
    assert!(two.question.is_full());
    assert_eq!(two.question.take().lines().count(), 2);
}
