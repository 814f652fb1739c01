//! Calls of mcount that are found when they are first made (`--discovery first-call`): they are
//! recorded, converted, and traced from then on.

mod attached;

use calltap_e2e::{Build, HANGS, Program, Resident, calltap, calltap_run, compile, kill, rows_of};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const GNU: [&str; 2] = ["gcc", "g++"];
const fn build(name: &'static str, flags: &'static [&'static str]) -> Build {
    Build { name, compilers: GNU, flags }
}

/// All forms of calls of the profiling function.
const BUILDS: [Build; 6] = [
    build("mcount, PIE", &["-O2", "-pg"]),
    build("fentry, PIE", &["-O2", "-pg", "-mfentry"]),
    build("mcount", &["-O2", "-pg", "-no-pie", "-fno-pie"]),
    build("fentry, through the PLT", &["-O2", "-pg", "-mfentry", "-no-pie", "-fplt"]),
    build("static mcount", &["-O2", "-pg", "-static"]),
    build("static-pie fentry", &["-O2", "-pg", "-mfentry", "-static-pie"]),
];

/// A program that is recorded from its start.
struct Started {
    calltap: Resident,
    pid: String,
    trace: PathBuf,
}

impl Started {
    fn new(program: &Program, arguments: &[&str], flags: &[&str]) -> Started {
        let trace = program.directory().join("first.calltap");
        let mut command = Command::new(calltap());
        command.args(["record", "--discovery", "first-call", "--max-wait", "20s", "-o"]).arg(&trace);
        command.args(flags).arg("--").arg(&program.path).args(arguments);
        command.current_dir(program.directory());
        let mut calltap = Resident::spawn(command, program.directory().to_owned());
        let pid = calltap.wait_for("ready");
        Started { calltap, pid, trace }
    }

    /// Makes the program do one round of calls.
    fn round(&mut self) {
        self.calltap.tell();
        self.calltap.wait_for("done");
    }

    fn get(&self, names: &str) -> String {
        let words: Vec<&str> = names.split(' ').collect();
        let run = calltap_run(&[&["get"], &words[..], &["-p", &self.pid]].concat());
        assert!(run.status.success(), "get {names}: {}", run.stderr);
        run.stdout
    }

    fn put(&self, name: &str, value: &str) {
        let run = calltap_run(&["put", name, value, "-p", &self.pid]);
        assert!(run.status.success(), "put {name} {value}: {}", run.stderr);
    }

    /// Returns the number of converted calls.
    fn converted(&self) -> usize {
        let info = self.get("dyn_ftrace_total_info");
        info.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    }

    /// Checks that the recorded counts are those that the program has counted, and returns the
    /// rows.
    fn counts_agree(self, what: &str) -> Vec<Value> {
        let Started { calltap, trace, .. } = self;
        let (status, output, errors) = calltap.end();
        assert!(status.success(), "{what}: {status}\n{output}{errors}");
        let rows = rows(&trace);
        let info = &info(&trace);
        assert_eq!(info["calls"]["lost"].as_u64(), Some(0), "{what}: {info}");
        assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{what}: {}", info["complaints"]);
        let mut counted = 0;
        for line in output.lines() {
            let ["calls", name, number] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            let named = rows.iter().filter(|row| row["function"] == name);
            let recorded: u64 = named.map(|row| row["calls"].as_u64().unwrap_or_default()).sum();
            assert_eq!(recorded.to_string(), number, "{what}: {name}");
            counted += 1;
        }
        assert!(counted > 0, "{what}: nothing was counted");
        rows
    }
}

/// Returns the rows of a report of a trace.
fn rows(trace: &Path) -> Vec<Value> {
    rows_of(&shown(trace, "report"))
}

fn info(trace: &Path) -> Value {
    serde_json::from_str(&shown(trace, "info")).expect("JSON")
}

fn shown(trace: &Path, what: &str) -> String {
    let run = calltap_run(&[what, "-i", &trace.to_string_lossy(), "--format", "json"]);
    assert!(run.status.success(), "{what}: {}", run.stderr);
    run.stdout
}

fn program(build: &Build) -> Program {
    compile(build, &["first_calls.c"], &[])
}

#[test]
fn converted_calls_are_counted_exactly() {
    for build in &BUILDS {
        let program = program(build);
        let mut started = Started::new(&program, &["plain"], &[]);
        assert_eq!(started.get("ftraced_enabled"), "enabled\n");
        started.round();
        started.put("ftraced_enabled", "enable");
        started.round();
        // The daemon would convert `late` in the middle of the next round.
        started.put("ftraced_enabled", "disable");
        started.round();
        // The list has work and outer, but not late, whose first call was just made.
        let available = started.get("available_filter_functions");
        assert!(available.contains("work") && available.contains("outer"), "{}: {available}", build.name);
        started.put("ftraced_enabled", "1");
        started.round();
        assert_eq!(started.get("failures"), "", "{}", build.name);
        let rows = started.counts_agree(build.name);
        let late = rows.iter().find(|row| row["function"] == "late");
        assert_eq!(late.and_then(|row| row["calls"].as_u64()), Some(100), "{}", build.name);
    }
}

#[test]
fn filters_apply_at_conversion_and_other_calls_become_nops() {
    for build in &BUILDS[..3] {
        let program = program(build);
        let mut started = Started::new(&program, &["plain"], &["-F", "work"]);
        started.round();
        started.put("ftraced_enabled", "0");
        assert_eq!(started.get("enabled_functions"), "work (1)\n");
        assert_eq!(started.get("available_filter_functions").lines().count(), started.converted());
        started.round();
        // From now on, the filter has the other function.
        started.put("set_ftrace_filter", "outer");
        assert!(started.get("enabled_functions").contains("outer"));
        started.round();
        let (status, ..) = started.calltap.end();
        assert!(status.success());
        let rows = rows(&started.trace);
        let calls = |name: &str| {
            rows.iter().find(|row| row["function"] == name).and_then(|row| row["calls"].as_u64()).unwrap_or(0)
        };
        assert_eq!(calls("late"), 0);
        assert!(calls("work") == 1000 || calls("work") == 2000, "{}: {}", build.name, calls("work"));
        assert_eq!(calls("outer"), 100, "{}", build.name);
    }
}

#[test]
fn daemon_converts_once_a_second_while_enabled() {
    let program = program(&BUILDS[2]);
    let mut started = Started::new(&program, &["plain"], &[]);
    started.put("ftraced_enabled", "disable");
    assert_eq!(started.get("ftraced_enabled"), "disabled\n");
    started.round();
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(started.converted(), 0, "nothing is converted on its own");
    // Any write converts, also this one.
    started.put("ftraced_enabled", "0");
    assert_eq!(started.get("ftraced_enabled"), "disabled\n");
    let by_hand = started.converted();
    assert!(by_hand >= 2, "{by_hand}");
    started.put("ftraced_enabled", "enable");
    started.round();
    started.round(); // calls late for the first time
    let start = Instant::now();
    while started.converted() == by_hand && start.elapsed() < HANGS {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(started.converted(), by_hand + 1);
    let info = started.get("dyn_ftrace_total_info");
    let lines: Vec<&str> = info.lines().collect();
    assert_eq!(lines.len(), 3, "{info}");
    assert!(lines[1].starts_with("ftrace boot update time = ") && lines[1].ends_with(" (ns)"), "{info}");
    assert!(lines[2].starts_with("ftrace module total update time = "), "{info}");
    let bad = calltap_run(&["put", "ftraced_enabled", "maybe", "-p", &started.pid]);
    assert!(!bad.status.success());
    started.counts_agree("by hand and by the daemon");
}

#[test]
fn threads_that_call_everything_first_at_the_same_time() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[2], &BUILDS[4]] {
        let program = program(build);
        let mut started = Started::new(&program, &["threads"], &[]);
        started.round();
        started.put("ftraced_enabled", "1");
        assert_eq!(started.converted(), 100, "{}", build.name);
        started.round();
        started.counts_agree(build.name);
    }
}

