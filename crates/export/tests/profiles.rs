//! Tests of the exports to profile viewers: Speedscope, pprof, KCachegrind, the Firefox Profiler.
//! `crates/e2e/tests/answers/exchange/exports.rs` runs their real readers.

use crate::common::{output, recording, same};
use calltap_analysis::{Call, Enter, MemorySource, Visitor, demangle, run_by_thread};
use calltap_export::{Options, callgrind, firefox, pprof, speedscope};
use calltap_trace::{SiteId, ThreadId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Two threads, `std::swap<int>(int&, int&)`, a loss, a longjmp and a call that does not end.
const PROGRAM: &str = "
    main: E main @0; E _ZSt4swapIiEvRT_S1_ @1000; X _ZSt4swapIiEvRT_S1_ @1500; L 4/3 @1600
    worker: E run @100; E leave @200; X run/2 @2000; C tick @2100
    main: E hang @3000; E f @3001; X f @4001";

/// `even` and `odd` call each other, `odd` also itself.
const RECURSION: &str = "
    main: E even @0; E odd @10; E even @20; E odd @25; E odd @27; X odd @33; X odd @40; X even @45; X odd @70; E leaf @80; X leaf @90; X even @100
    other: E odd @0; X odd @7";

/// Calls, total and own time by function; calls that were cut count as far as they are known to
/// have run.
#[derive(Default)]
struct Spent {
    sums: BTreeMap<SiteId, [u64; 3]>,
    open: Vec<SiteId>,
}

impl Visitor for Spent {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open.push(enter.site);
    }

    fn close(&mut self, _: ThreadId, call: &Call) {
        self.open.pop();
        let outermost = !self.open.contains(&call.site);
        let [calls, total, own] = self.sums.entry(call.site).or_default();
        (*calls, *own) = (*calls + 1, *own + call.self_ticks);
        *total += if outermost { call.total } else { 0 };
    }

    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        self.sums.entry(enter.site).or_default()[0] += 1;
    }
}

fn spent(source: &MemorySource) -> BTreeMap<String, [u64; 3]> {
    let mut spent = Spent::default();
    run_by_thread(source, &mut spent, None).unwrap();
    let named = |(site, sums): (SiteId, _)| (demangle(&source.meta.sites[site.0 as usize].name), sums);
    spent.sums.into_iter().map(named).collect()
}

#[test]
fn speedscope_gets_events_of_each_thread() {
    let text = output(|out| speedscope(&recording(PROGRAM), &Options::default(), out, None).map(drop));
    serde_json::from_str::<Value>(&text).unwrap();
    same(
        &text.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        r#"
        {"$schema":"https://www.speedscope.app/file-format-schema.json",
        "exporter":"calltap VERSION","name":"",
        "profiles":[
        {"type":"evented","name":"main-100","unit":"nanoseconds","events":[
        {"type":"O","frame":0,"at":0},
        {"type":"O","frame":1,"at":1000},
        {"type":"C","frame":1,"at":1500},
        {"type":"O","frame":2,"at":1600},
        {"type":"C","frame":2,"at":1600},
        {"type":"O","frame":3,"at":3000},
        {"type":"O","frame":4,"at":3001},
        {"type":"C","frame":4,"at":4001},
        {"type":"C","frame":3,"at":4001},
        {"type":"C","frame":0,"at":4001}
        ],"startValue":0,"endValue":4001},
        {"type":"evented","name":"worker-101","unit":"nanoseconds","events":[
        {"type":"O","frame":5,"at":100},
        {"type":"O","frame":6,"at":200},
        {"type":"C","frame":6,"at":200},
        {"type":"C","frame":5,"at":2000},
        {"type":"O","frame":7,"at":2100},
        {"type":"C","frame":7,"at":2100}
        ],"startValue":100,"endValue":2100}],
        "shared":{"frames":[
        {"file":"app","name":"main"},
        {"file":"app","name":"std::swap<int>(int&, int&)"},
        {"name":"[LOST]"},
        {"file":"app","name":"hang"},
        {"file":"app","name":"f"},
        {"file":"app","name":"run"},
        {"file":"app","name":"leave"},
        {"file":"app","name":"tick"}]}}
    "#,
    );
}

