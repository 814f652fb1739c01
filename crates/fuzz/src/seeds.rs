//! Valid inputs for the targets, made by gcc and by this project's own writers.

use anyhow::{Context, Result, bail};
use calltap_export::{Options, Version};
use calltap_trace::{
    ClockKind, End, Event, EventKind, Process, Record, RunState, Session, Site, SiteId, Switch, Thread,
    ThreadEncoder, ThreadId, TraceReader, TraceWriter,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Number of bytes of the words in front of the file, in the input of [`values`](crate::values).
pub const TEXT: usize = 64;

/// A source with calls, a switch, an exception table and a structure.
const SOURCE: &str = "
struct pair { long a; double b; };
int seen[8];
__attribute__((noinline)) long sum(struct pair *p, int n, float f) { return p->a + n + (long) f; }
__attribute__((noinline)) int pick(int n) {
    switch (n) { case 0: return 3; case 1: return seen[1]; case 2: return 7; case 3: return seen[4]; case 4: return 1; case 5: return 9; }
    return 0;
}
int main(int argc, char **argv) { struct pair p = {argc, 1}; return (int) sum(&p, pick(argc), 2) + argv[0][0]; }
";

/// Returns the seeds of a target.
pub fn of(target: &str, scratch: &Path) -> Result<Vec<Vec<u8>>> {
    let elf = |flags: &[&str]| compiled(flags, scratch);
    Ok(match target {
        "elf" => vec![
            elf(&["-O2", "-fpatchable-function-entry=7,2"])?,
            elf(&["-O2", "-s"])?,
            elf(&["-O2", "-pg", "-static-pie"]).or_else(|_| elf(&["-O2", "-pg"]))?,
            elf(&["-O1", "-fexceptions", "-shared", "-fPIC"])?,
        ],
        "object" => vec![elf(&["-c", "-pg", "-O1"])?, elf(&["-c", "-pg", "-mfentry", "-g"])?],
        "trace" => vec![trace(scratch)?],
        "trace_dat" => vec![exported(scratch, Version::V6)?, exported(scratch, Version::V7)?],
        "glob" => texts(&["a*[b-d]?\\*x\0abc*x", "*::push<*>(?)\0std::push<int>(1)", "[!a-z]\0Z"]),
        "log" => texts(&[
            "batch 4711 quiet outside\nsite 0x401000 0 9090909090 original enabled:0x700000\nread 0x401000 9090909090\n\
             write 0x401000 a9\nsync\nwrite 0x401001 00112233\nsync\nwrite 0x401000 e9\nsync\nend\n",
        ]),
        "values" => {
            let file = elf(&["-O1", "-g"])?;
            let words = ["sum@arg1/d64,arg2", "sum@p->a,n,f", "pick@retval", "sum@n>3&&p->a!=0"];
            let seed = |word: &&str| {
                let mut seed = word.as_bytes().to_vec();
                seed.resize(TEXT, 0);
                [seed, file.clone()].concat()
            };
            words.iter().map(seed).collect()
        }
        other => bail!("no fuzz target '{other}'"),
    })
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn compiled(flags: &[&str], scratch: &Path) -> Result<Vec<u8>> {
    let (source, output) = (scratch.join("seed.c"), scratch.join("seed"));
    fs::write(&source, SOURCE)?;
    let mut gcc = Command::new("gcc");
    gcc.args(flags).arg("-o").arg(&output).arg(&source);
    let done = gcc.output().context("cannot start gcc")?;
    if !done.status.success() {
        bail!("{gcc:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(fs::read(output)?)
}

fn exported(scratch: &Path, version: Version) -> Result<Vec<u8>> {
    trace(scratch)?;
    let (reader, mut file) = (TraceReader::open(&scratch.join(DATA))?, Vec::new());
    calltap_export::trace_dat(&reader, &Options { version, ..Options::default() }, &mut file, None)?;
    Ok(file)
}

/// Name of the file of a trace.
const DATA: &str = "seed.data";

fn trace(scratch: &Path) -> Result<Vec<u8>> {
    let path = scratch.join(DATA);
    let session =
        Session { calltap: "0.1.0".into(), command: vec!["app".into()], ..Session::of(ClockKind::Coarse) };
    let mut writer = TraceWriter::create(&path, session)?;
    let (id, comm) = (ThreadId(0), "app".to_owned());
    writer.record(&Record::Process(Process::new(0, 1, comm.clone())))?;
    writer.record(&Record::Thread(Thread {
        id,
        process: 0,
        tid: 1,
        comm,
        goroutine: None,
        started: None,
    }))?;
    let site = |n: u32| Site {
        id: SiteId(n),
        module: 0,
        address: 0x1000 + u64::from(n) * 64,
        size: 64,
        name: format!("f{n}"),
        aliases: Vec::new(),
        kind: "patchable".into(),
        tracers: 1,
        captured: None,
    };
    writer.record(&Record::Sites { sites: (0..4).map(site).collect() })?;
    let mut encoder = ThreadEncoder::new(id);
    for n in 0..40 {
        let (site, kind) =
            (SiteId(n % 4), if n < 20 { EventKind::Entry } else { EventKind::Exit { pops: 1 } });
        let site = if n < 20 { site } else { SiteId((39 - n) % 4) };
        encoder.push(Event { ticks: 1000 + u64::from(n) * 100, site, kind });
    }
    encoder.push(Event { ticks: 9000, site: SiteId(0), kind: EventKind::Lost { entries: 3, exits: 2 } });
    encoder.push(Event { ticks: 9100, site: SiteId(1), kind: EventKind::Call { parent: 0x1010 } });
    writer.events(&mut encoder)?;
    let states = [(500, RunState::Running), (2000, RunState::Blocked), (3000, RunState::Running)];
    writer.switches(id, &states.map(|(at, to)| Switch { at, to }), 9500)?;
    writer.finish(End { status: "exit 0".into(), wall_ns: 1, cpu_ns: 1, recorder_cpu_ns: 1 })?;
    Ok(fs::read(path)?)
}
