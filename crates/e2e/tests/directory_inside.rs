//! Programs that use their own control directory: they wait for us, and must not while we wait for them.

use calltap_e2e::*;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that is run with its directory.
struct Inside {
    place: Place,
    child: Child,
    _program: Program,
}

impl Inside {
    /// It begins when it is told.
    fn start(what: &str) -> Inside {
        let place = Place(tempfile::tempdir().expect("a directory"));
        let program = compile(GCC, &["own_directory.c"], &[]);
        let mut command = Command::new(calltap());
        command.args(["run", "--mount"]).arg(place.root()).arg("--").arg(&program.path);
        command.arg(place.root()).arg(what).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("calltap");
        await_that("it is mounted", || place.path("current_tracer").exists());
        Inside { place, child, _program: program }
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// What it has said.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let ended = ends_within(&mut self.child, Duration::from_secs(60));
        if ended.is_none() {
            let _ = self.child.kill();
        }
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        self.place.await_unmounted();
        std::io::read_to_string(self.child.stdout.take().expect("piped")).expect("text")
    }
}

/// Has a program do this, alone: it ends.
fn check(what: &str) {
    if !have_fuse() {
        return;
    }
    let mut inside = Inside::start(what);
    inside.tell();
    assert_eq!(inside.end(), "ready\ndone\n", "{what}");
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
fn a_process_that_reads_its_own_pipe_does_not_keep_filters_from_changing() {
    if !have_fuse() {
        return;
    }
    let mut inside = Inside::start("read");
    inside.place.echo("inner", "set_ftrace_filter");
    inside.place.echo("function", "current_tracer");
    inside.tell();
    await_that("it reads", || inside.place.try_echo("function_graph", "current_tracer").is_err());
    inside.place.echo("outer", "set_ftrace_filter");
    assert_eq!(inside.place.cat("enabled_functions"), "outer (1)\n");
    inside.tell();
    await_that("it has read", || {
        let stats = inside.place.cat("per_cpu/cpu0/stats");
        stats.lines().any(|line| line.strip_prefix("read events: ").is_some_and(|n| n != "0"))
    });
    assert_eq!(inside.end(), "ready\nread\n");
}
