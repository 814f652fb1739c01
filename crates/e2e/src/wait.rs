//! Waiting for other processes, and signals to them.

use crate::run::HANGS;
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

/// Sends a signal.
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: a signal to a process of this test.
    unsafe { libc::kill(pid as i32, signal) };
}
