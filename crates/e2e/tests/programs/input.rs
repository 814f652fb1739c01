//! Wrong input by the user: one line, a proper exit code, and a program that did not run, or ran
//! unchanged.

use calltap_e2e::{GCC, Program, Run, calltap, compile, run, skipped, write_program};
use std::fs;
use std::process::Command;

fn program() -> Program {
    compile(GCC, &["tail.c"], &[])
}

fn calltap_in(program: &Program, arguments: &[&str]) -> Run {
    let mut command = Command::new(calltap());
    command.args(arguments).current_dir(program.directory());
    run(command, b"")
}

/// Checks that calltap failed with one line that begins with `calltap: ` and has these words.
fn refused(run: &Run, says: &[&str]) {
    assert!(!run.status.success(), "it did not fail: {}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "not one line: {}", run.stderr);
    assert!(lines[0].starts_with("calltap: "), "{}", lines[0]);
    says.iter().for_each(|text| assert!(lines[0].contains(text), "{text:?} is not in: {}", lines[0]));
    assert_eq!(run.stdout, "", "the program ran");
}

fn record(program: &Program, what: &str, code: i32, says: &[&str]) {
    let run = calltap_in(program, &["record", "--", what]);
    refused(&run, says);
    assert_eq!(run.status.code(), Some(code), "{}", run.stderr);
    assert!(!program.directory().join("calltap.data").exists(), "{what}: a trace of nothing is left");
}

fn write(program: &Program, name: &str, content: &[u8], mode: u32) {
    write_program(&program.directory().join(name), content, mode);
}

#[test]
fn programs_that_cannot_be_run() {
    let program = program();
    record(&program, "./missing", 127, &["./missing"]);
    record(&program, "no-such-program-anywhere", 127, &["no-such-program-anywhere", "PATH"]);
    record(&program, "/tmp", 126, &["directory"]);
    write(&program, "plain", b"\x7fELF", 0o644);
    record(&program, "./plain", 126, &["./plain", "executable"]);
    // The kernel runs the interpreter of a script.
    write(&program, "script", b"#!/no/such/interpreter\n", 0o755);
    record(&program, "./script", 127, &["/no/such/interpreter", "no such file"]);
    write(&program, "script", b"#!\necho ran\n", 0o755);
    record(&program, "./script", 126, &["./script", "script"]);
    write(&program, "text", b"hello, I am no program\n", 0o755);
    record(&program, "./text", 126, &["./text", "ELF"]);
    write(&program, "empty", b"", 0o755);
    record(&program, "./empty", 126, &["./empty"]);
}

#[test]
fn programs_of_other_machines() {
    let program = program();
    let mut header = fs::read(&program.path).expect("the program");
    let whole = header.clone();
    header.truncate(52);
    header[4] = 1; // 32 bits
    header[18] = 3; // i386
    write(&program, "narrow", &header, 0o755);
    record(&program, "./narrow", 126, &["./narrow", "32"]);
    let mut arm = whole.clone();
    arm[18] = 183;
    write(&program, "arm", &arm, 0o755);
    record(&program, "./arm", 126, &["./arm"]);
    for length in [10, 64, 400, whole.len() / 2] {
        write(&program, "cut", &whole[..length], 0o755);
        record(&program, "./cut", 126, &["./cut"]);
    }
}

#[test]
fn static_programs_that_begin_like_no_c_library_s() {
    let program = program();
    let source = program.directory().join("alone.c");
    std::fs::write(
        &source,
        "void _start(void) { __asm__ volatile(\"mov $60, %eax; xor %edi, %edi; syscall\"); }",
    )
    .expect("a source");
    let alone = program.directory().join("alone");
    let flags = ["-static", "-nostdlib", "-O1", "-fpatchable-function-entry=5", "-o"];
    let built = Command::new("gcc").args(flags).args([&alone, &source]).status();
    assert!(built.expect("gcc").success());
    let run = calltap_in(&program, &["record", "--", "./alone"]);
    assert!(run.status.success(), "{}", run.stderr);
    assert!(
        run.stderr.contains("had set up a thread control block of glibc or musl: nothing was traced"),
        "{}",
        run.stderr
    );
}

#[test]
fn globs_that_match_nothing_name_the_nearest() {
    let program = program();
    let run = calltap_in(&program, &["record", "-F", "dispatsh", "--", "./tail"]);
    refused(&run, &["dispatsh", "dispatch"]);
    let run = calltap_in(&program, &["record", "--tracer", "function:evem", "--", "./tail"]);
    refused(&run, &["evem", "even"]);
    for wrong in [
        &["--tracer", "nonsense"][..],
        &["--clock", "sundial"],
        &["--buffer-size", "lots"],
        &["--max-wait", "-"],
    ] {
        let run = calltap_in(&program, &[&["record"], wrong, &["--", "./tail"]].concat());
        assert!(!run.status.success() && run.stdout.is_empty(), "{wrong:?}: {}", run.stdout);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    }
}

#[test]
fn files_that_are_no_traces() {
    let program = compile(GCC, &["slow.c"], &[]);
    let made = calltap_in(&program, &["record", "-q", "-o", "good", "--", "./slow", "1"]);
    assert_eq!(made.status.code(), Some(21), "{}", made.stderr);
    let good = fs::read(program.directory().join("good")).expect("a trace");
    write(&program, "foreign", &fs::read("/bin/true").expect("a file"), 0o644);
    write(&program, "nothing", b"", 0o644);
    for view in ["report", "replay", "graph", "info", "export"] {
        refused(&calltap_in(&program, &[view, "-i", "missing"]), &["missing"]);
        refused(&calltap_in(&program, &[view, "-i", "foreign"]), &["foreign"]);
        refused(&calltap_in(&program, &[view, "-i", "nothing"]), &["nothing"]);
        refused(&calltap_in(&program, &[view, "-i", "."]), &["."]);
        for length in [good.len() - 1, good.len() * 3 / 4, good.len() / 2] {
            write(&program, "cut", &good[..length], 0o644);
            let run = calltap_in(&program, &[view, "-i", "cut"]);
            assert!(run.status.success(), "{view} of {length} of {} bytes: {}", good.len(), run.stderr);
            assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        }
    }
}

#[test]
fn traces_that_cannot_be_written() {
    let program = program();
    let alone = calltap_e2e::run(Command::new(&program.path), b"").stdout;
    refused(&calltap_in(&program, &["record", "-o", "no/such/place", "--", "./tail"]), &["no/such/place"]);
    refused(&calltap_in(&program, &["record", "-o", "/proc/calltap", "--", "./tail"]), &["/proc/calltap"]);
    refused(&calltap_in(&program, &["record", "-o", ".", "--", "./tail"]), &["."]);
    let full = calltap_in(&program, &["record", "-q", "-o", "/dev/full", "--", "./tail"]);
    assert!(!full.status.success());
    assert!(full.stderr.lines().count() == 1 && full.stderr.starts_with("calltap: "), "{}", full.stderr);
    assert!(full.stdout.is_empty() || full.stdout == alone, "{}", full.stdout);
}

#[test]
fn a_disk_that_fills_up_leaves_the_program_alone() {
    let program = compile(GCC, &["slow.c"], &[]);
    let place = program.directory().join("small");
    fs::create_dir(&place).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&place).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skipped("no small file system can be mounted here");
    }
    let mut alone = Command::new(&program.path);
    alone.arg("20");
    let alone = run(alone, b"").stdout;
    let result = calltap_in(&program, &["record", "-q", "-o", "small/trace", "--", "./slow", "20"]);
    let report = calltap_in(&program, &["report", "-i", "small/trace"]);
    let _ = Command::new("umount").arg(&place).status();
    assert_eq!(result.stdout, alone);
    assert_eq!(result.status.code(), Some(21), "the program's own exit code");
    assert_eq!(result.stderr.lines().count(), 1, "{}", result.stderr);
    assert!(result.stderr.starts_with("calltap: ") && result.stderr.contains("space"), "{}", result.stderr);
    assert!(report.status.success() && report.stdout.contains("work"), "{}{}", report.stdout, report.stderr);
}
