//! How long a program waits for the records of its functions at its start: 20,000 sites are written
//! to a trace, and read from it.
#![allow(missing_docs)]

#[path = "../tests/synthetic/mod.rs"]
#[allow(dead_code)]
mod synthetic;

use calltap_trace::{ClockKind, End, Record, Site, SiteId, TraceReader, TraceWriter};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

const SITES: u32 = 20_000;
const ROUNDS: u32 = 30;

/// Returns the processor time of this thread.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn sites() -> Vec<Site> {
    let site = |n: u32| Site {
        id: SiteId(n),
        module: 0,
        address: 0x40_1136 + u64::from(n) * 19,
        size: 19,
        name: format!("function_number_{n}"),
        kind: "patchable".to_owned(),
        tracers: 1,
        aliases: Vec::new(),
        captured: None,
    };
    (0..SITES).map(site).collect()
}

/// Takes the record and hands it to the operating system, as at the start of a recording.
fn write(path: &Path, record: &Record) -> (Duration, u64) {
    let mut writer = TraceWriter::create(path, synthetic::session(ClockKind::Tsc)).unwrap();
    let start = now();
    writer.record(record).unwrap();
    writer.flush().unwrap();
    let took = now() - start;
    (
        took,
        writer
            .finish(End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 1, recorder_cpu_ns: 1 })
            .unwrap(),
    )
}

fn read(path: &Path) -> Duration {
    let start = now();
    let reader = TraceReader::open(path).unwrap();
    let took = now() - start;
    assert_eq!(reader.meta().sites.len(), SITES as usize);
    took
}

fn main() {
    let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let path = folder.path().join("trace");
    let record = Record::Sites { sites: sites() };
    let (first, size) = write(&path, &record);
    let wrote = (1..ROUNDS).map(|_| write(&path, &record).0).min().unwrap_or(first);
    let read = (0..ROUNDS).map(|_| read(&path)).min().unwrap_or_default();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{SITES} sites: write {:.2} ms, best {:.2} ms; read, best {:.2} ms; {size} bytes",
        ms(first),
        ms(wrote),
        ms(read)
    );
}
