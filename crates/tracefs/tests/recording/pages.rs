//! Pages in the kernel's format, dumps, and clocks.

use super::thousand_calls_in_a_small_buffer;
use super::world::World;
use calltap_tracefs::{Moment, Read};
use rustix::fs::OFlags;

/// Returns the events of pages, each with its time and the bytes behind its header; and the number
/// of missing events.
pub fn events(pages: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
    let (mut events, mut missing) = (Vec::new(), 0);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    for page in pages.chunks(4096) {
        assert_eq!(page.len(), 4096);
        let (mut time, length) = (number(&page[..8]), number(&page[8..16]));
        let end = 16 + (length & 0xfffff) as usize;
        if length >> 30 == 3 {
            missing += number(&page[end..end + 8]);
        }
        let mut at = 16;
        while at < end {
            let head = number(&page[at..at + 4]);
            let (kind, delta) = (head & 31, head >> 5);
            at += 4;
            if kind == 30 {
                time += (number(&page[at..at + 4]) << 27) + delta;
                at += 4;
                continue;
            }
            let size = if kind == 0 { number(&page[at..at + 4]) } else { 4 * kind } as usize;
            time += delta;
            let record = if kind == 0 { &page[at + 4..at + size] } else { &page[at..at + size] };
            events.push((time, record.to_vec()));
            at += size;
        }
    }
    (events, missing)
}

#[test]
fn pages_have_each_record_once_and_kallsyms_names_functions() {
    let mut world = World::after("function > current_tracer\n0: parse<main lex<parse");
    world.now += 1 << 40;
    world.run(1, "emit<lex");
    world.settle();
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let busy = world.open("current_tracer", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(busy, b"nop\n", 1, "sh", 0), Err(rustix::io::Errno::BUSY));
    // A reader that waits for several pages gets full ones.
    assert_eq!(world.tracefs.read(raw, 0, 65536, true), Ok(Read::Wait));
    let mut pages = Vec::new();
    // The pieces of a page are read one after the other.
    for size in [1, 1000, 4096] {
        pages.extend(world.take(raw, size));
    }
    assert_eq!(world.tracefs.read(raw, 0, 4096, true), Ok(Read::Wait));
    let (events, missing) = events(&pages);
    assert_eq!(missing, 0);
    let field =
        |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let names: Vec<(u64, String)> = (world.cat("kallsyms").lines())
        .map(|line| line.split_once(" t ").expect(line))
        .map(|(at, name)| (u64::from_str_radix(at, 16).expect(at), name.replace("\t[cc]", "")))
        .collect();
    let name = |at: u64| names[names.partition_point(|(start, _)| *start <= at) - 1].1.as_str();
    let shown: Vec<(u64, u64, &str, &str)> = events
        .iter()
        .map(|(time, record)| {
            (*time, field(record, 0) >> 32, name(field(record, 8)), name(field(record, 16)))
        })
        .collect();
    let start = 5_000_000_000;
    assert_eq!(
        shown,
        [
            (start + 1000, 100, "parse", "main"),
            (start + 2000, 100, "lex", "parse"),
            (start + 3000 + (1 << 40), 101, "emit", "lex")
        ]
    );
    assert_eq!(world.trace("trace"), "");
    world.echo("0", "tracing_on");
    assert_eq!(world.tracefs.read(raw, 0, 65536, true), Ok(Read::Data(Vec::new())));
}

#[test]
fn pages_say_how_many_records_are_missing() {
    let mut world = World::after(&thousand_calls_in_a_small_buffer());
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let (events, missing) = events(&world.take(raw, 1 << 20));
    assert_eq!((events.len() as u64 + missing, events.len()), (1000, 4 * 4080 / 28));
    let other = world.open("per_cpu/cpu1/trace_pipe_raw", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(other, 0, 4096, false), Ok(Read::Wait));
}

#[test]
fn a_snapshot_can_be_read_as_pages() {
    let mut world = World::after(
        "function_graph > current_tracer
         0: +main +parse - -
         1 > snapshot
         hello > trace_marker",
    );
    for (file, ids) in [("snapshot_raw", vec![11, 11, 10, 10]), ("trace_pipe_raw", vec![5])] {
        let raw = world.open(&format!("per_cpu/cpu0/{file}"), OFlags::RDONLY);
        let found: Vec<u16> =
            events(&world.take(raw, 4096)).0.iter().map(|(_, record)| record[0].into()).collect();
        assert_eq!(found, ids, "{file}");
    }
}

#[test]
fn dump_triggers_empty_the_buffer_into_a_file() {
    let mut world = World::after(
        "lex > set_ftrace_filter
         emit:dump > set_ftrace_filter
         function > current_tracer
         0: lex<main emit<main lex<parse",
    );
    let dumped = world.cat("dump");
    assert!(dumped.contains("lex <-main\n") && !dumped.contains("lex <-parse"), "{dumped}");
    assert!(world.trace("trace").ends_with("lex <-parse\n"));
    assert!(world.cat("set_ftrace_filter").contains("emit:dump:count=0\n"));
}

#[test]
fn clocks_show_their_own_times() {
    let mut world = World::after("function > current_tracer");
    let times = |world: &mut World, clock: &str| {
        world.echo(clock, "trace_clock");
        world.now += 1_000_000;
        let (ticks, monotonic_ns) = (world.now, world.now);
        let ahead = |ns| monotonic_ns + ns;
        let moment = Moment {
            monotonic_ns,
            ticks,
            raw_ns: ahead(1_000_000_000),
            boot_ns: ahead(20_000_000_000),
            tai_ns: ahead(300_000_000_000),
        };
        world.run(0, "lex<main");
        world.tracefs.settle(moment);
        let text = world.cat("trace");
        let line = text.lines().rfind(|line| !line.starts_with('#')).expect("a record").to_owned();
        line.split("..... ")
            .nth(1)
            .and_then(|rest| rest.split(": ").next())
            .expect("a time")
            .trim()
            .to_owned()
    };
    assert_eq!(times(&mut world, "mono"), "5.001001");
    times(&mut world, "boot");
    assert_eq!(times(&mut world, "boot"), "25.003003");
    assert_eq!(times(&mut world, "mono_raw"), "6.004004");
    assert_eq!(times(&mut world, "tai"), "305.005005");
    assert_eq!(times(&mut world, "counter"), "1");
    assert!(world.cat("per_cpu/cpu0/stats").contains("oldest event ts: 1\nnow ts: 1\n"));
    let clocks = world.cat("trace_clock");
    assert_eq!(clocks, "local global [counter] uptime perf mono mono_raw boot tai\n");
    let handle = world.open("trace_clock", OFlags::WRONLY);
    // The events have no time stamp counter.
    assert_eq!(world.tracefs.write(handle, b"x86-tsc\n", 1, "sh", 0), Err(rustix::io::Errno::INVAL));
}
