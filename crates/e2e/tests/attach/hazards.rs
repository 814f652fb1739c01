//! Attaching to programs that are hard to attach to: they must run on as if untraced.

use calltap_e2e::*;
use serde_json::Value;
use std::process::Command;

/// Attaches to a program that checks itself, built with room for tracing and without.
fn hazard(which: &str, flags: &[&str], changes: &[&str]) {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["hazards.c"], &[&["-lrt"], flags].concat());
        program.add(build, &["slow_library.c"], "slow_library.so", &["-shared", "-fPIC"]);
        goes_on(&program, &[which], 6, Tolerate { changes, ..Tolerate::default() });
    }
}

#[test]
fn queued_signals_arrive_once_and_in_order() {
    hazard("queue", &[], &["SigBlk", "SigPnd", "ShdPnd"]);
}

#[test]
fn a_real_time_timer_of_20_khz_goes_on() {
    hazard("timer", &[], &["SigBlk", "SigPnd", "ShdPnd"]);
}

#[test]
fn threads_that_change_their_user_are_not_waited_for() {
    hazard("users", &[], &["SigBlk", "SigPnd", "ShdPnd"]);
}

/// The agent is loaded once per process, so the test needs many processes.
#[test]
fn threads_that_are_created_while_others_change_their_user_do_not_wait_for_ever() {
    let program = compile(GCC, &["hazards.c"], &["-lrt"]);
    for _ in 0..16 {
        goes_on(
            &program,
            &["users and threads"],
            1,
            Tolerate { changes: &["Threads", "SigBlk", "SigPnd", "ShdPnd"], ..Tolerate::default() },
        );
    }
}

#[test]
fn programs_own_use_of_the_agents_thread_word_is_kept() {
    hazard("own words", &[], &[]);
}

#[test]
fn a_thread_of_the_kernel_in_the_process_is_let_alone() {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if disabled.is_ok_and(|disabled| disabled.trim() != "0") {
        return skipped("a thread of the kernel: io_uring is disabled (kernel.io_uring_disabled)");
    }
    hazard("kernel thread", &[], &[]);
}

#[test]
fn nested_handlers_on_other_stacks_return() {
    hazard("stacks", &[], &["SigBlk", "SigPnd", "ShdPnd"]);
}

#[test]
fn a_thread_with_a_hundred_megabytes_of_frames_is_traced() {
    hazard("deep stack", &[], &[]);
}

#[test]
fn no_thread_inside_the_programs_allocator_is_hijacked() {
    hazard("allocator", &["-DOWN_ALLOCATOR", "-fno-builtin"], &[]);
}

#[test]
fn restartable_sequences_lose_nothing() {
    hazard("sequences", &[], &[]);
}

#[test]
fn no_thread_waits_for_a_library_that_another_opens() {
    hazard("linker", &[], &[]);
}

#[test]
fn the_time_stamp_counter_is_not_read_where_that_is_forbidden() {
    hazard("no tsc", &[], &[]);
}

#[test]
fn stale_signal_frames_keep_no_mapping() {
    hazard("leftovers", &[], &[]);
}

/// Threads that expect the lowest number for a file, use a number that they were not given, and
/// close all numbers.
#[test]
fn no_descriptor_is_taken_from_the_program() {
    hazard("descriptors", &[], &[]);
}

#[test]
fn a_process_that_has_no_descriptor_left_is_attached_to() {
    for build in [GCC, &PLACED[0]] {
        let program = compile(build, &["used_up.c"], &[]);
        goes_on(&program, &["files"], 2, Tolerate::default());
    }
}

/// `unshare` and `setns` of a user namespace fail in a process of several threads.
#[test]
fn a_process_of_one_thread_has_no_second_one() {
    for build in [GCC, &BARE[0], &PLACED[0]] {
        goes_on(&compile(build, &["alone.c"], &[]), &[], 3, Tolerate::default());
    }
}

