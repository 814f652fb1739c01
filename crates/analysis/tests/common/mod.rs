//! A compact notation for recordings.
//!
//! One batch per line: `thread: event; event; ...`. Events: `E f @10` entry, `T f @10` tail entry,
//! `C f @10` call seen by a function tracer, `X f @30` return (`X f/3 @30` closes 3 frames),
//! `L 4/3 @50` 4 entries and 3 exits lost, `< f/2 @50` 2 calls were left, as the entry of f that
//! follows reveals, `off f @50` f was disabled. `E f <-0x1234 @10` has a return address. Times are
//! nanoseconds, or have a unit (`us`, `ms`, `s`). Threads get the ids 100, 101, ... and functions
//! the addresses 0x1000, 0x1100, ... (size 0x40) of `app`, loaded at 0x400000.
#![allow(dead_code)]

use calltap_analysis::{Error, MemorySource};
use calltap_trace::*;

pub fn recording(text: &str) -> MemorySource {
    let mut source = MemorySource { ns_per_tick: 1, ..MemorySource::default() };
    source.meta.processes.push(Process::new(0, 100, "app"));
    source.meta.modules.push(Module {
        id: 0,
        process: 0,
        path: "/usr/bin/app".into(),
        link: None,
        build_id: Some("c0ffee".into()),
        bias: 0x400000,
        range: (0x400000, 0x500000),
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    });
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (thread, events) = line.split_once(": ").expect("thread: events");
        let thread = thread_named(&mut source, thread);
        let events = events.split("; ").map(|event| parse(&mut source, event)).collect();
        source.batches.push(Batch { thread, events, ..Batch::default() });
    }
    source
}

fn thread_named(source: &mut MemorySource, comm: &str) -> ThreadId {
    let threads = &mut source.meta.threads;
    let known = threads.iter().position(|thread| thread.comm == comm);
    let index = known.unwrap_or_else(|| {
        let id = ThreadId(threads.len() as u32);
        threads.push(Thread {
            id,
            process: 0,
            tid: 100 + id.0,
            comm: comm.into(),
            goroutine: None,
            started: None,
        });
        threads.len() - 1
    });
    ThreadId(index as u32)
}

pub fn site(source: &mut MemorySource, name: &str) -> SiteId {
    let sites = &mut source.meta.sites;
    let known = sites.iter().position(|site| site.name == name);
    let index = known.unwrap_or_else(|| {
        let id = SiteId(sites.len() as u32);
        let address = 0x1000 + 0x100 * u64::from(id.0);
        let (name, kind) = (name.to_owned(), "nop".to_owned());
        sites.push(Site {
            id,
            module: 0,
            address,
            size: 0x40,
            name,
            kind,
            tracers: 1,
            aliases: Vec::new(),
            captured: None,
        });
        sites.len() - 1
    });
    SiteId(index as u32)
}

fn parse(source: &mut MemorySource, text: &str) -> Event {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ticks = time(words.last().and_then(|word| word.strip_prefix('@')).expect("@time"));
    let parent = words[2].strip_prefix("<-0x").map(|hex| u64::from_str_radix(hex, 16).unwrap());
    let (name, number) = words[1].split_once('/').unwrap_or((words[1], "1"));
    let number = number.parse().unwrap();
    let kind = match (words[0], parent) {
        ("E", None) => EventKind::Entry,
        ("E", Some(parent)) => EventKind::EntryFrom { parent },
        ("T", None) => EventKind::TailEntry,
        ("T", Some(parent)) => EventKind::TailEntryFrom { parent },
        ("C", parent) => EventKind::Call { parent: parent.unwrap_or(0) },
        ("X", _) => EventKind::Exit { pops: number },
        ("<", _) => EventKind::Left { pops: number },
        ("R", _) => EventKind::Resumed,
        ("off", _) => EventKind::SwitchedOff,
        ("end", _) => EventKind::ThreadEnded,
        ("L", _) => EventKind::Lost { entries: name.parse().unwrap(), exits: number },
        other => panic!("no such event: {other:?}"),
    };
    let site = if words[0] == "L" { SiteId(0) } else { site(source, name) };
    Event { ticks, site, kind }
}

fn time(text: &str) -> u64 {
    for (unit, ns) in [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<u64>().unwrap() * ns;
        }
    }
    text.parse().unwrap()
}

pub fn output(view: impl FnOnce(&mut dyn std::io::Write) -> Result<(), Error>) -> String {
    let mut out = Vec::new();
    view(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the list of rows, in JSON that ends with it.
pub fn rows(json: &str) -> String {
    let _: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let (_, rows) = ["\"functions\":", "\"nodes\":", "\"goroutines\":"]
        .iter()
        .find_map(|key| json.split_once(key))
        .expect("a list");
    rows.trim_end().trim_end_matches('}').to_owned()
}

/// Compares texts. The expected one is indented by four more than its last line, the one with the
/// closing quote; blanks at the ends of lines are ignored.
#[track_caller]
pub fn same(actual: &str, expected: &str) {
    let (body, last) = expected.rsplit_once('\n').unwrap_or((expected, ""));
    let indent = if body.starts_with('\n') { last.len() + 4 } else { 0 };
    let lines = |text: &str, indent: usize| -> Vec<String> {
        text.lines().map(|line| line.get(indent..).unwrap_or("").trim_end().to_owned()).collect()
    };
    let expected = lines(body.strip_prefix('\n').unwrap_or(body), indent);
    let found = lines(actual.trim_end(), 0);
    assert!(found == expected, "\n--- actual\n{actual}\n--- expected\n{}\n", expected.join("\n"));
}
