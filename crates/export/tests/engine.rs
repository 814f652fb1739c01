//! Tests of the engine on random events, plausible and not: it never panics, loses no call and
//! invents no time.

use calltap_analysis::{
    Call, Ending, Enter, MemorySource, Visitor, graph, replay, report, run_by_thread, run_in_file_order,
};
use calltap_export as export;
use calltap_trace::*;

const SITES: u32 = 5;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Returns a random event; `wild` includes times and numbers that no recorder would write.
    fn event(&mut self, ticks: &mut u64, wild: bool) -> Event {
        *ticks = match self.below(50) {
            0 if wild => self.below(u64::MAX),
            1 => ticks.saturating_sub(self.below(100)),
            _ => ticks.saturating_add(self.below(100)),
        };
        let site = SiteId(self.below(u64::from(SITES) + u64::from(wild)) as u32);
        let kind = match self.below(12) {
            0..5 => EventKind::Entry,
            5 => EventKind::TailEntry,
            6 => EventKind::Call { parent: self.below(1 << 24) },
            7 if wild => EventKind::Lost { entries: u32::MAX, exits: u32::MAX },
            8 => EventKind::Exit { pops: self.below(4) as u32 },
            9 if wild => EventKind::Exit { pops: self.below(1 << 32) as u32 },
            _ => EventKind::Exit { pops: 1 },
        };
        Event { ticks: *ticks, site, kind }
    }
}

fn random(seed: u64, wild: bool) -> MemorySource {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut source = MemorySource { ns_per_tick: 1, ..MemorySource::default() };
    for id in 0..3 {
        let thread = Thread {
            id: ThreadId(id),
            process: 0,
            tid: id,
            comm: String::new(),
            goroutine: None,
            started: None,
        };
        source.meta.threads.push(thread);
    }
    for id in 0..SITES {
        let (id, name, kind) = (SiteId(id), format!("f{id}"), String::new());
        source.meta.sites.push(Site {
            id,
            module: 9,
            address: 0,
            size: 0,
            name,
            kind,
            tracers: 0,
            aliases: Vec::new(),
            captured: None,
        });
    }
    let mut ticks = [0; 3];
    for _ in 0..20 {
        let thread = random.below(3) as usize;
        let events = (0..random.below(60)).map(|_| random.event(&mut ticks[thread], wild)).collect();
        source.batches.push(Batch { thread: ThreadId(thread as u32), events, ..Batch::default() });
    }
    source
}

/// Sums that must agree.
#[derive(Default, PartialEq, Debug)]
struct Sums {
    begun: u64,
    ended: u64,
    own: u64,
    outermost: u64,
    tails: u64,
}

impl Visitor for Sums {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.begun += 1;
        self.tails += u64::from(enter.tail);
    }

    fn close(&mut self, _: ThreadId, call: &Call) {
        self.ended += 1;
        assert_eq!(call.end - call.start, call.total);
        assert!(call.self_ticks <= call.total);
        assert_eq!(call.caller.is_none(), call.depth == 0);
        self.own += call.self_ticks;
        if call.depth == 0 {
            self.outermost += call.total;
        }
        assert!(call.ending != Ending::Tail || self.tails > 0);
    }
}

#[test]
fn every_call_ends_once_and_self_times_add_up() {
    for seed in 1..400 {
        let source = random(seed, false);
        let (mut one, mut other) = (Sums::default(), Sums::default());
        let totals = run_by_thread(&source, &mut one, None).unwrap();
        assert_eq!(totals, run_in_file_order(&source, &mut other, None).unwrap(), "seed {seed}");
        assert_eq!(one, other, "seed {seed}");
        assert_eq!(one.begun, one.ended, "seed {seed}");
        assert_eq!(one.own, one.outermost, "seed {seed}");
    }
}

#[test]
fn no_view_panics_on_nonsense() {
    for seed in 1..100 {
        let source = random(seed, true);
        let mut out = Vec::new();
        for by_thread in [false, true] {
            let options = report::Options { by_thread, ..Default::default() };
            report::write(&source, &options, report::Format::Text, &mut out, None).unwrap();
            let options = graph::Options { by_thread, max_paths: 20, ..Default::default() };
            graph::write(&source, &options, &mut out, None).unwrap();
            let options = export::Options { by_thread, max_paths: 20, ..Default::default() };
            export::folded(&source, &options, &mut out, None).unwrap();
            export::flamegraph(&source, &options, &mut out, None).unwrap();
        }
        for layout in [replay::Layout::Graph, replay::Layout::Function] {
            let options = replay::Options {
                layout,
                time: Some(calltap_analysis::Stamp::Since(0)),
                ..Default::default()
            };
            replay::write(&source, &options, &mut out, None).unwrap();
        }
        let functions = vec![calltap_analysis::Word::new("f*")];
        let _ = graph::write(&source, &graph::Options { functions, ..Default::default() }, &mut out, None);
        let options = export::Options::default();
        export::csv(&source, &options, &mut out, None).unwrap();
        export::perfetto(&source, &options, &mut out, None).unwrap();
        let mut json = Vec::new();
        export::chrome(&source, &options, &mut json, None).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap();
    }
}

/// Every entry of the replay has its end, and the same calls appear as in the tree.
#[test]
fn replay_shows_every_call() {
    for seed in 1..100 {
        let source = random(seed, false);
        let mut out = Vec::new();
        let totals = replay::write(&source, &Default::default(), &mut out, None).unwrap();
        let text = String::from_utf8(out).unwrap();
        let count = |part: &str| text.matches(part).count() as u64;
        let (opened, leaves) = (count("() {\n"), count("();\n"));
        let ends = ["}", "} /* left */", "} /* lost */", "} /* switched_off */"];
        let braces = text.lines().filter(|line| ends.iter().any(|end| line.ends_with(end))).count() as u64;
        let marks = count("/* f") - count("} /* f");
        assert_eq!(opened + leaves + marks, totals.calls, "seed {seed}");
        assert_eq!(opened, braces + totals.unfinished, "seed {seed}\n{text}");
        assert_eq!(count("} /* f"), totals.orphans, "seed {seed}");
    }
}