/// An address that is free when the mappings are read may be taken before calltap maps memory
/// there: then calltap tries another one.
#[test]
fn functions_of_a_library_are_traced_while_memory_is_mapped_all_the_time() {
    for flags in [&[][..], &["-static"]] {
        let program = compile(&BARE[0], &["hazards.c"], &[&["-lrt"], flags].concat());
        program.add(&BARE[0], &["slow_library.c"], "slow_library.so", &["-shared", "-fPIC"]);
        let resident = Resident::start(&program, &["mappings"]);
        for _ in 0..12 {
            let has_calls = |resident: &Resident| resident.sound().0 > 0;
            let run = resident.attach_until(&["-F", "malloc"], has_calls);
            assert!(run.status.success() && !run.stderr.contains("mapped"), "{flags:?}: {}", run.stderr);
            assert_eq!(resident.view("info")["notes"].to_string().find("mapped"), None, "{flags:?}");
        }
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{flags:?}: {status} {output}{errors}");
    }
}

/// Takes a snapshot, and detaches.
fn snapshot_and_detach(resident: &Resident, build: &Build) {
    let (pid, trace) = (resident.pid.to_string(), resident.trace());
    for command in [&["snapshot", "-p", &pid, "-o", &trace.to_string_lossy()][..], &["detach", "-p", &pid]] {
        let run = calltap_run(command);
        assert!(run.status.success(), "{}: {command:?}: {}", build.name, run.stderr);
    }
}

/// Detaches while a coroutine is suspended by a tail call, and lets it resume.
fn resumes_after_detaching(build: &Build, flags: &[&str]) {
    let program = compile(build, &["swaps_last.c"], flags);
    for tracers in [&[][..], &["--tracer", "function", "--tracer", "function_graph", "--tracer", "profile"]] {
        let mut resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let attached = calltap_run(&[&["attach", "-p", &pid][..], tracers].concat());
        assert!(attached.status.success(), "{}: {}", build.name, attached.stderr);
        resident.tell();
        resident.wait_for("done");
        snapshot_and_detach(&resident, build);
        let report = resident.view("report").to_string();
        assert!(report.contains("switches"), "{}: its entry is recorded: {report}", build.name);
        resident.tell();
        resident.wait_for("done");
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}

#[test]
fn coroutines_that_leave_by_a_tail_call_are_resumed_after_detaching() {
    for build in installed(BUILDS).chain(installed(&PLACED[..1])).chain(installed(&BARE[..4])) {
        // Without optimisation the compiler makes no tail calls.
        for flags in [&[][..], &["-DOWN_SWITCHER"]] {
            resumes_after_detaching(build, flags);
        }
    }
}

/// Each stack has a piece of the shadow stack of its own.
#[test]
fn calls_on_thousands_of_suspended_stacks_return_after_detaching() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["many_stacks.c"], &[]);
        let mut resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let attached = calltap_run(&["attach", "-p", &pid, "-F", "suspends"]);
        assert!(attached.status.success(), "{}: {}", build.name, attached.stderr);
        resident.tell();
        resident.wait_for("done");
        snapshot_and_detach(&resident, build);
        assert_eq!(changed_text(resident.pid), [""; 0], "{}", build.name);
        let rows = resident.view("report");
        assert_eq!((&rows[0]["function"], &rows[0]["calls"]), (&"suspends".into(), &9000.into()), "{rows}");
        resident.tell();
        resident.wait_for("done");
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}

/// An execve waits for the end of the other threads, and a tracer that seizes a thread waits for
/// the execve.
#[test]
fn an_execve_and_calltap_do_not_wait_for_each_other() {
    let program = compile(&BARE[0], &["executes_itself.c"], &[]);
    let mut child = Command::new(&program.path).arg("400").spawn().expect("the program starts");
    let pid = child.id().to_string();
    let trace = program.directory().join("trace").to_string_lossy().into_owned();
    let mut attaches = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            break status;
        }
        // The program may execute itself at any moment: what calltap says of that is not tested
        // here.
        let run = calltap_run(&["record", "-q", "-p", &pid, "-F", "work", "--duration", "5ms", "-o", &trace]);
        attaches += u32::from(run.status.success());
    };
    assert_eq!(status.code(), Some(5), "after {attaches} attaches");
    assert!(attaches > 0, "no attach succeeded");
}

