//! Attaching to programs that run already: they go on as if nothing had been, and are left as they were.

use calltap_e2e::{
    BUILDS, Build, GCC, Program, Resident, State, calltap_run, changed_text, compile, compile_rust, have,
    matrix, memory, run, skipped, with_libraries,
};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const TRACERS: [&[&str]; 3] = [
    &["--duration", "10ms"],
    &["--duration", "10ms", "--tracer", "function"],
    &["--duration", "10ms", "--tracer", "function", "--tracer", "function_graph"],
];
const SHORT: &[&str] = TRACERS[0];
/// A program runs so long alone, to be attached to some times meanwhile.
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// What is tolerated of a program while it is attached to.
#[derive(Default, Clone, Copy)]
struct Tolerate<'a> {
    /// Attaching may be refused (but not without a word).
    refusals: bool,
    /// What the program changes itself, of [`State`].
    changes: &'a [&'a str],
}

/// Attaches so often, with all tracers in turn. Between attaches its text is as in its files, and its signals, threads and files are what they were.
fn attach_and_look(resident: &mut Resident, times: usize, tolerate: Tolerate<'_>) {
    let before = State::at_rest(resident.pid, tolerate.changes);
    for n in 0..times {
        let run = resident.attach(TRACERS[n % TRACERS.len()]);
        assert!(run.status.success() || tolerate.refusals, "{n}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        assert!(resident.runs(), "{n}: it has ended: {}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{n}: text after {}", run.stderr);
        let after = State::of(resident.pid, tolerate.changes);
        assert_eq!(after.files, before.files, "{n}: open files");
        assert_eq!(after.threads, before.threads, "{n}: threads");
        for (key, value) in &before.status {
            // What it is doing at the moment is its own business.
            let own =
                key.ends_with("State") && after.status.get(key).is_some_and(|now| "RSD".contains(&now[..1]));
            assert!(
                own || after.status.get(key) == Some(value),
                "{n}: {key}: {value} -> {:?}",
                after.status.get(key)
            );
        }
        assert_eq!(after.others, before.others, "{n}");
        if run.status.success() {
            resident.sound();
        }
    }
}

/// A program that checks itself, attached to in a loop.
fn check(program: &Program, arguments: &[&str], times: usize, tolerate: Tolerate<'_>) {
    let mut resident = Resident::start(program, arguments);
    attach_and_look(&mut resident, times, tolerate);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{} {arguments:?}: {status}\n{output}{errors}", program.name);
    assert_eq!(errors, "", "{} {arguments:?}", program.name);
}

fn again(build: &Build, source: &str, flags: &[&str]) -> Program {
    // (C++ where the program is C++: main has the same name in both.)
    let mut all = vec!["-Dmain=once"];
    if source.ends_with(".cpp") {
        all.extend(["-x", "c++"]);
    }
    all.extend(flags);
    compile(build, &[source, "again.c"], &all)
}

/// A program alone, and while somebody attaches and detaches all the time: output, errors and end.
fn transparent(program: &Program, arguments: &[&str]) {
    let command = |rounds: u32| {
        let mut command = Command::new(&program.path);
        command.args(arguments).env("AGAIN", rounds.to_string()).current_dir(program.directory());
        command
    };
    let start = Instant::now();
    run(command(2), b"");
    let rounds = (LONG_ENOUGH.as_secs_f64() / start.elapsed().as_secs_f64() * 2.0) as u32 + 2;
    // On a busy machine two rounds take long, and many more may be over before anybody is there.
    let enough = [1, 10, 100].into_iter().any(|more| transparent_for(program, &command, rounds * more));
    assert!(enough, "attached too seldom: {} {arguments:?}", program.name);
}

/// The same for so many rounds. True if somebody came and went meanwhile.
fn transparent_for(program: &Program, command: &dyn Fn(u32) -> Command, rounds: u32) -> bool {
    let compared = |text: &str| {
        let same = |line: &&str| !line.starts_with("about ");
        text.lines().filter(same).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    let alone = run(command(rounds), b"");
    let mut resident = Resident::spawn(command(rounds), program.directory().to_owned());
    let (mut attached, mut refused) = (0, String::new());
    while resident.runs() && attached < 40 {
        let run = resident.attach(TRACERS[attached % TRACERS.len()]);
        if run.status.success() {
            attached += 1;
            resident.sound();
        } else {
            refused += &run.stderr;
        }
    }
    let (status, output, errors) = resident.end();
    let what = format!("{} after {attached} times\n{refused}", program.name);
    assert_eq!(status, alone.status, "{what}: how it ended\n{errors}");
    assert_eq!(compared(&output), compared(&alone.stdout), "{what}: its output");
    assert_eq!(errors, alone.stderr, "{what}: its errors");
    attached >= 1
}

#[test]
fn every_way_to_pass_and_return_values_goes_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "abi.c", &[]), &[]);
    }
}