/// [`PROGRAM`] in callgrind's format.
const CALLGRIND: &str = "
    # callgrind format
    version: 1
    creator: calltap VERSION
    pid: 100
    cmd:
    desc: calltap: 10 events and 1 mark, 2 threads; LOST 4 calls (36.4 % of entries) and 3 returns
    desc: calltap: 2 calls unfinished, 1 call left without returning
    desc: calltap: calls without a known end count until they were last known to run
    positions: line
    event: ns : Nanoseconds
    events: ns
    summary: 5901

    fl=(1) ???

    ob=(1) /usr/bin/app
    fn=(2) main
    0 2500
    cob=(1)
    cfn=(3) std::swap<int>(int&, int&)
    calls=1 0
    0 500
    cob=(1)
    cfn=(4) hang
    calls=1 0
    0 1001

    ob=(1)
    fn=(3)
    0 500

    ob=(1)
    fn=(5) run
    0 1900
    cob=(1)
    cfn=(6) leave
    calls=1 0
    0 0

    ob=(1)
    fn=(6)
    0 0

    ob=(1)
    fn=(7) tick
    0 0

    ob=(1)
    fn=(4)
    0 1
    cob=(1)
    cfn=(8) f
    calls=1 0
    0 1000

    ob=(1)
    fn=(8)
    0 1000

    ob=(9) ???
    fn=(10) [main-100]
    0 0
    cob=(1)
    cfn=(2)
    calls=1 0
    0 4001

    ob=(9)
    fn=(11) [worker-101]
    0 0
    cob=(1)
    cfn=(5)
    calls=1 0
    0 1900
    cob=(1)
    cfn=(7)
    calls=1 0
    0 0

    totals: 5901
";

#[test]
fn callgrind_gets_own_costs_and_those_of_calls() {
    let text = output(|out| callgrind(&recording(PROGRAM), &Options::default(), out, None).map(drop));
    same(&text.replace(env!("CARGO_PKG_VERSION"), "VERSION"), CALLGRIND);
}

/// Returns by function: number of calls, their cost, own cost.
fn of_callgrind(text: &str) -> BTreeMap<String, [u64; 3]> {
    let (mut sums, mut names) = (BTreeMap::<String, [u64; 3]>::new(), BTreeMap::new());
    let mut name = |text: &str| {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        names.entry(number.to_owned()).or_insert_with(|| name.to_owned()).clone()
    };
    let (mut function, mut called, mut in_call) = (String::new(), String::new(), false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("fn=") {
            function = name(rest);
        } else if let Some(rest) = line.strip_prefix("cfn=") {
            called = name(rest);
        } else if let Some(rest) = line.strip_prefix("calls=") {
            let number: u64 = rest.strip_suffix(" 0").unwrap().parse().unwrap();
            sums.entry(called.clone()).or_default()[0] += number;
            in_call = true;
        } else if let Some(cost) = line.strip_prefix("0 ") {
            let cost: u64 = cost.parse().unwrap();
            let to = if in_call { &called } else { &function };
            sums.entry(to.clone()).or_default()[if in_call { 1 } else { 2 }] += cost;
            in_call = false;
        }
    }
    sums.retain(|name, _| !name.starts_with('['));
    sums
}

#[test]
fn recursion_is_counted_once_in_callgrinds_inclusive_costs() {
    for program in [PROGRAM, RECURSION] {
        let source = recording(program);
        let text = output(|out| callgrind(&source, &Options::default(), out, None).map(drop));
        assert_eq!(of_callgrind(&text), spent(&source), "{text}");
    }
}