#[test]
fn partly_mapped_file_offers_mapped_functions_only() {
    for build in &BARE[..1] {
        let program = compile(build, &["piece.c"], &[]);
        let mut resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let attached = calltap_run(&["attach", "-p", &pid, "-F", "inside", "-F", "outside"]);
        assert!(attached.status.success(), "{}: {}", build.name, attached.stderr);
        assert!(!attached.stderr.contains("not traced"), "{}: {}", build.name, attached.stderr);
        resident.tell();
        resident.wait_for("done");
        snapshot_and_detach(&resident, build);
        assert_eq!(changed_text(resident.pid), [""; 0], "{}", build.name);
        let rows = resident.view("report");
        let rows: Vec<_> = rows.as_array().into_iter().flatten().collect();
        let calls = |function: &str| -> u64 {
            rows.iter()
                .filter(|row| row["function"] == function)
                .filter_map(|row| row["calls"].as_u64())
                .sum()
        };
        assert_eq!((calls("inside"), calls("outside")), (2, 1), "{}: {rows:?}", build.name);
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}

/// Attaches to a program that has its own code trap, moves it, or gives its threads control blocks
/// of its own.
fn goes_its_own_way(which: &str) {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["own_ways.c"], &[]);
        for _ in 0..3 {
            goes_on(&program, &[which], 4, Tolerate { changes: &["SigBlk"], ..Tolerate::default() });
        }
    }
}

#[test]
fn a_program_that_steps_through_its_own_code_is_not_killed() {
    goes_its_own_way("steps");
}

#[test]
fn unaligned_accesses_that_trap_are_no_hindrance() {
    goes_its_own_way("aligned");
}

#[test]
fn threads_with_own_tcb_never_run_dlopen() {
    goes_its_own_way("blocks");
}

#[test]
fn no_code_is_placed_in_libraries_that_are_unloaded() {
    let program = compile(&BARE[0], &["own_ways.c"], &[]);
    // The agent comes in once in the life of a process, so there are many processes.
    for _ in 0..12 {
        let mut resident = Resident::start(&program, &["opens"]);
        let run = resident.attach(SHORT);
        assert!(run.status.success() && resident.runs(), "{}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{}", run.stderr);
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{status} {output}{errors}");
    }
}

#[test]
fn anonymous_text_is_restored() {
    goes_its_own_way("moved");
}

#[test]
fn text_that_is_not_executable_for_the_moment_is_restored() {
    goes_its_own_way("rewrites");
}

/// A process that has the same text mapped, and was not attached to, would execute the jumps.
#[test]
fn text_that_other_processes_share_is_not_changed() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["shared_text.c"], &[]);
        let library = program.add(build, &["library.c"], "libshared.so", &["-shared", "-fPIC"]);
        let file = std::fs::read(&library).expect("the library");
        let resident = Resident::start(&program, &[&library.to_string_lossy()]);
        let run = resident.attach(&["-F", "*", "--duration", "200ms"]);
        let says = run.stderr.contains("functions of libshared.so are not traced");
        assert!(run.status.success() && says, "{}: {}", build.name, run.stderr);
        assert!(std::fs::read(&library).expect("the library") == file, "{}: its file", build.name);
        let (status, output, errors) = resident.end();
        assert_eq!(status.code(), Some(7), "{}: {status} {output}{errors}", build.name);
    }
}

/// Behind the text of such a program is its data, where no code may be put for a moment. No segment
/// of it has its program headers.
#[test]
fn a_program_with_text_and_data_in_one_segment_is_attached_to() {
    let flags = &["-O2", "-static", "-fuse-ld=lld", "-Wl,--omagic"];
    let build = &Build { name: "lld --omagic", compilers: CLANG.compilers, flags };
    if !have(build.compilers[0]) {
        return;
    }
    let program = compile(build, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    for _ in 0..4 {
        let run = resident.attach(&["-F", "outer", "--duration", "50ms"]);
        assert!(run.status.success(), "{}", run.stderr);
    }
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
}

#[test]
fn text_moved_by_mremap_is_restored() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["own_ways.c"], &[]);
        let mut resident = Resident::start(&program, &["moves"]);
        let attached = calltap_run(&["attach", "-p", &resident.pid.to_string()]);
        assert!(attached.status.success(), "{}: {}", build.name, attached.stderr);
        resident.tell();
        resident.wait_for("done");
        let detached = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
        assert!(detached.status.success(), "{}: {}", build.name, detached.stderr);
        await_sleeps(resident.pid, 3);
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}

