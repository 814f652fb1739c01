//! Attaching to programs under seccomp filters: it succeeds if the filter permits the agent's
//! system calls, and changes nothing otherwise.

use calltap_e2e::{GCC, Resident, changed_text, compile, kill, one_line, skipped, succeeds};

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
fn a_filter_like_those_of_containers_lets_us_in() {
    check("usual", None);
}

#[test]
fn a_filter_that_kills_for_what_the_agent_needs_is_seen_before() {
    check("no openat", Some("does not allow openat"));
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
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("not root: a root directory cannot be changed");
    }
    let program = compile(GCC, &["sandboxed.c"], &["-pthread"]);
    let resident = Resident::start(&program, &["no openat", "rootless"]);
    one_line(&resident.attach(&["--duration", "10ms"]), &["its seccomp filter does not allow openat"]);
}
