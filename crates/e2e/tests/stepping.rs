//! A debugger that stops at any instruction, of the program, of a stub or of a hook, sees the program's stack.

use calltap_e2e::{BUILDS, calltap, compile, have, run};
use std::process::Command;

/// Steps so many instructions, a backtrace after each.
const STEPS: usize = 400;

/// Frames that are not the program's.
fn is_ours(frame: &str) -> bool {
    // The breakpoint may lie on a site: that one is then left alone, and calls what it always called.
    ["calltap_", "calltap_agent::", "core::", "??", "mcount", "__fentry__"]
        .iter()
        .any(|ours| frame.starts_with(ours))
}

/// The names of the frames of one backtrace.
fn frames(backtrace: &str) -> Vec<&str> {
    let lines = backtrace.lines().filter(|line| line.starts_with('#'));
    let names = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "in").map_or(1, |at| at + 1);
        words.get(at).copied()
    });
    names.filter(|name| !is_ours(name)).collect()
}

#[test]
fn every_instruction_can_be_unwound_from() {
    if !have("gdb") {
        return;
    }
    for build in &BUILDS[..3] {
        let program = compile(build, &["steps.c"], &["-g"]);
        for tracer in ["function_graph", "function"] {
            let trace = program.directory().join("steps.calltap");
            let script = program.directory().join("steps.gdb");
            let text = format!(
                "set pagination off\nset debuginfod enabled off\nset breakpoint pending on\nset detach-on-fork off\n\
                 set follow-fork-mode child\nbreak c\nrun\ndelete\nset $i = 0\nwhile $i < {STEPS}\nstepi\n\
                 printf \"@@\\n\"\nbt\nset $i = $i + 1\nend\nkill\n"
            );
            std::fs::write(&script, text).expect("a scratch file");
            let mut gdb = Command::new("gdb");
            gdb.args(["-nx", "-batch", "-x"]).arg(&script).arg("--args").arg(calltap());
            gdb.args(["record", "-q", "--tracer", tracer, "-o"]).arg(&trace).arg("--").arg(&program.path);
            let output = run(gdb, b"").stdout;
            let stacks: Vec<&str> = output.split("@@\n").skip(1).collect();
            assert_eq!(stacks.len(), STEPS, "{}, {tracer}: {output}", program.path.display());
            for stack in stacks {
                let frames = frames(stack);
                let right = [&["main"][..], &["a", "main"], &["b", "a", "main"], &["c", "b", "a", "main"]];
                assert!(right.contains(&&frames[..]), "{}, {tracer}: {stack}", program.path.display());
            }
        }
    }
}