#[test]
fn signal_handlers_during_first_call_recording() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[4]] {
        let program = program(build);
        let mut started = Started::new(&program, &["signals"], &[]);
        started.round();
        started.put("ftraced_enabled", "1");
        assert_eq!(started.get("failures"), "", "{}", build.name);
        started.round();
        started.counts_agree(build.name);
    }
}

#[test]
fn a_library_that_is_opened_later_closed_and_opened_again() {
    for build in &BUILDS[..4] {
        let program = program(build);
        let path = program.add(build, &["first_calls_library.c"], "later.so", &["-shared", "-fPIC"]);
        let mut started = Started::new(&program, &["library", &path.to_string_lossy()], &[]);
        started.round(); // opened, called first
        started.put("ftraced_enabled", "1");
        let available = started.get("available_filter_functions failures");
        assert!(available.contains("in_library [later.so]"), "{}: {available}", build.name);
        started.round(); // traced
        started.round(); // closed
        started.put("ftraced_enabled", "1");
        assert!(!started.get("available_filter_functions").contains("in_library"), "{}", build.name);
        started.round(); // opened again, called first
        started.put("ftraced_enabled", "1");
        started.round(); // traced
        started.counts_agree(build.name);
    }
}

#[test]
fn code_made_at_run_time_and_other_code_in_its_place() {
    for build in [&BUILDS[0], &BUILDS[2], &BUILDS[4]] {
        let program = program(build);
        let mut started = Started::new(&program, &["made"], &[]);
        started.round();
        started.put("ftraced_enabled", "1");
        assert_eq!(started.get("failures"), "", "{}", build.name);
        assert_eq!(started.get("available_filter_functions").matches("[[jit]]").count(), 3, "{}", build.name);
        started.round();
        started.round(); // other code
        started.put("ftraced_enabled", "1");
        assert_eq!(started.get("failures"), "", "{}", build.name);
        started.round();
        started.counts_agree(build.name);
    }
}