#[test]
fn callers_that_keep_values_in_scratch_registers_go_on_as_untraced() {
    let builds = [&["-O2"][..], &["-O3", "-march=native"]];
    for flags in builds {
        transparent(&again(GCC, "ipa_ra.c", flags), &[]);
    }
}

#[test]
fn longjmp_and_deep_recursion_go_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "jumps.c", &[]), &[]);
    }
}

#[test]
fn tail_calls_go_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "tail.c", &[]), &[]);
    }
}

#[test]
fn exceptions_go_on_as_untraced() {
    for (_, build) in matrix().filter(|(n, _)| n % 2 == 0) {
        transparent(&again(build, "throws.cpp", &[]), &[]);
    }
}

#[test]
fn coroutines_that_move_between_threads_go_on_as_untraced() {
    for (_, build) in matrix().filter(|(n, _)| n % 2 == 0) {
        transparent(&again(build, "coroutines.c", &[]), &[]);
    }
}

#[test]
#[ignore = "long: under stress"]
fn threads_that_end_in_every_way_go_on_as_untraced() {
    let program = again(GCC, "threads.c", &[]);
    for how in ["cancel", "exit", "keys", "short", "detached", "busy"] {
        transparent(&program, &[how]);
    }
}

#[test]
fn rust_panics_go_on_as_untraced() {
    let program = compile_rust("panics.rs", &["-Copt-level=2"]);
    let alone = run(Command::new(&program.path), b"");
    for _ in 0..3 {
        let resident = Resident::spawn(Command::new(&program.path), program.directory().to_owned());
        resident.attach(SHORT);
        let (status, output, errors) = resident.end();
        assert_eq!((status, output, errors), (alone.status, alone.stdout.clone(), alone.stderr.clone()));
    }
}

#[test]
fn after_twenty_times_nothing_has_piled_up() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[2]] {
        let program = compile(build, &["resident.c"], &[]);
        let mut resident = Resident::start(&program, &["counted"]);
        attach_and_look(&mut resident, 3, Tolerate::default());
        let before = memory(resident.pid);
        attach_and_look(&mut resident, 17, Tolerate::default());
        let after = memory(resident.pid);
        assert!(
            after.0 <= before.0 + 1 && after.1 <= before.1 + 2048,
            "{}: {before:?} -> {after:?}",
            build.name
        );
        assert!(resident.end().0.success());
    }
}

#[test]
fn calls_made_while_attached_are_counted_exactly() {
    for (_, build) in matrix() {
        let program = compile(build, &["resident.c"], &[]);
        let mut resident = Resident::start(&program, &["counted"]);
        for tracer in ["function", "function_graph"] {
            let mut calltap = resident.attach_beside(&["--tracer", tracer]);
            // Attached when the text has changed.
            let start = Instant::now();
            while changed_text(resident.pid).len() < 4 && start.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_millis(100));
            resident.tell();
            resident.wait_for("done");
            // SAFETY: a signal to our own child.
            unsafe { libc::kill(calltap.id() as i32, libc::SIGINT) };
            assert!(calltap.wait().expect("our own child").success());
            let rows = resident.view("report");
            let of = |name: &str| {
                let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == name));
                row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
            };
            let counts = (of("outer"), of("work"));
            resident.sound();
            assert_eq!(counts, (12_345, 123_450), "{} {tracer}", build.name);
            assert_eq!(changed_text(resident.pid), [""; 0]);
        }
        assert!(resident.end().0.success());
    }
}

fn waits(kinds: &[&str], times: usize) {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    check(&program, kinds, times, Tolerate { changes: &["Threads"], ..Tolerate::default() });
}

#[test]
fn no_wait_ends_early_or_with_eintr() {
    waits(&[], 12);
}