#[test]
fn a_program_that_dispatches_its_system_calls_is_refused() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["own_ways.c"], &[]);
        refused(&program, &["dispatch"], &["PR_SET_SYSCALL_USER_DISPATCH"]);
    }
}

#[test]
fn a_program_with_a_thread_without_a_control_block_is_refused() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["own_ways.c"], &[]);
        refused(&program, &["bare"], &["no control block"]);
    }
}

#[test]
fn a_static_program_that_may_open_no_file_is_refused_for_that() {
    refused(&compile(&BARE[0], &["own_ways.c"], &["-static"]), &["sandbox"], &["Landlock"]);
}

/// A thread that is made to allocate would wait for a collector that waits for this thread.
#[test]
fn no_thread_is_made_to_call_an_allocator_that_stops_the_others() {
    for build in [GCC, &BARE[0]] {
        let library = ["-DLIBRARY", "-shared", "-fPIC", "-fno-builtin"];
        let program = compile(build, &["collector.c"], &library);
        let library = program.add(build, &["collector.c"], "libcollector.so", &library);
        let (name, rpath) =
            (program.path.file_name(), format!("-Wl,-rpath,{}", program.directory().display()));
        let name = name.expect("it has one").to_string_lossy();
        program.add(build, &["collector.c"], &name, &[&library.to_string_lossy(), &rpath]);
        for _ in 0..3 {
            goes_on(&program, &[], 2, Tolerate { changes: &["SigBlk", "SigPnd"], ..Tolerate::default() });
        }
    }
}

/// Copies of displaced instructions have no unwinding information.
// An unwinder leaves addresses inside the code that jumps overwrite on the stacks of these threads.
#[test]
fn functions_of_threads_that_throw_all_the_time_are_traced() {
    for build in installed(BARE).filter(|build| !build.flags.contains(&"-s")) {
        let program = compile(build, &["caught.cpp"], &[]);
        let resident = Resident::start(&program, &["20"]);
        let shows = |resident: &Resident| {
            let rows = resident.view("report");
            let has = |name| rows.as_array().is_some_and(|rows| rows.iter().any(|row| is_of(row, name)));
            has("catches(") && has("throws(")
        };
        let run = resident.attach_until(&[], shows);
        assert!(run.status.success() && shows(&resident), "{}: {}", build.name, run.stderr);
        assert!(!run.stderr.contains("not traced"), "{}: {}", build.name, run.stderr);
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{}: {status} {output}{errors}", build.name);
    }
}

fn is_of(row: &Value, function: &str) -> bool {
    row["function"].as_str().is_some_and(|name| name.starts_with(function))
}

#[test]
fn exceptions_that_handlers_of_faults_throw_are_caught() {
    for build in [GCC, &BARE[0], &BARE[3]].into_iter().filter(|build| have(build.compilers[0])) {
        let flags = ["-fnon-call-exceptions", "-fasynchronous-unwind-tables", "-pthread"];
        let program = compile(build, &["fault_throws.cpp"], &flags);
        goes_on(&program, &[], 8, Tolerate::default());
    }
}

#[test]
fn a_collector_of_code_finds_all_return_addresses() {
    for (flags, is_lisp) in [(&["-rdynamic"][..], true), (&[], false)] {
        let program = compile(&BARE[0], &["collects_code.c"], flags);
        let (path, trace) = (program.path.display().to_string(), program.directory().join("t"));
        let trace = trace.display().to_string();
        let run = calltap_run(&["record", "-o", &trace, "-F", "jumps", "-F", "returns", "--", &path]);
        assert!(run.status.success(), "{flags:?}: {}", run.stderr);
        let says = run.stderr.contains("the program's collector finds code by return addresses on stacks");
        assert_eq!(says, is_lisp, "{flags:?}: {}", run.stderr);
        let report = calltap_run(&["report", "--json", &trace]).stdout;
        let rows = rows_of(&report);
        let row = |name: &str| rows.iter().find(|row| row["function"] == name).expect("it was called");
        assert_eq!(
            (&row("jumps")["calls"], &row("returns")["calls"]),
            (&100.into(), &200.into()),
            "{report}"
        );
        assert_eq!(row("jumps")["total_ns"].is_null(), is_lisp, "{flags:?}: {report}");
        assert!(row("returns")["total_ns"].is_u64(), "{flags:?}: {report}");
    }
}
