//! Benchmark of reading a program's functions and sites. A program waits for this at its start.
//!
//! `cargo bench -p calltap-sites` reads a program of 20,000 functions that it builds; `-- FILE...`
//! reads other files. "first" is the time with a fresh heap, as in a recording; "best" is the best
//! of several rounds.
#![allow(missing_docs)]

use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FUNCTIONS: usize = 20_000;
const ROUNDS: usize = 30;

/// Processor time of this thread, which does not depend on the load of the machine.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Times of the first round and of the best one.
fn times<T>(run: impl Fn() -> T) -> [Duration; 2] {
    let once = |_| {
        let start = now();
        let result = run();
        let took = now() - start;
        drop(std::hint::black_box(result));
        took
    };
    let first = once(0);
    [first, (1..ROUNDS).map(once).min().unwrap_or(first)]
}

/// Builds a program as `gcc -O1 -fpatchable-function-entry=5` would from many small functions. It
/// is assembled, as compiling it takes long.
fn build(folder: &Path) -> PathBuf {
    let mut source = String::new();
    for name in (0..FUNCTIONS).map(|n| format!("function_number_{n}")).chain(["main".to_owned()]) {
        let _ = write!(
            source,
            ".section __patchable_function_entries,\"awo\",@progbits,.text\n .align 8\n .quad 1f\n
             .text\n .globl {name}\n .type {name}, @function\n
             {name}: .cfi_startproc\n 1: nop\n nop\n nop\n nop\n nop\n lea 1(%rdi), %eax\n ret\n .cfi_endproc\n
             .size {name}, .-{name}\n"
        );
    }
    let (text, program) = (folder.join("many.s"), folder.join("many"));
    std::fs::write(&text, source).unwrap();
    assert!(Command::new("gcc").arg(&text).arg("-o").arg(&program).status().unwrap().success());
    program
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> =
        std::env::args().skip(1).filter(|word| word != "--bench").map(PathBuf::from).collect();
    if files.is_empty() {
        files.push(build(folder.path()));
    }
    println!(
        "milliseconds, and with a warm heap: read, quick look at the bytes, at the file; loading the file"
    );
    for path in files {
        let (data, file) = (std::fs::read(&path).unwrap(), File::open(&path).unwrap());
        let loaded = times(|| calltap_sites::load(&file));
        let looked = times(|| calltap_sites::file_may_have_sites(&file));
        let quick = times(|| calltap_sites::may_have_sites(&data));
        let read = times(|| calltap_sites::read(&data, "module"));
        let count = calltap_sites::read(&data, "module").unwrap().functions.len();
        for [first, best] in [read, quick, looked, loaded] {
            print!("{:8.3} {:8.3}   ", first.as_secs_f64() * 1e3, best.as_secs_f64() * 1e3);
        }
        println!("{count:7} functions of {}", path.display());
    }
}