#[test]
fn no_rarer_wait_ends_with_eintr() {
    waits(&["io_uring", "recvmmsg_limit", "sendmmsg_limit", "connect_limit"], 4);
}

#[test]
#[ignore = "a call that has transferred something already returns that, short"]
fn no_transfer_is_cut_short() {
    waits(&["recv_all", "write_big"], 4);
}

#[test]
fn two_hundred_threads_half_busy_half_blocked() {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    let tolerate = Tolerate { changes: &["Threads"], refusals: true };
    check(&program, &["-b100"], 3, tolerate);
}

#[test]
fn a_thread_that_waits_for_its_vfork_child_is_waited_for() {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    let mut resident = Resident::start(&program, &["vfork", "epoll_wait", "semop"]);
    let first = resident.attach(SHORT);
    thread::sleep(Duration::from_millis(1200)); // the child has ended
    attach_and_look(&mut resident, 2, Tolerate { changes: &["Threads"], ..Tolerate::default() });
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}{}", first.stderr);
}

#[test]
#[ignore = "long: under stress"]
fn programs_started_all_the_time() {
    waits(&["spawns", "epoll_wait", "recv_limit"], 6);
}

#[test]
fn a_thread_that_syncs_files_all_the_time() {
    waits(&["fsync", "epoll_wait", "recv_limit"], 6);
}

fn resident(how: &str, times: usize, tolerate: Tolerate<'_>) {
    check(&compile(GCC, &["resident.c"], &[]), &[how], times, tolerate);
}

const THREADS_COME_AND_GO: Tolerate<'_> = Tolerate { changes: &["Threads"], refusals: false };

#[test]
#[ignore = "long: under stress"]
fn threads_that_come_and_go_by_thousands() {
    resident("churn", 12, THREADS_COME_AND_GO);
}

#[test]
fn more_busy_threads_than_processors() {
    resident("busy", 12, Tolerate::default());
}

#[test]
fn forked_children_compute_right_results() {
    resident("forks", 8, Tolerate { changes: &["Threads", "SigBlk"], refusals: true });
}

#[test]
fn signal_handlers_at_1_khz() {
    resident("signals", 15, Tolerate { changes: &["SigBlk"], refusals: true });
}

#[test]
fn ignored_signals_end_no_wait() {
    resident("ignored", 15, Tolerate { changes: &["SigBlk"], refusals: true });
}

#[test]
#[ignore = "long: a window of some instructions is left in which the signal's end of the wait is lost"]
fn pause_ends_when_its_signal_comes() {
    resident("pause", 6, Tolerate { changes: &["SigBlk"], refusals: true });
}

#[test]
fn locked_memory() {
    resident("locked", 8, Tolerate { changes: &[], refusals: true });
}

#[test]
fn main_has_ended_and_its_threads_have_not() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["main"]);
    attach_and_look(&mut resident, 4, Tolerate::default());
    let (status, _, errors) = resident.end();
    assert_eq!((status.code(), errors.as_str()), (Some(7), ""));
}

#[test]
fn without_room_for_files_it_is_refused() {
    let program = compile(GCC, &["resident.c"], &[]);
    refused(&program, &["few files"], &["Too many open files"]);
}

#[test]
fn without_room_for_memory_it_is_refused() {
    let program = compile(GCC, &["resident.c"], &[]);
    refused(&program, &["little memory"], &[]);
}

/// Attaching is refused with one clear line; the program goes on untouched.
fn refused(program: &Program, arguments: &[&str], says: &[&str]) {
    let mut resident = Resident::start(program, arguments);
    let before = State::at_rest(resident.pid, &["State"]);
    let run = resident.attach(SHORT);
    one_line(&run, says);
    assert_eq!(State::of(resident.pid, &["State"]), before);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.runs());
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
}

