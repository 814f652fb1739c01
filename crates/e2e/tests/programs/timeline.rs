//! Spans of `tracing` and calls of functions, on one timeline.

use calltap::timeline::Timeline;
use calltap::traced;
use serde_json::Value;
use std::time::Duration;
use tracing_subscriber::prelude::*;

#[traced]
fn timeline_step(n: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(n));
    n
}

/// Returns the events of a timeline: name, category, thread, start and end in microseconds.
fn events(timeline: &Timeline) -> Vec<(String, String, u64, f64, f64)> {
    let mut text = Vec::new();
    timeline.write(&mut text).expect("written");
    let all: Value = serde_json::from_slice(&text).expect("JSON");
    let event = |event: &Value| {
        let word = |name: &str| event[name].as_str().expect("a string").to_owned();
        let number = |name: &str| event[name].as_f64().expect("a number");
        let thread = event["tid"].as_u64().expect("a thread");
        (word("name"), word("cat"), thread, number("ts"), number("ts") + number("dur"))
    };
    all["traceEvents"].as_array().expect("a list").iter().map(event).collect()
}

#[test]
fn spans_contain_their_calls() {
    let timeline = Timeline::new(100);
    let subscriber = tracing_subscriber::registry().with(timeline.layer());
    let functions = timeline.functions(["*::timeline_step"]).expect("registered");
    tracing::subscriber::with_default(subscriber, || {
        let request = tracing::info_span!("request").entered();
        timeline_step(2);
        tracing::info_span!("query").in_scope(|| timeline_step(3));
        drop(request);
    });
    drop(functions);
    timeline_step(1);
    let all = events(&timeline);
    let names: Vec<&str> = all.iter().map(|event| event.0.rsplit("::").next().unwrap_or_default()).collect();
    assert_eq!(names, ["request", "timeline_step", "query", "timeline_step"]);
    let kinds: Vec<&str> = all.iter().map(|event| event.1.as_str()).collect();
    assert_eq!(kinds, ["span", "function", "span", "function"]);
    assert!(all.iter().all(|event| event.2 == all[0].2), "one thread: {all:?}");
    let contains = |outer: usize, inner: usize| all[outer].3 <= all[inner].3 && all[inner].4 <= all[outer].4;
    assert!(contains(0, 1) && contains(0, 2) && contains(2, 3) && !contains(2, 1), "{all:?}");
    assert!(all[3].4 - all[3].3 >= 3000.0, "{all:?}");
}

#[test]
fn spans_without_room_are_counted() {
    let timeline = Timeline::new(1);
    let subscriber = tracing_subscriber::registry().with(timeline.layer());
    tracing::subscriber::with_default(subscriber, || {
        (0..3).for_each(|_| tracing::info_span!("request").in_scope(|| ()));
    });
    assert_eq!((events(&timeline).len(), timeline.lost()), (1, 2));
}
