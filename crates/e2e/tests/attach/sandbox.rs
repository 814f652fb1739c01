//! Attaching to programs under seccomp filters: it succeeds if the filter permits the agent's
//! system calls, and changes nothing otherwise.

use calltap_e2e::{
    BARE, GCC, Program, Resident, Run, changed_text, compile, is_root, kill, one_line, skipped, succeeds,
};

/// Attaches while the program works on a line of input, and checks that its calls are recorded.
fn recorded(resident: &mut Resident) {
    let mut calltap = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("work 55");
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    assert!(resident.sound().0 > 0, "no calls");
}

/// Attaches to a program under a filter: its calls are recorded if `refused` is `None`, else
/// attaching is refused with these words. The program runs on in both cases.
fn check(how: &str, refused: Option<&str>) {
    let program = compile(GCC, &["sandboxed.c"], &["-pthread"]);
    let mut resident = Resident::start(&program, &[how]);
    for _ in 0..3 {
        match refused {
            None => recorded(&mut resident),
            Some(why) => {
                let run = resident.attach(&["--duration", "100ms"]);
                assert!(!run.status.success() && run.stderr.contains(why), "{how}: {}", run.stderr);
            }
        }
        assert!(resident.runs(), "{how}: killed");
        assert_eq!(changed_text(resident.pid), [""; 0], "{how}");
    }
    resident.tell();
    resident.wait_for("work 55");
    assert_eq!(resident.end().0.code(), Some(7), "{how}");
}

#[test]
fn attach_works_under_container_seccomp_filter() {
    check("usual", None);
}

#[test]
fn killing_seccomp_filter_is_detected_before_attaching() {
    check("no openat", Some("does not allow openat"));
}

#[test]
fn a_filter_that_allows_prctl_for_names_alone_is_no_hindrance() {
    check("prctl for names", None);
}

#[test]
fn the_filter_of_every_single_thread_counts() {
    check("thread", Some("does not allow mmap"));
}

#[test]
fn a_filter_that_refuses_threads_is_no_hindrance() {
    check("no clone", None);
}

#[test]
fn where_membarrier_is_refused_the_threads_are_stopped_to_change_code() {
    check("no membarrier", None);
}

#[test]
fn a_sandbox_without_files_is_refused_for_its_filter() {
    if !is_root() {
        return skipped("not root: a root directory cannot be changed");
    }
    let program = compile(GCC, &["sandboxed.c"], &["-pthread"]);
    let resident = Resident::start(&program, &["no openat", "rootless"]);
    one_line(&resident.attach(&["--duration", "10ms"]), &["its seccomp filter does not allow openat"]);
}

/// System calls that the agent, the C library or an injected call might make. The program makes
/// none of them once it is ready.
const CALLS: [libc::c_long; 48] = [
    libc::SYS_open,
    libc::SYS_close,
    libc::SYS_stat,
    libc::SYS_fstat,
    libc::SYS_lstat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_access,
    libc::SYS_sched_yield,
    libc::SYS_mremap,
    libc::SYS_mincore,
    libc::SYS_madvise,
    libc::SYS_getpid,
    libc::SYS_clone,
    libc::SYS_uname,
    libc::SYS_fcntl,
    libc::SYS_getcwd,
    libc::SYS_readlink,
    libc::SYS_gettimeofday,
    libc::SYS_getrlimit,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_sigaltstack,
    libc::SYS_prctl,
    libc::SYS_arch_prctl,
    libc::SYS_munlock,
    libc::SYS_gettid,
    libc::SYS_tkill,
    libc::SYS_set_tid_address,
    libc::SYS_clock_gettime,
    libc::SYS_tgkill,
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_set_robust_list,
    libc::SYS_prlimit64,
    libc::SYS_process_vm_readv,
    libc::SYS_getrandom,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_clone3,
];

/// Calls among these that calltap makes in no process, or only if they are allowed.
const UNUSED: [libc::c_long; 8] = [
    libc::SYS_rt_sigaction,
    libc::SYS_uname,
    libc::SYS_ioctl,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_sched_yield,
    libc::SYS_process_vm_readv,
    libc::SYS_munlock,
];

/// Attaching to a program that a filter kills for one system call is refused, or the filter does
/// not matter.
#[test]
fn a_filter_for_any_single_call_kills_nothing() {
    let program = compile(GCC, &["sandboxed.c"], &["-pthread"]);
    for call in CALLS {
        let run = survives(&program, &format!("kill {call}"));
        assert!(run.status.success() || !UNUSED.contains(&call), "call {call}: {}", run.stderr);
    }
    // Loading the agent may be the first that allocates memory.
    for call in [libc::SYS_brk, libc::SYS_getrandom, libc::SYS_prlimit64] {
        survives(&program, &format!("kill early {call}"));
    }
}

/// A filter raises SIGSYS in a system call; the handler gives the call its result.
#[test]
fn emulated_system_calls_keep_their_results() {
    for flags in [&["-pthread"][..], &["-pthread", "-static"]] {
        let program = compile(&BARE[0], &["sandboxed.c"], flags);
        let mut resident = Resident::start(&program, &["trapped"]);
        for n in 0..8 {
            let run = resident.attach(&["-F", "work", "--duration", "20ms"]);
            assert!(run.status.success() && resident.runs(), "{flags:?} {n}: {}", run.stderr);
            assert_eq!(changed_text(resident.pid), [""; 0], "{flags:?} {n}");
        }
        let (status, output, errors) = resident.end();
        assert_eq!(status.code(), Some(7), "{flags:?}: {status} {output}{errors}");
    }
}

/// Attaches to a program under a filter, or is refused for it. The program ends as if untraced.
fn survives(program: &Program, filter: &str) -> Run {
    let resident = Resident::start(program, &[filter]);
    let run = resident.attach(&["--duration", "20ms"]);
    if !run.status.success() {
        one_line(&run, &["its seccomp filter does not allow"]);
    }
    let (status, output, errors) = resident.end();
    assert_eq!(status.code(), Some(7), "{filter}: {status} {output}{errors} {}", run.stderr);
    run
}