#[test]
fn where_nothing_has_a_time_calls_are_the_cost() {
    let mut source = recording(RECURSION);
    source.ns_per_tick = 0;
    let text = output(|out| callgrind(&source, &Options::default(), out, None).map(drop));
    assert!(text.contains("events: calls\nsummary: 7\n"), "{text}");
    // The inclusive cost of outermost calls is the number of calls made in them, themselves
    // included.
    let sums = of_callgrind(&text);
    assert_eq!(sums["even"], [2, 6, 2]);
    assert_eq!(sums["odd"], [4, 5, 4]);
    assert_eq!(sums["leaf"], [1, 1, 1]);
    let text = output(|out| speedscope(&source, &Options::default(), out, None).map(drop));
    assert!(text.contains("\"unit\":\"none\""));
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        fields.push(match key & 7 {
            0 => (key >> 3, Field::Number(value)),
            2 => {
                let (inner, rest) = bytes.split_at(value as usize);
                bytes = rest;
                (key >> 3, Field::Bytes(inner))
            }
            other => panic!("wire type {other} is not used"),
        });
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    std::iter::from_fn(|| (!bytes.is_empty()).then(|| varint(&mut bytes))).collect()
}

/// Decodes a profile to a line per sample, its outermost function first; then the comments.
fn decoded(options: &Options, source: &MemorySource) -> String {
    let mut gzipped = Vec::new();
    pprof(source, options, &mut gzipped, None).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&gzipped[..]).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let of = |wanted: u64| profile.iter().filter(move |(field, _)| *field == wanted).map(|(_, value)| value);
    let strings: Vec<&str> = of(6)
        .map(|value| match value {
            Field::Bytes(text) => std::str::from_utf8(text).unwrap(),
            Field::Number(_) => panic!("a string"),
        })
        .collect();
    assert_eq!(strings[0], "");
    let message = |value: &Field| -> BTreeMap<u64, Vec<u64>> {
        let Field::Bytes(bytes) = value else { panic!("a message") };
        let values = fields(bytes).into_iter().map(|(field, value)| match value {
            Field::Number(number) => (field, vec![number]),
            Field::Bytes(bytes) => (field, packed(bytes)),
        });
        values.collect()
    };
    let functions: BTreeMap<u64, &str> =
        of(5).map(message).map(|function| (function[&1][0], strings[function[&2][0] as usize])).collect();
    let locations: BTreeMap<u64, u64> =
        of(4).map(message).map(|location| (location[&1][0], location[&4][1])).collect();
    let types = of(1).map(message).map(|value| strings[value[&1][0] as usize]);
    let mut text = format!("{}\n", types.collect::<Vec<_>>().join(" "));
    for sample in of(2).map(message) {
        let mut names: Vec<&str> =
            sample[&1].iter().map(|location| functions[&locations[location]]).collect();
        names.reverse();
        text += &format!("{} {:?}", names.join(";"), sample[&2]);
        if let Some(label) = sample.get(&3) {
            text += &format!(" {}={}", strings[label[1] as usize], strings[label[3] as usize]);
        }
        text.push('\n');
    }
    for comment in of(13) {
        let Field::Number(at) = comment else { panic!("an index") };
        text += &format!("# {}\n", strings[*at as usize]);
    }
    text
}

#[test]
fn pprof_gets_calls_and_own_time_by_path() {
    same(
        &decoded(&Options::default(), &recording(PROGRAM)),
        "
        calls time
        main [1, 2500]
        main;std::swap<int>(int&, int&) [1, 500]
        main;hang [1, 1]
        main;hang;f [1, 1000]
        run [1, 1900]
        run;leave [1, 0]
        tick [1, 0]
        #
        # 10 events and 1 mark, 2 threads; LOST 4 calls (36.4 % of entries) and 3 returns
        # 2 calls unfinished, 1 call left without returning
        # calls without a known end count until they were last known to run
    ",
    );
    let options = Options { by_thread: true, ..Options::default() };
    let text = decoded(&options, &recording("a: E f @0; X f @5\nb: E f @0; X f @7; E f @8; X f @9"));
    assert!(text.contains("f [1, 5] thread=a-100\nf [2, 8] thread=b-101\n"), "{text}");
    let mut source = recording(RECURSION);
    source.ns_per_tick = 0;
    assert!(
        decoded(&Options::default(), &source)
            .starts_with("calls\neven [1]\neven;odd [1]\neven;odd;even [1]\n")
    );
}

