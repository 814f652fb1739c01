use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// A program of argv[1] threads. At a byte of input, its first thread or another one replaces the
/// program with `cat` (`x`) or ends it.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int over;
static void *wait_for_ever(void *unused) { for (;;) pause(); }
static void *work(void *unused) { while (!over) usleep(200); return NULL; }
static void *control(void *unused) {
    char byte;
    if (read(0, &byte, 1) == 1 && byte == 'x') execlp("cat", "cat", NULL);
    over = 1;
    return NULL;
}
int main(int argc, char **argv) {
    static pthread_t threads[1000];
    int count = atoi(argv[1]), is_first = atoi(argv[2]);
    for (int n = 1; n < count; n++)
        pthread_create(&threads[n], NULL, !is_first && n == 1 ? control : count == 2 ? wait_for_ever : work, NULL);
    puts("ready");
    fflush(stdout);
    if (is_first) control(NULL);
    for (int n = 1; n < count; n++) pthread_join(threads[n], NULL);
    return 0;
}
"#;

/// Time limit: a test that takes longer is deadlocked.
const LIMIT: Duration = Duration::from_secs(120);

fn start(directory: &std::path::Path, threads: usize, first: bool) -> Child {
    let (source, program) = (directory.join("program.c"), directory.join("program"));
    fs::write(&source, PROGRAM).expect("a file");
    let mut compiler = Command::new("gcc");
    compiler.args(["-pthread", "-o"]).arg(&program).arg(&source);
    assert!(compiler.status().expect("gcc").success());
    let mut command = Command::new(program);
    command.args([threads.to_string(), i32::from(first).to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("its output")).read_line(&mut line).expect("a line");
    child
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work`, a tracer's, in a thread that ends. None if it does not end in time.
fn trace<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || drop(sender.send(work())));
    receiver.recv_timeout(LIMIT).ok()
}

/// Replaces the program while another thread of its process is stopped; `work` then controls it
/// as a tracer that does not know of the execve.
fn check(work: impl FnOnce(u32) -> Result<(), NotHeld> + Send + 'static) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = start(directory.path(), 2, true);
    let (process, mut input) = (child.id(), child.stdin.take().expect("its input"));
    let other = proc::threads(process).into_iter().find(|tid| *tid != process).expect("two threads");
    let done = trace(move || {
        let held = StoppedThread::take(process, other).expect("it waits");
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
            match StoppedThread::take_all(process) {
                Err(NotHeld::Stuck) if start.elapsed() < LIMIT => {}
                held => return held.map(drop),
            }
        }
    });
}

#[test]
fn a_thread_in_the_middle_of_execve_can_be_stopped() {
    check(|process| StoppedThread::take(process, process).map(drop));
}

/// Stops many threads again and again with two tracing threads. The first thread of the program, or
/// another one, meanwhile obeys `byte`.
fn check_many(first: bool, byte: u8, work: impl Fn(&mut [StoppedThread]) + Send + 'static) {
    const THREADS: usize = 200;
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = start(directory.path(), THREADS, first);
    let (process, mut input) = (child.id(), child.stdin.take().expect("its input"));
    let done = trace(move || {
        for round in 0..20 {
            if round == 10 {
                input.write_all(&[byte]).expect("the program reads");
            }
            match StoppedThread::take_all_within(process, LIMIT) {
                Ok(mut held) if round < 10 => {
                    assert_eq!(held.len(), THREADS);
                    work(&mut held);
                }
                // The program is replaced, or ends.
                Ok(_) | Err(NotHeld::Gone) => {}
                Err(why) => panic!("{why:?} in round {round}"),
            }
        }
        input.write_all(b"as before").or_else(|error| if byte == b'x' { Err(error) } else { Ok(()) })
    });
    if done.is_none() {
        child.kill().expect("a child of this process");
    }
    let output = child.wait_with_output().expect("its output");
    assert!(matches!(done, Some(Ok(()))), "{done:?}");
    let expected: &[u8] = if byte == b'x' { b"as before" } else { b"" };
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), expected));
}

#[test]
fn threads_that_two_have_stopped_obey_the_one_that_asked() {
    check_many(true, b'.', |held| {
        let others = held.iter().filter(|held| held.is_seconds).count();
        let processors = thread::available_parallelism().expect("processors").get();
        assert!(others.abs_diff(if processors > 1 { held.len() / 2 } else { 0 }) <= 1, "{others}");
        for thread in held.iter_mut().step_by(41) {
            let mask = thread.blocked_signals().expect("a mask");
            thread.block_signals().expect("it stands still");
            thread.set_blocked_signals(mask).expect("it stands still");
            thread.run().expect("it stands still");
            thread.halt().expect("it runs");
            thread.set(thread.regs).expect("it stands still");
        }
    });
}

#[test]
fn program_with_stopped_threads_can_be_replaced_by_execve() {
    check_many(true, b'x', |_| {});
    check_many(false, b'x', |_| {});
}

#[test]
fn a_tracer_that_ends_before_a_signal_is_delivered_leaves_the_signal_to_the_thread() {
    let script = "trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done";
    let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("its output")).read_line(&mut line).expect("a line");
    let tid = child.id();
    let reported = trace(move || {
        seize(tid).expect("a child");
        nix::sys::signal::kill(pid(tid), nix::sys::signal::SIGUSR1).expect("a child");
        wait_until(|| matches!(wait::poll(tid), Report::Signal(libc::SIGUSR1)));
    });
    assert_eq!(reported, Some(()));
    // The tracer has sent its result, but may still exist. Until it has ended, a wait of this
    // thread would take the report of the stop, and with it the signal.
    wait_until(|| Status::of(tid).is_ok_and(|status| status.tracer().is_none()));
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() && start.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    assert_eq!(child.wait().expect("a child").code(), Some(7), "its handler has not run");
}
