//! A program that has no unsafe code can be traced.
#![forbid(unsafe_code)]

use calltap::{Call, Ops, register, traced};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[traced]
fn function(n: u64) -> u64 {
    n + 1
}

#[test]
fn no_unsafe_code_is_needed() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let count = |_: &Call| {
        CALLS.fetch_add(1, Relaxed);
    };
    let counter = register(Ops::new("counter", count).filter(["safe::*"])).expect("registered");
    assert_eq!(function(1), 2);
    drop(counter);
    assert_eq!(CALLS.load(Relaxed), 1);
}
