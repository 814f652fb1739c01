//! Signal handlers that are traced, and that interrupt everything: traced functions, the
//! trampoline, callbacks, changes.

use calltap::{Call, Ops, register, traced};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

static HANDLED: AtomicU64 = AtomicU64::new(0);
static IN_HANDLER: AtomicU64 = AtomicU64::new(0);
static IN_BODY: AtomicU64 = AtomicU64::new(0);

#[traced]
fn in_handler(n: u64) -> f64 {
    n as f64 * 0.5
}

extern "C" fn handler(_: libc::c_int) {
    let n = HANDLED.fetch_add(1, Relaxed);
    if in_handler(black_box(n)) != n as f64 * 0.5 {
        std::process::abort();
    }
}

#[traced]
fn in_body(a: f64, b: u64) -> f64 {
    a * b as f64
}

#[test]
fn handlers_interrupt_everything() {
    // SAFETY: a handler that uses atomics and arithmetic only, and a timer that sends its signal.
    unsafe {
        libc::signal(libc::SIGPROF, handler as *const () as libc::sighandler_t);
        let every = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut());
    }
    let body = |_: &Call| {
        IN_BODY.fetch_add(1, Relaxed);
    };
    let handled = |_: &Call| {
        IN_HANDLER.fetch_add(1, Relaxed);
    };
    let body = register(Ops::new("body", body).filter(["*::in_body"])).expect("registered");
    let recursions = calltap::recursions();
    let handled = register(Ops::new("handler", handled).filter(["*::in_handler"])).expect("registered");
    let before = HANDLED.load(SeqCst);
    let (start, mut calls) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(2) {
        for n in 0..1000 {
            assert_eq!(black_box(in_body(1.5, n)), 1.5 * n as f64);
            calls += 1;
        }
        if calls % 50_000 == 0 {
            drop(register(Ops::new("comes and goes", |_: &Call| ())).expect("registered"));
        }
    }
    // Each signal was either reported, or cut and counted: in a callback, or in the library.
    let (seen, cut) = (IN_HANDLER.load(SeqCst), calltap::recursions() - recursions);
    let sent = HANDLED.load(SeqCst) - before;
    println!("{calls} calls, {sent} signals, {seen} seen, {cut} cut");
    assert_eq!(IN_BODY.load(SeqCst), calls);
    assert!(seen > 0 && seen + cut + 2 >= sent && seen <= sent + 2, "{sent} signals, {seen} seen, {cut} cut");
    drop((body, handled));
    // SAFETY: takes the timer off.
    unsafe {
        let never: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_PROF, &raw const never, std::ptr::null_mut());
    }
}
