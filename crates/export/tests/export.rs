//! Tests of the exports to other tools.

use crate::common::{output, recording, same};
use calltap_analysis::{MemorySource, Word};
use calltap_export::{Options, chrome, csv, flamegraph, folded, otlp};

/// Two threads, `std::swap<int>(int&, int&)`, a loss, a longjmp and a call that does not end.
const PROGRAM: &str = "
    main: E main @0; E _ZSt4swapIiEvRT_S1_ @1000; X _ZSt4swapIiEvRT_S1_ @1500; L 4/3 @1600
    worker: E run @100; E leave @200; X run/2 @2000; C tick @2100
    main: E hang @3000; E f @3001; X f @4001";

fn program() -> MemorySource {
    recording(PROGRAM)
}

#[test]
fn chrome_json() {
    let text = output(|out| chrome(&program(), &Options::default(), out, None).map(drop));
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["traceEvents"].as_array().unwrap().len(), 3 + 14);
    same(
        &text,
        r#"
        {"traceEvents":[
        {"args":{"name":"app"},"name":"process_name","ph":"M","pid":100},
        {"args":{"name":"main"},"name":"thread_name","ph":"M","pid":100,"tid":100},
        {"args":{"name":"worker"},"name":"thread_name","ph":"M","pid":100,"tid":101},
        {"name":"main","ph":"B","ts":0.000,"pid":100,"tid":100},
        {"name":"std::swap<int>(int&, int&)","ph":"B","ts":1.000,"pid":100,"tid":100},
        {"ph":"E","ts":1.500,"pid":100,"tid":100},
        {"name":"LOST","ph":"i","s":"t","ts":1.600,"pid":100,"tid":100,"args":{"entries":4,"exits":3}},
        {"name":"run","ph":"B","ts":0.100,"pid":100,"tid":101},
        {"name":"leave","ph":"B","ts":0.200,"pid":100,"tid":101},
        {"ph":"E","ts":0.200,"pid":100,"tid":101,"args":{"end":"left"}},
        {"ph":"E","ts":2.000,"pid":100,"tid":101},
        {"name":"tick","ph":"i","s":"t","ts":2.100,"pid":100,"tid":101},
        {"name":"hang","ph":"B","ts":3.000,"pid":100,"tid":100},
        {"name":"f","ph":"B","ts":3.001,"pid":100,"tid":100},
        {"ph":"E","ts":4.001,"pid":100,"tid":100},
        {"ph":"E","ts":4.001,"pid":100,"tid":100,"args":{"end":"running"}},
        {"ph":"E","ts":4.001,"pid":100,"tid":100,"args":{"end":"lost"}}
        ],"displayTimeUnit":"ns","otherData":{"clock":null,"command":""}}
    "#,
    );
}

#[test]
fn functions_that_the_overhead_limit_disabled_are_named() {
    let mut source = program();
    let site = calltap_trace::SiteId(0);
    source.meta.disabled_by_limit = vec![calltap_trace::DisabledByLimit { site, events_per_s: 7 }; 2];
    let name = source.meta.sites[0].name.clone();
    let text = output(|out| chrome(&source, &Options::default(), out, None).map(drop));
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["otherData"]["disabled_by_limit"], serde_json::json!([name]));
    let picture = output(|out| flamegraph(&source, &Options::default(), out, None).map(drop));
    assert!(picture.contains(&format!("disabled by --max-overhead ({name})")), "{picture}");
    let options = Options { functions: vec![Word::new("main")], ..Options::default() };
    let spans = output(|out| otlp(&source, &options, out, None).map(drop));
    let request: serde_json::Value = serde_json::from_str(spans.lines().next().unwrap()).unwrap();
    let attributes = request["resourceSpans"][0]["resource"]["attributes"].as_array().unwrap();
    let disabled =
        attributes.iter().find(|attribute| attribute["key"] == "calltap.disabled_by_limit").unwrap();
    assert_eq!(disabled["value"]["arrayValue"]["values"][0]["stringValue"], name);
}

#[test]
fn csv_lines() {
    same(
        &output(|out| csv(&program(), &Options::default(), out, None).map(drop)),
        r#"
        thread,tid,function,module,depth,start_ns,total_ns,self_ns,caller,end
        main,100,"std::swap<int>(int&, int&)",app,1,1000,500,500,main,returned
        main,100,f,app,2,3001,1000,1000,hang,returned
        main,100,hang,app,1,3000,,,main,running
        main,100,main,app,0,0,,,,lost
        worker,101,leave,app,1,200,,,run,left
        worker,101,run,app,0,100,1900,1900,,returned
        worker,101,tick,app,0,2100,,,,
    "#,
    );
}

#[test]
fn folded_stacks() {
    same(
        &output(|out| folded(&program(), &Options::default(), out, None).map(drop)),
        "
        main 2500
        main;hang 1
        main;hang;f 1000
        main;std::swap<int>(int&, int&) 500
        run 1900
    ",
    );
    let options = Options { by_thread: true, ..Options::default() };
    same(
        &output(|out| folded(&program(), &options, out, None).map(drop)),
        "
        main-100;main 2500
        main-100;main;hang 1
        main-100;main;hang;f 1000
        main-100;main;std::swap<int>(int&, int&) 500
        worker-101;run 1900
    ",
    );
}

#[test]
fn folded_counts_calls_without_time_and_replaces_separators() {
    let mut source = recording("main: E main @0; E f @1; X f @2; E f @3; X f @4; X main @5");
    source.ns_per_tick = 0;
    source.meta.sites[1].name = "a;b\nc".into();
    same(
        &output(|out| folded(&source, &Options::default(), out, None).map(drop)),
        "
        main 1
        main;a:b c 2
    ",
    );
}

#[test]
fn flame_graph() {
    let mut source = program();
    source.meta.sites[0].name = "<main & \"co\">".into();
    let text = output(|out| flamegraph(&source, &Options::default(), out, None).map(drop));
    for part in [
        "<title>all: 5.901 us, 100.00 %</title>",
        "<title>&lt;main &amp; &quot;co&quot;&gt;: 4.001 us (2.500 us self), 1 call, 67.80 %</title>",
        "<title>std::swap&lt;int&gt;(int&amp;, int&amp;): 500 ns (500 ns self), 1 call, 8.47 %</title>",
        "7 calls, 2 threads; LOST 4 calls and 3 returns",
        "addEventListener(\"click\"",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // The call that was left has no known time.
    assert_eq!(text.matches("<g data-x=").count(), 6);
    assert_eq!(text.matches("<title>").count(), text.matches("</title>").count());
}

#[test]
fn progress_is_reported() {
    let mut told = Vec::new();
    let mut progress = |events| told.push(events);
    csv(&program(), &Options::default(), &mut Vec::new(), Some(&mut progress)).unwrap();
    assert_eq!(told, [4, 7, 11]);
}
