//! A debugger that stops at any instruction of the program, of a stub or of a hook sees the
//! program's stack.

use calltap_e2e::{BUILDS, Program, calltap, compile, have, run_timeout, used, wait_until};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Number of instructions that are stepped, with a backtrace after each.
const STEPS: usize = 400;
/// Time limit: on a busy machine gdb takes a minute.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Whether a frame is one of calltap's.
fn is_ours(frame: &str) -> bool {
    // The breakpoint may be on a site, which is then not patched and still calls the profiling
    // function.
    ["calltap_", "calltap_agent::", "core::", "??", "mcount", "__fentry__"]
        .iter()
        .any(|ours| frame.starts_with(ours))
}

/// Returns the names of the frames of a backtrace.
fn frames(backtrace: &str) -> Vec<&str> {
    let lines = backtrace.lines().filter(|line| line.starts_with('#'));
    let names = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "in").map_or(1, |at| at + 1);
        words.get(at).copied()
    });
    names.filter(|name| !is_ours(name)).collect()
}

/// Attaches gdb to the recorded program, and steps. If gdb started both, it would stop the recorder
/// with the program.
fn step(program: &Program, tracer: &str) -> String {
    let path = |name: &str| program.directory().join(name);
    let text = format!(
        "set pagination off\nset debuginfod enabled off\nhandle SIGPROF nostop noprint nopass\nset $i = 0\nwhile $i < {STEPS}\nstepi\n\
         printf \"@@\\n\"\nbt\nset $i = $i + 1\nend\nkill\n"
    );
    std::fs::write(path("steps.gdb"), text).expect("a scratch file");
    let mut recorder = Command::new(calltap());
    recorder
        .args(["record", "-q", "--tracer", tracer, "-o"])
        .arg(path("steps.calltap"))
        .arg("--")
        .arg(&program.path);
    let mut recorder = recorder.stdout(Stdio::piped()).spawn().expect("calltap runs");
    // The program prints its id when it has started.
    let mut pid = String::new();
    let out = recorder.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut pid).expect("its process id");
    // The program may still be writing: stepping begins in the loop, which uses processor time.
    let process: u32 = pid.trim().parse().expect("its process id");
    let before = used(process);
    wait_until("its loop", || used(process) > before + Duration::from_millis(20));
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(path("steps.gdb")).args(["-p", pid.trim()]);
    let output = run_timeout(gdb, b"", TIME_LIMIT).stdout;
    recorder.wait().expect("it ends with the program");
    output
}

#[test]
fn every_instruction_can_be_unwound_from() {
    if !have("gdb") {
        return;
    }
    for build in &BUILDS[..3] {
        let program = compile(build, &["steps.c"], &["-g"]);
        for tracer in ["function_graph", "function"] {
            let output = step(&program, tracer);
            let stacks: Vec<&str> = output.split("@@\n").skip(1).collect();
            assert_eq!(stacks.len(), STEPS, "{}, {tracer}: {output}", program.path.display());
            assert!(output.contains("calltap_hook"), "{tracer}: some steps were inside hooks");
            // With -pg the program has a profiler of its own, whose timer may have fired just
            // before.
            for stack in stacks.into_iter().filter(|stack| !stack.contains("<signal handler called>")) {
                let frames = frames(stack);
                let right = [&["main"][..], &["a", "main"], &["b", "a", "main"], &["c", "b", "a", "main"]];
                assert!(right.contains(&&frames[..]), "{}, {tracer}: {stack}", program.path.display());
            }
        }
    }
}
