use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// Two threads; at a byte of input the first replaces the program by `cat`.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *wait_for_ever(void *unused) { for (;;) pause(); }
int main(void) {
    pthread_t thread;
    char byte;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) == 1) execlp("cat", "cat", NULL);
    return 1;
}
"#;

/// What takes longer waits for itself.
const LIMIT: Duration = Duration::from_secs(30);

fn start(directory: &std::path::Path) -> Child {
    let (source, program) = (directory.join("program.c"), directory.join("program"));
    fs::write(&source, PROGRAM).expect("a file");
    let mut compiler = Command::new("gcc");
    compiler.args(["-pthread", "-o"]).arg(&program).arg(&source);
    assert!(compiler.status().expect("gcc").success());
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("its output")).read_line(&mut line).expect("a line");
    child
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work`, a tracer's, in a thread that ends. None: it does not end in time.
fn trace<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || drop(sender.send(work())));
    receiver.recv_timeout(LIMIT).ok()
}

/// With another thread of its process stopped, the program is replaced; `work` then controls it as a tracer does that knows nothing of that.
fn check(work: impl FnOnce(u32) -> Result<(), NotHeld> + Send + 'static) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = start(directory.path());
    let (process, mut input) = (child.id(), child.stdin.take().expect("its input"));
    let other = proc::threads(process).into_iter().find(|tid| *tid != process).expect("two threads");
    let done = trace(move || {
        let held = Held::take(process, other).expect("it waits");
        input.write_all(b"x").expect("the program reads");
        wait_until(|| proc::state(other).is_none_or(proc::is_end));
        let done = work(process);
        drop(held);
        input.write_all(b"as before").expect("cat reads");
        done
    });
    if done.is_none() {
        child.kill().expect("a child of this process");
    }
    let output = child.wait_with_output().expect("its output");
    assert_eq!(done, Some(Ok(())));
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"as before"[..]));
}

#[test]
fn all_threads_of_a_process_in_the_middle_of_execve_can_be_stopped() {
    check(|process| {
        let start = Instant::now();
        loop {
            match Held::take_all(process) {
                Err(NotHeld::Stuck) if start.elapsed() < LIMIT => {}
                held => return held.map(drop),
            }
        }
    });
}

#[test]
fn a_thread_in_the_middle_of_execve_can_be_stopped() {
    check(|process| Held::take(process, process).map(drop));
}