fn one_line(run: &calltap_e2e::Run, says: &[&str]) {
    assert!(!run.status.success() && run.status.code().is_some(), "{}: {}", run.status, run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for say in says {
        assert!(run.stderr.contains(say), "{say:?}: {}", run.stderr);
    }
}

fn attach(pid: u32, more: &[&str]) -> calltap_e2e::Run {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let (pid, output) = (pid.to_string(), directory.path().join("t").display().to_string());
    let mut all = vec!["record", "-p", &pid, "-o", &output, "--duration", "10ms"];
    all.extend(more);
    let run = calltap_run(&all);
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("just made").flatten().collect();
    assert!(run.status.success() || left.is_empty(), "a refused attach leaves {left:?}");
    run
}

#[test]
fn what_is_no_process_of_ours_is_refused() {
    one_line(&attach(4_194_303, &[]), &["no such process"]);
    one_line(&attach(0, &[]), &[]);
    one_line(&calltap_run(&["record", "-p", "-5"]), &[]);
    one_line(&calltap_run(&["record", "-p", "x"]), &["x"]);
    let kernel = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if kernel {
        one_line(&attach(2, &[]), &["kernel thread"]);
    } else {
        skipped("no kernel threads are seen here");
    }
    // Its own id is that of the shell that it replaces.
    let mut own = Command::new("sh");
    own.args(["-c", "exec \"$0\" record -p $$ -o /tmp/never.calltap"]).arg(calltap_e2e::calltap());
    one_line(&run(own, b""), &["calltap itself"]);
}

#[test]
fn a_zombie_is_refused() {
    let mut child = Command::new("true").spawn().expect("true");
    thread::sleep(Duration::from_millis(100));
    one_line(&attach(child.id(), &[]), &["zombie"]);
    assert!(child.wait().expect("our own child").success());
}

#[test]
fn a_stopped_process_is_refused_and_stays_stopped() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let signal = |signal| {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(resident.pid as i32, signal) };
        thread::sleep(Duration::from_millis(50));
    };
    signal(libc::SIGSTOP);
    one_line(&resident.attach(SHORT), &["stopped"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", resident.pid)).unwrap_or_default();
    assert!(status.contains("T (stopped)"), "{status}");
    signal(libc::SIGCONT);
    assert!(resident.attach(SHORT).status.success());
    assert!(resident.end().0.success());
}

#[test]
fn a_process_under_another_tracer_is_refused() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    if have("strace") {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-p", &resident.pid.to_string()]);
        let mut strace = strace.stderr(std::process::Stdio::null()).spawn().expect("strace");
        thread::sleep(Duration::from_millis(300));
        one_line(&resident.attach(SHORT), &["traced by strace"]);
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(strace.id() as i32, libc::SIGINT) };
        let _ = strace.wait();
    }
    assert!(resident.attach(SHORT).status.success());
    assert!(resident.end().0.success());
}

fn outside(compiler: &str, flags: &[&str], says: &[&str]) {
    let program = Program::existing("/nowhere");
    let path = program.directory().join("outside");
    let source = program.directory().join("outside.c");
    std::fs::write(&source, "#include <unistd.h>\nint main(void) { char c; write(1, \"ready\\n\", 6); while (read(0, &c, 1) > 0) {} return 0; }")
        .expect("a source");
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(&path).arg(&source);
    let built = command.output().expect("a compiler");
    if !built.status.success() {
        return skipped(&format!("{compiler} {flags:?} does not link here"));
    }
    let mut resident = Resident::spawn(Command::new(path), program.directory().to_owned());
    resident.wait_for("ready");
    one_line(&resident.attach(SHORT), says);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn static_and_musl_programs_are_refused() {
    outside("gcc", &["-static", "-fpatchable-function-entry=5"], &["statically linked"]);
    outside("gcc", &["-static-pie", "-fpatchable-function-entry=5"], &["statically linked"]);
    if have("musl-gcc") {
        outside("musl-gcc", &["-fpatchable-function-entry=5"], &["musl"]);
        outside("musl-gcc", &["-static", "-fpatchable-function-entry=5"], &["statically linked"]);
    }
}

#[test]
fn a_program_without_traceable_functions_is_refused() {
    outside("gcc", &[], &["none of its"]);
}

#[test]
fn strict_seccomp_is_refused() {
    refused(&compile(GCC, &["resident.c"], &[]), &["seccomp"], &["seccomp"]);
}

#[test]
fn an_unknown_glob_names_the_nearest() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let run = resident.attach(&["--duration", "10ms", "-F", "outr"]);
    assert!(!run.status.success());
    assert!(run.stderr.contains("outer"), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.attach(&["--duration", "10ms", "-F", "outer"]).status.success());
    assert!(resident.end().0.success());
}

