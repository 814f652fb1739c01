//! Waiting for other processes, and signals to them.

use crate::run::HANGS;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until a condition is true.
pub fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < HANGS, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a child, and returns its status.
pub fn end_of(mut child: Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        match child.try_wait().expect("a child of this process") {
            Some(status) => return status,
            None if start.elapsed() > HANGS => {
                let _ = child.kill();
                panic!("it does not end");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Interrupts a child, and returns its status.
pub fn interrupt(child: Child) -> ExitStatus {
    kill(child.id(), 2);
    end_of(child)
}

/// Sends a signal with a name. Returns whether the process exists.
pub fn kill(pid: u32, signal: i32) -> bool {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, named(signal)).is_ok()
}

/// Sends a signal with a name to a process group. Returns whether it exists.
pub fn kill_group(group: u32, signal: i32) -> bool {
    let group = Pid::from_raw(group as i32).expect("a process group");
    kill_process_group(group, named(signal)).is_ok()
}

fn named(signal: i32) -> Signal {
    Signal::from_named_raw(signal).expect("a signal with a name")
}
