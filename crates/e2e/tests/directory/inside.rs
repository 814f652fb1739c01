//! Programs that use their own control directory: they wait for calltap, and must not do so while
//! calltap waits for them.

use calltap_e2e::*;
use std::process::Command;

/// A program that `calltap run` has started with its directory mounted.
struct Inside {
    place: MountPoint,
    calltap: Resident,
    _program: Program,
}

impl Inside {
    /// Starts the program, which begins its work on request.
    fn start(what: &str) -> Inside {
        let place = MountPoint(tempfile::tempdir().expect("a directory"));
        let program = compile(GCC, &["own_directory.c"], &[]);
        let mut command = Command::new(calltap());
        command.args(["run", "--mount"]).arg(place.root()).arg("--").arg(&program.path);
        command.arg(place.root()).arg(what);
        let calltap = Resident::spawn(command, program.directory().to_owned());
        await_that("it is mounted", || place.path("current_tracer").exists());
        Inside { place, calltap, _program: program }
    }

    /// Waits for the end, and checks the output that no test waited for.
    fn end(self, expected: &str) {
        let (status, output, errors) = self.calltap.end();
        assert!(status.success(), "{status}: {errors}");
        self.place.await_unmounted();
        assert_eq!(output, expected, "{errors}");
    }
}

/// Checks that a program ends which does this alone.
fn check(what: &str) {
    if !have_fuse() {
        return;
    }
    let mut inside = Inside::start(what);
    inside.calltap.tell();
    inside.end("ready\ndone\n");
}

#[test]
fn a_program_becomes_another_with_a_filter_half_written() {
    check("exec");
}

#[test]
fn a_program_becomes_another_while_all_its_threads_switch_tracers() {
    check("threads");
}

#[test]
fn forked_children_that_switch_a_tracer_miss_no_call() {
    check("children");
}

#[test]
fn a_process_that_reads_its_own_pipe_does_not_keep_filters_from_changing() {
    if !have_fuse() {
        return;
    }
    let mut inside = Inside::start("read");
    inside.place.echo("inner", "set_ftrace_filter");
    inside.place.echo("function", "current_tracer");
    inside.calltap.tell();
    inside.calltap.wait_for("reads");
    assert!(inside.place.try_echo("function_graph", "current_tracer").is_err());
    inside.place.echo("outer", "set_ftrace_filter");
    assert_eq!(inside.place.cat("enabled_functions"), "outer (1)\n");
    inside.calltap.tell();
    inside.calltap.wait_for("read");
    await_that("it has read", || {
        let stats = inside.place.cat("per_cpu/cpu0/stats");
        stats.lines().any(|line| line.strip_prefix("read events: ").is_some_and(|n| n != "0"))
    });
    inside.end("ready\n");
}