#[test]
fn nonsense_is_refused_before_the_process_is_touched() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    for nonsense in [
        &["--duration", "x"][..],
        &["--duration", "-1s"],
        &["--duration", ""],
        &["--duration", "99999999999999999999s"],
        &["--duration", "1e9"],
        &["--", "true"],
    ] {
        let run = resident.attach(nonsense);
        assert!(!run.status.success() && run.status.code().is_some(), "{nonsense:?}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{nonsense:?}: {}", run.stderr);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", resident.pid)).unwrap_or_default();
        assert!(!maps.contains("calltap-"), "{nonsense:?}");
    }
    assert!(!calltap_run(&["record", "--duration", "1s", "true"]).status.success(), "a duration without -p");
    assert!(resident.end().0.success());
}

#[test]
fn another_users_process_is_refused() {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 || !have("setpriv") {
        return skipped("not root, or no setpriv");
    }
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    // A copy that user can run.
    let copy = tempfile::TempDir::new_in("/tmp").expect("a temporary directory");
    let binary = copy.path().join("calltap");
    std::fs::copy(calltap_e2e::calltap(), &binary).expect("a copy");
    Command::new("chmod").args(["-R", "a+rx"]).arg(copy.path()).status().expect("chmod");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    other
        .args(["record", "-p", &resident.pid.to_string(), "--duration", "10ms", "-o", "/dev/null"])
        .current_dir("/");
    one_line(&run(other, b""), &["permission denied"]);
    assert!(resident.end().0.success());
}

fn open_frames(how: &str, build: &Build) {
    let program = compile(build, &["open_frames.cpp"], &["-rdynamic"]);
    for depth in ["3", "100", "20000"] {
        if depth == "20000" && how == "backtrace" {
            continue;
        }
        let go = |attach: bool| {
            let mut resident = Resident::start(&program, &[how, depth]);
            for turn in 0..3 {
                let mut calltap = attach.then(|| resident.attach_beside(TRACERS[turn]));
                if attach {
                    // Frames that are open when it is attached, and frames that are opened while it is.
                    thread::sleep(Duration::from_millis([5, 30, 60][turn]));
                }
                resident.tell();
                let inside = how != "coroutine";
                if inside {
                    resident.wait_for("down");
                }
                if let Some(calltap) = &mut calltap {
                    assert!(calltap.wait().expect("our own child").success());
                    assert_eq!(changed_text(resident.pid), [""; 0]);
                }
                if !inside {
                    resident.wait_for("down");
                }
                resident.tell();
                thread::sleep(Duration::from_millis(20));
            }
            resident.end()
        };
        assert_eq!(go(true), go(false), "{how} {depth} ({})", build.name);
    }
}

#[test]
fn frames_open_at_detaching_return() {
    for (_, build) in matrix() {
        open_frames("return", build);
    }
    open_frames("mixed", GCC);
}

#[test]
fn exceptions_pass_frames_open_at_detaching() {
    for (_, build) in matrix() {
        open_frames("throw", build);
    }
}

#[test]
fn longjmp_passes_frames_open_at_detaching() {
    open_frames("longjmp", GCC);
    open_frames("longjmp", &BUILDS[1]);
}

#[test]
fn backtraces_after_detaching_show_nobody_else() {
    for (_, build) in matrix() {
        open_frames("backtrace", build);
    }
}

#[test]
fn threads_end_through_frames_open_at_detaching() {
    open_frames("exit", GCC);
}

#[test]
fn a_coroutine_that_rests_at_detaching_goes_on() {
    open_frames("coroutine", GCC);
}

#[test]
fn forked_children_that_rest_are_left_as_they_were() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["workers"]);
    let mut calltap = resident.attach_beside(&["--duration", "400ms"]);
    thread::sleep(Duration::from_millis(200));
    resident.tell();
    let children: Vec<u32> =
        (0..3).map(|_| resident.wait_for("child").parse().expect("a process id")).collect();
    assert!(calltap.wait().expect("our own child").success());
    let changed: Vec<_> = children.iter().map(|child| changed_text(*child)).collect();
    let parent = changed_text(resident.pid);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    assert_eq!(parent, [""; 0]);
    assert!(changed.iter().all(Vec::is_empty), "{changed:?}");
}

