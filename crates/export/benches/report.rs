//! Speed of the views in events per second of processor time, on synthetic batches in memory and in
//! a file.

use calltap_analysis::{Error, MemorySource, Source, graph, replay, report};
use calltap_export as export;
use calltap_trace::*;
use std::io::{self, Write};

const EVENTS: u64 = 16_000_000;
const BATCH: u64 = 8_000;
const SITES: u32 = 2_000;

/// Returns a generator of numbers, the same in every run.
fn random() -> impl FnMut() -> u64 {
    let mut seed = 0x1234_5678_9abc_def1_u64;
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

/// Makes a program that moves up and down its call stack; functions are called unevenly often, as
/// in real programs.
fn synthetic(threads: u32) -> MemorySource {
    let mut source = MemorySource { ns_per_tick: 1, ..MemorySource::default() };
    source.meta.processes.push(Process::new(0, 1, "bench"));
    for id in 0..SITES {
        let name = format!("function_{id}");
        let (id, address) = (SiteId(id), 0x1000 + 16 * u64::from(id));
        let kind = "nop".to_owned();
        source.meta.sites.push(Site {
            id,
            module: 0,
            address,
            size: 16,
            name,
            kind,
            tracers: 1,
            aliases: Vec::new(),
            captured: None,
        });
    }
    for id in 0..threads {
        let thread = Thread {
            id: ThreadId(id),
            process: 0,
            tid: 1 + id,
            comm: format!("thread-{id}"),
            goroutine: None,
            started: None,
        };
        source.meta.threads.push(thread);
    }
    let mut random = random();
    let mut stacks = vec![Vec::new(); threads as usize];
    let batch = BATCH.min(EVENTS / u64::from(threads));
    for number in 0..EVENTS / batch {
        let thread = (number % u64::from(threads)) as usize;
        let stack: &mut Vec<SiteId> = &mut stacks[thread];
        let start = number / u64::from(threads) * batch * 40;
        let events = (0..batch).map(|at| {
            let ticks = start + at * 40 + random() % 32;
            let down = stack.is_empty() || (stack.len() < 40 && random().is_multiple_of(2));
            let site = match stack.pop() {
                Some(site) if !down => return Event { ticks, site, kind: EventKind::Exit { pops: 1 } },
                Some(site) => {
                    stack.push(site);
                    let (a, b) = (random() % u64::from(SITES), random() % u64::from(SITES));
                    SiteId((a * b / u64::from(SITES)) as u32)
                }
                None => SiteId(0),
            };
            stack.push(site);
            Event { ticks, site, kind: EventKind::Entry }
        });
        let events = events.collect();
        source.batches.push(Batch { thread: ThreadId(thread as u32), events, ..Batch::default() });
    }
    source
}

/// Writes a recording to a file and opens it.
fn in_file(memory: &MemorySource) -> Result<TraceReader, calltap_trace::Error> {
    let session = Session::of(ClockKind::Coarse);
    let path = std::env::temp_dir().join(format!("calltap-bench-{}.data", std::process::id()));
    let mut writer = TraceWriter::create(&path, session)?;
    writer.record(&Record::Process(memory.meta.processes[0].clone()))?;
    for thread in &memory.meta.threads {
        writer.record(&Record::Thread(thread.clone()))?;
    }
    writer.record(&Record::Sites { sites: memory.meta.sites.clone() })?;
    for batch in &memory.batches {
        let mut encoder = ThreadEncoder::new(batch.thread);
        for &event in &batch.events {
            encoder.push(event);
            if encoder.is_full() {
                writer.events(&mut encoder)?;
            }
        }
        writer.events(&mut encoder)?;
    }
    writer.finish(End { status: String::new(), wall_ns: 0, cpu_ns: 0, recorder_cpu_ns: 0 })?;
    let reader = TraceReader::open(&path);
    // The open file outlives its name.
    let _ = std::fs::remove_file(&path);
    reader
}

/// Returns the seconds that this thread has run; other programs on the machine do not count.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first");
    ns / 1e9
}

fn measure(name: &str, source: &dyn Source, mut view: impl FnMut(&mut dyn Write) -> Result<(), Error>) {
    let events = source.event_count();
    let best = (0..3)
        .map(|_| {
            let start = processor_time();
            view(&mut io::sink()).expect("a view of synthetic events");
            processor_time() - start
        })
        .fold(f64::MAX, f64::min);
    println!(
        "{name:<12} {:>5} threads  {:>7.1} M events/s",
        source.meta().threads.len(),
        events as f64 / best / 1e6
    );
}

fn main() {
    // `cargo test --benches` runs this too; there it only has to compile.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for threads in [1, 1000] {
        let source = synthetic(threads);
        let text = report::Format::Text;
        measure("report", &source, |out| report::write(&source, &Default::default(), text, out, None));
        let file = in_file(&source).expect("a file in the temporary directory");
        measure("from a file", &file, |out| report::write(&file, &Default::default(), text, out, None));
        let by_thread = report::Options { by_thread: true, ..Default::default() };
        measure("by thread", &source, |out| report::write(&source, &by_thread, text, out, None));
        measure("graph", &source, |out| graph::write(&source, &Default::default(), out, None));
        measure("replay", &source, |out| replay::write(&source, &Default::default(), out, None).map(drop));
        measure("perfetto", &source, |out| {
            export::perfetto(&source, &Default::default(), out, None).map(drop)
        });
        measure("trace.dat", &source, |out| {
            export::trace_dat(&source, &Default::default(), out, None).map(drop)
        });
        measure("chrome", &source, |out| export::chrome(&source, &Default::default(), out, None).map(drop));
        measure("csv", &source, |out| export::csv(&source, &Default::default(), out, None).map(drop));
        measure("folded", &source, |out| export::folded(&source, &Default::default(), out, None).map(drop));
    }
}