/// Returns total and own weight by function according to the samples, and the profile.
fn of_firefox(source: &MemorySource) -> (BTreeMap<String, [u64; 2]>, Value) {
    let text = output(|out| firefox(source, &Options::default(), out, None).map(drop));
    let profile: Value = serde_json::from_str(&text).unwrap();
    let mut sums = BTreeMap::<String, [f64; 2]>::new();
    let strings = &profile["shared"]["stringArray"];
    for thread in profile["threads"].as_array().unwrap() {
        let (samples, stacks) = (&thread["samples"], &thread["stackTable"]);
        let strings = if strings.is_null() { &thread["stringArray"] } else { strings };
        for at in 0..samples["length"].as_u64().unwrap() as usize {
            let weight = samples["weight"][at].as_f64().unwrap();
            let (mut stack, mut seen) = (samples["stack"][at].clone(), Vec::new());
            while let Some(place) = stack.as_u64() {
                let frame = stacks["frame"][place as usize].as_u64().unwrap() as usize;
                let function = thread["frameTable"]["func"][frame].as_u64().unwrap() as usize;
                let name = thread["funcTable"]["name"][function].as_u64().unwrap() as usize;
                let name = strings[name].as_str().unwrap().to_owned();
                let sum = sums.entry(name.clone()).or_default();
                sum[1] += if seen.is_empty() { weight } else { 0.0 };
                sum[0] += if seen.contains(&name) { 0.0 } else { weight };
                seen.push(name);
                stack = stacks["prefix"][place as usize].clone();
            }
        }
    }
    let whole = |weight: f64| (weight * if source.ns_per_tick > 0 { 1e6 } else { 1.0 }).round() as u64;
    (sums.into_iter().map(|(name, sum)| (name, sum.map(whole))).collect(), profile)
}

#[test]
fn firefox_gets_samples_that_add_up() {
    for program in [PROGRAM, RECURSION] {
        let source = recording(program);
        let expected = spent(&source).into_iter().map(|(name, [_, total, own])| (name, [total, own]));
        let (sums, profile) = of_firefox(&source);
        assert_eq!(sums, expected.collect(), "{profile}");
    }
    let (_, profile) = of_firefox(&recording(PROGRAM));
    let note = &profile["meta"]["extra"][0]["entries"][0]["value"];
    assert!(note.as_str().unwrap().contains("LOST 4 calls"), "{note}");
    let names: Vec<&Value> =
        profile["threads"].as_array().unwrap().iter().map(|thread| &thread["name"]).collect();
    // The first thread of a process has the name of the process.
    assert_eq!(names, ["app", "worker"]);
}

#[test]
fn firefox_gets_calls_where_nothing_has_a_time() {
    let mut source = recording(RECURSION);
    source.ns_per_tick = 0;
    let (sums, profile) = of_firefox(&source);
    assert_eq!((sums["even"], sums["odd"], sums["leaf"]), ([6, 2], [5, 4], [1, 1]));
    assert_eq!(profile["threads"][0]["samples"]["weightType"], "samples");
}

#[test]
fn a_long_recording_makes_no_more_samples_than_fit() {
    // Each call has a path of its own, over and over, so that every slice of time has many paths.
    let mut events = Vec::new();
    for round in 0..200_u64 {
        for function in 0..1000_u64 {
            let at = (round * 1000 + function) * 10;
            events.push(format!("E f{function} @{at}; X f{function} @{}", at + 5));
        }
    }
    let source = recording(&format!("main: {}", events.join("; ")));
    let (sums, profile) = of_firefox(&source);
    let samples = profile["threads"][0]["samples"]["length"].as_u64().unwrap();
    assert!((4096..300_000).contains(&samples), "{samples}");
    assert_eq!((sums.len(), sums["f7"]), (1000, [1000, 1000]));
}