#[test]
#[ignore = "long: takes a minute"]
fn a_process_that_becomes_another_program_goes_on() {
    let program = compile(GCC, &["resident.c"], &[]);
    for pause in [0, 5, 15, 25, 40, 100] {
        let mut resident = Resident::start(&program, &["exec"]);
        let mut calltap = resident.attach_beside(&["--duration", "60ms"]);
        thread::sleep(Duration::from_millis(pause));
        resident.tell();
        resident.wait_for("replaced");
        let _ = calltap.wait();
        assert_eq!(changed_text(resident.pid), [""; 0], "after {pause} ms");
        let (status, output, errors) = resident.end();
        assert_eq!(status.code(), Some(9), "after {pause} ms: {status} {output}{errors}");
    }
}

#[test]
#[ignore = "long: at random"]
fn killed_at_any_time_it_leaves_a_program_that_runs_on() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut seed = 12345u32;
    for how in ["counted", "churn", "busy"] {
        for _ in 0..6 {
            let mut resident = Resident::start(&program, &[how]);
            for _ in 0..4 {
                seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
                let mut calltap = resident.attach_beside(&["--duration", "5ms"]);
                thread::sleep(Duration::from_micros(u64::from(seed >> 8) % 30_000));
                let _ = calltap.kill();
                let _ = calltap.wait();
                resident.tell();
            }
            assert!(resident.runs(), "{how}");
            let (status, output, errors) = resident.end();
            assert!(status.success(), "{how}: {status} {output}{errors}");
        }
    }
}

#[test]
fn killed_at_any_system_call_it_leaves_a_program_that_runs_on() {
    if !have("strace") {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    for call in ["ptrace", "pwrite64", "wait4"] {
        for when in [1, 2, 3, 5, 8, 13, 21, 34] {
            let mut resident = Resident::start(&program, &["counted"]);
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
            strace
                .args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")])
                .arg(calltap_e2e::calltap());
            strace.args(["record", "-q", "-p", &resident.pid.to_string(), "--duration", "5ms", "-o"]);
            strace.arg(resident.trace());
            let _ = run(strace, b"");
            resident.tell();
            resident.wait_for("done");
            let (status, output, errors) = resident.end();
            assert!(status.success(), "{call} {when}: {status} {output}{errors}");
        }
    }
}

#[test]
fn libraries_opened_and_closed_while_attached() {
    for build in [&BUILDS[0], &BUILDS[1]] {
        let (program, library) = with_libraries(build);
        let command = || {
            let mut command = Command::new(&program.path);
            command.arg(&library).current_dir(program.directory());
            command
        };
        let alone = run(command(), b"");
        for _ in 0..8 {
            let mut resident = Resident::spawn(command(), program.directory().to_owned());
            let mut attached = 0;
            while resident.runs() {
                attached += usize::from(resident.attach(&["--duration", "2ms"]).status.success());
            }
            let (status, output, errors) = resident.end();
            assert_eq!(
                (status, &output, &errors),
                (alone.status, &alone.stdout, &alone.stderr),
                "{attached}"
            );
        }
    }
}

#[test]
#[ignore = "long: under stress"]
fn two_at_a_time_do_no_harm() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["busy"]);
    for _ in 0..6 {
        let mut both = [
            resident.attach_beside(SHORT),
            resident.attach_beside(&["--duration", "10ms", "-o", "/dev/null"]),
        ];
        both.iter_mut().for_each(|one| drop(one.wait()));
        assert!(resident.runs());
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

#[test]
fn attaching_to_what_is_being_recorded_does_no_harm() {
    let program = compile(GCC, &["resident.c"], &[]);
    let trace = program.directory().join("whole.calltap");
    let mut command = Command::new(calltap_e2e::calltap());
    command
        .args(["record", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program.path)
        .arg("counted")
        .process_group(0);
    let mut recorder = Resident::spawn(command, program.directory().to_owned());
    recorder.wait_for("ready");
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.pid)).unwrap_or_default();
    let Some(pid) = children.split_whitespace().next().and_then(|word| word.parse().ok()) else { return };
    let run = attach(pid, &[]);
    recorder.tell();
    recorder.wait_for("done");
    let (status, output, errors) = recorder.end();
    assert!(status.success(), "{status} {output}{errors}");
    assert!(!run.status.success(), "attached to what is recorded: {}", run.stderr);
    let info = calltap_run(&["info", "-i", &trace.to_string_lossy(), "--format", "json"]);
    assert!(
        info.stdout.contains("\"complaints\":[]") || info.stdout.contains("\"complaints\": []"),
        "{}",
        info.stdout
    );
}