#[test]
fn non_mcount_calls_are_listed_and_unchanged() {
    let program = program(&BUILDS[0]);
    let mut started = Started::new(&program, &["register"], &[]);
    started.round();
    started.put("ftraced_enabled", "1");
    let failures = started.get("failures");
    assert_eq!(failures.lines().count(), 1, "{failures}");
    assert!(failures.contains("no call of the profiling function"), "{failures}");
    started.round();
    started.put("ftraced_enabled", "1");
    assert_eq!(started.get("failures"), failures, "never looked at again");
    started.counts_agree("a call through a register");
}

#[test]
fn a_forked_child_has_its_own_first_calls() {
    for build in [&BUILDS[0], &BUILDS[2]] {
        let program = program(build);
        let mut started = Started::new(&program, &["fork"], &[]);
        started.round();
        started.put("ftraced_enabled", "1");
        started.calltap.tell();
        // Calls that only the child has made are converted on request.
        started.calltap.wait_for("child has called");
        started.put("ftraced_enabled", "1");
        started.round();
        started.counts_agree(build.name);
    }
}

#[test]
fn more_first_calls_than_records_are_skipped_and_found_again() {
    const FUNCTIONS: usize = 11_000;
    let program = program(&BUILDS[2]);
    let source = program.directory().join("many.c");
    let mut text = String::from("#include <stdio.h>\n#include <unistd.h>\n");
    for n in 0..FUNCTIONS {
        text += &format!("__attribute__((noipa)) static int g{n}(int n) {{ return n + {n}; }}\n");
    }
    text += "static int (*all[])(int) = {";
    (0..FUNCTIONS).for_each(|n| text += &format!("g{n},"));
    text += "};\n__attribute__((no_instrument_function)) int main(void) {\n\
             setvbuf(stdout, NULL, _IOLBF, 0); printf(\"ready %d\\n\", getpid());\n\
             while (getchar() == 10) { for (unsigned i = 0; i < sizeof all / sizeof *all; i++) all[i](1); puts(\"done\"); }\n\
             return 0; }\n";
    fs::write(&source, text).expect("a file");
    let path = program.directory().join("many");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-pg", "-no-pie", "-fno-pie", "-o"]).args([&path, &source]);
    assert!(gcc.status().expect("gcc").success());
    let many = Program::existing(&path.to_string_lossy());
    let mut started = Started::new(&many, &[], &["--tracer", "function"]);
    started.put("ftraced_enabled", "0");
    started.round();
    started.put("ftraced_enabled", "0");
    // 40 pages of 256 records were prepared, and further ones are added one at a time.
    assert_eq!(started.converted(), 10_240);
    started.round();
    started.put("ftraced_enabled", "0");
    assert_eq!(started.converted(), 10_240 + 256);
    for _ in 0..3 {
        started.round();
        started.put("ftraced_enabled", "0");
    }
    assert_eq!(started.converted(), FUNCTIONS);
    let (status, ..) = started.calltap.end();
    assert!(status.success());
    let events = info(&started.trace)["calls"]["entered"].as_u64();
    assert_eq!(events, Some(10_240 + 10_496 + 10_752 + 11_000));
}

