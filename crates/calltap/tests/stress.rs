//! Four threads call traced functions and check their results while ops are registered and
//! unregistered.

use calltap::{Call, Ops, register, traced};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a lock, as each test needs the machine to itself.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

#[traced]
fn integers(a: u64, b: u64) -> u64 {
    a.rotate_left(7) ^ b
}

#[traced]
fn floats(a: f64, b: f64, c: f64) -> f64 {
    a * b + c
}

#[traced]
fn words(a: &str, n: usize) -> String {
    a.repeat(n)
}

#[traced]
fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

/// Makes a round of calls, each of which is checked.
fn round(n: u64) {
    assert_eq!(black_box(integers(n, 5)), n.rotate_left(7) ^ 5);
    let x = n as f64;
    let (a, b) = (black_box(floats(x, 0.5, 1.0)), black_box(floats(x, 0.25, 2.0)));
    assert_eq!((a, b), (x * 0.5 + 1.0, x * 0.25 + 2.0));
    assert_eq!(words("ab", (n % 4) as usize).len() as u64, n % 4 * 2);
    assert_eq!(fib(10), 55);
}

const SECONDS: u64 = 3;

#[test]
fn ops_register_and_unregister_during_calls() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let caller = |stop: Arc<AtomicBool>| {
        move || {
            let mut n = 0;
            while !stop.load(Relaxed) {
                round(n);
                n += 1;
            }
            n
        }
    };
    let callers: Vec<_> = (0..4).map(|_| thread::spawn(caller(Arc::clone(&stop)))).collect();
    // Short-lived threads, each of which makes a few calls.
    let short = Arc::clone(&stop);
    let spawner = thread::spawn(move || {
        while !short.load(Relaxed) {
            thread::spawn(|| round(3)).join().expect("a short thread");
        }
    });
    let patterns = [["stress::*"], ["*::fib"], ["*::integers"], ["*s"], ["nothing"], ["*::words"]];
    let controllers: Vec<_> = (0..2)
        .map(|turn: usize| {
            thread::spawn(move || {
                let start = Instant::now();
                let (mut turns, mut calls) = (turn, 0);
                while start.elapsed() < Duration::from_secs(SECONDS) {
                    let mut all = Vec::new();
                    for n in 0..1 + turns % 3 {
                        let alive = Arc::new((AtomicBool::new(true), AtomicU64::new(0)));
                        let own = Arc::clone(&alive);
                        let ops = Ops::new("stress", move |call: &Call| {
                            if !own.0.load(SeqCst) {
                                eprintln!("a callback ran after unregister had returned");
                                std::process::abort();
                            }
                            assert_ne!(call.mask(), 0);
                            own.1.fetch_add(1, Relaxed);
                        });
                        let ops = register(ops.filter(patterns[(turns + n) % 6]).may_match_nothing())
                            .expect("registered");
                        all.push((ops, alive));
                    }
                    for (n, (ops, _)) in all.iter().enumerate() {
                        ops.set_filter(patterns[(turns + n + 1) % 6]).expect("set");
                        ops.set_notrace(patterns[(turns + n + 4) % 6]).expect("set");
                    }
                    for (ops, alive) in all {
                        ops.unregister().expect("off");
                        alive.0.store(false, SeqCst);
                        calls += alive.1.load(Relaxed);
                        assert_eq!(Arc::strong_count(&alive), 1);
                    }
                    turns += 1;
                }
                (turns, calls)
            })
        })
        .collect();
    let turns: Vec<_> =
        controllers.into_iter().map(|controller| controller.join().expect("a controller")).collect();
    stop.store(true, Relaxed);
    let rounds: u64 = callers.into_iter().map(|caller| caller.join().expect("a caller")).sum();
    spawner.join().expect("the spawner");
    assert!(calltap::failures().expect("a list").is_empty());
    assert_eq!(calltap::combinations().expect("a number"), 0);
    println!("{rounds} rounds, (turns, calls) of the controllers {turns:?}");
    assert!(rounds > 0 && turns.iter().all(|(turns, _)| *turns > 2));
}

#[test]
fn unregister_waits_for_a_callback_that_blocks() {
    let _alone = alone();
    #[traced]
    fn blocking() {}
    static STATE: AtomicU64 = AtomicU64::new(0);
    let ops = Ops::new("blocks", |_: &Call| {
        STATE.store(1, SeqCst);
        thread::sleep(Duration::from_millis(100));
        STATE.store(2, SeqCst);
    });
    let ops = register(ops.filter(["*::blocking"])).expect("registered");
    let caller = thread::spawn(blocking);
    while STATE.load(SeqCst) == 0 {
        thread::yield_now();
    }
    ops.unregister().expect("off");
    assert_eq!(STATE.load(SeqCst), 2);
    caller.join().expect("the caller");
}

#[test]
fn permanent_ops_sees_every_call() {
    let _alone = alone();
    #[traced]
    fn counted(n: u64) -> u64 {
        n + 1
    }
    // Other ops are registered and unregistered at the same function meanwhile, so that its
    // combination changes all the time.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let count = |_: &Call| {
        CALLS.fetch_add(1, Relaxed);
    };
    let stays = register(Ops::new("stays", count).filter(["*::counted"])).expect("registered");
    let stop = AtomicBool::new(false);
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut own = 0;
                while !stop.load(Relaxed) {
                    own = counted(own);
                }
                made.fetch_add(own, Relaxed);
            });
        }
        let start = Instant::now();
        let mut turns = 0;
        while start.elapsed() < Duration::from_secs(SECONDS) {
            let other = register(Ops::new("comes and goes", |_: &Call| ()).filter(["*::counted"]));
            drop(other.expect("registered"));
            turns += 1;
        }
        stop.store(true, Relaxed);
        println!("{turns} turns");
    });
    stays.unregister().expect("off");
    assert_eq!(CALLS.load(Relaxed), made.load(Relaxed));
}
