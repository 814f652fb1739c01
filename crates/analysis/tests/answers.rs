//! What is answered about some functions.

use crate::common::{recording, same};
use calltap_analysis::answers::{
    Buckets, By, Count, Form, Known, Latency, Lines, Listener, Question, Stacks,
};
use calltap_analysis::{MemorySource, Word};
use calltap_trace::{Callers, Captured, SiteId, Value as Captures, ValueForm};
use serde_json::{Value, json};

fn ask<Q: Question>(events: &str, globs: &[&str], question: Q) -> Listener<Q> {
    ask_recording(&recording(events), globs, question)
}

fn ask_recording<Q: Question>(source: &MemorySource, globs: &[&str], question: Q) -> Listener<Q> {
    let globs = globs.iter().map(|glob| Word::new(glob)).collect();
    let mut listener = Listener::new(Known::new(globs, false, None), question);
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
        # these paths have the traced functions only, others are left out: name the functions ('stacks FUNCTION', or 'record -A FUNCTION@$callers') to have their callers unwound

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
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.starts_with("# callers are the traced functions around a call"), "{lines}");
    assert!(lines.contains("30 ns  g  <- f") && lines.contains("100 ns  f  <- main"), "{lines}");
    let mut two = ask(NESTED, &["f", "g"], Lines::new(Form::Json("v"), None, Some(2)));
    assert!(two.question.is_full());
    assert_eq!(two.question.take().lines().count(), 2);
}

/// f is called within g; of each call of f, the callers that were unwound, and whether they are all; none: its copy of the stack was lost.
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
    // g lies at 0x401000, 0x402000 is code of which nothing is known.
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