#[test]
fn a_profiling_function_of_its_own_is_taken_over() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[4]] {
        let program = compile(build, &["own_mcount.c"], &[]);
        let mut command = Command::new(calltap());
        let trace = program.directory().join("own.calltap");
        command
            .args(["record", "--discovery", "first-call", "-q", "-o"])
            .arg(&trace)
            .arg("--")
            .arg(&program.path);
        let run = calltap_e2e::run(command, b"");
        assert!(run.status.success(), "{}", run.stderr);
        // Neither converted nor other calls reach the program's own profiling function.
        assert!(run.stdout.contains("profiled 0\n"), "{}: {}", build.name, run.stdout);
    }
}

#[test]
#[ignore = "long: half a minute"]
fn daemon_stops_with_a_warning_after_100000_conversions() {
    const FUNCTIONS: usize = 101_000;
    let program = program(&BUILDS[2]);
    let source = program.directory().join("overflow.S");
    // Each function has a frame and a call of mcount only.
    let text = format!(
        ".text\n.rept {FUNCTIONS}\n push %rbp\n mov %rsp, %rbp\n call mcount\n pop %rbp\n ret\n.balign 16\n.endr\n\
         .section .note.GNU-stack,\"\",@progbits\n"
    );
    let main = "#include <stdio.h>\n#include <unistd.h>\nextern char all[];\n\
        __attribute__((no_instrument_function)) int main(void) {\n\
        setvbuf(stdout, NULL, _IOLBF, 0); printf(\"ready %d\\n\", getpid());\n\
        while (getchar() == 10) { for (long i = 0; i < FUNCTIONS; i++) ((void (*)(void))(all + 16 * i))(); puts(\"done\"); }\n\
        return 0; }\n";
    let text = text.replacen(".text\n", ".text\n.balign 16\n.globl all\nall:\n", 1);
    let main_c = program.directory().join("overflow.c");
    fs::write(&source, text).and_then(|()| fs::write(&main_c, main)).expect("files");
    let path = program.directory().join("overflow");
    let mut gcc = Command::new("gcc");
    gcc.arg(format!("-DFUNCTIONS={FUNCTIONS}")).args(["-O1", "-pg", "-no-pie", "-fno-pie", "-o"]);
    assert!(gcc.args([&path, &main_c, &source]).status().expect("gcc").success());
    let many = Program::existing(&path.to_string_lossy());
    let mut started = Started::new(&many, &[], &["--tracer", "function"]);
    started.put("ftraced_enabled", "0");
    // When the first pages are used up, further ones are added one at a time.
    for _ in 0..(FUNCTIONS - 10_240).div_ceil(256) + 1 {
        started.round();
        started.put("ftraced_enabled", "0");
    }
    let converted = started.converted();
    assert!(converted > 100_000, "{converted}");
    // Calls made now are not recorded until recording is enabled again.
    started.round();
    started.put("ftraced_enabled", "0");
    assert_eq!(started.converted(), converted);
    started.put("ftraced_enabled", "1");
    started.round();
    started.put("ftraced_enabled", "1");
    assert_eq!(started.get("ftraced_enabled"), "enabled\n");
    assert!(started.converted() > converted);
    let (status, _, errors) = started.calltap.end();
    assert!(status.success() && errors.contains("calltap: hm, dftrace overflow: "), "{status} {errors}");
}

#[test]
fn program_survives_killed_recorder() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[4]] {
        let program = program(build);
        let mut started = Started::new(&program, &["threads"], &[]);
        started.round();
        started.put("ftraced_enabled", "1");
        kill(started.calltap.pid, libc::SIGKILL);
        // These rounds run converted calls, and calls that still lead to the recorder.
        started.round();
        started.round();
        let pid: u32 = started.pid.parse().expect("a number");
        assert!(kill(pid, libc::SIGKILL), "{}: it has ended", build.name);
    }
}
