//! Cost of a call: bare, with a disabled site, with one empty callback, with several; and cost of a
//! change. `cargo bench -p calltap`

use calltap::{Call, Ops, Registration, register, traced};
use std::hint::black_box;
use std::time::Instant;

#[inline(never)]
fn bare(n: u64) -> u64 {
    n.wrapping_mul(3)
}

#[traced]
fn leaf(n: u64) -> u64 {
    n.wrapping_mul(3)
}

/// Returns nanoseconds per call, best of some rounds.
fn measure(function: fn(u64) -> u64) -> f64 {
    const CALLS: u64 = 1_000_000;
    let round = || {
        let (function, start) = (black_box(function), Instant::now());
        let mut n = 1;
        for _ in 0..CALLS {
            n = function(n);
        }
        black_box(n);
        start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
    };
    (0..10).map(|_| round()).fold(f64::MAX, f64::min)
}

fn empty() -> Registration {
    register(Ops::new("empty", |_: &Call| ()).filter(["call::leaf"])).expect("registered")
}

fn main() {
    let bare = measure(bare);
    let show = |what: &str, ns: f64| println!("{what:<28} {ns:8.2} ns/call  {:6.1} x", ns / bare);
    show("bare", bare);
    show("site, never on", measure(leaf));
    let mut all = vec![empty()];
    show("one empty callback", measure(leaf));
    for number in [2, 4, 32] {
        all.resize_with(number, empty);
        show(&format!("{number} empty callbacks"), measure(leaf));
    }
    all.truncate(1);
    // Upper halves of vector registers in use are saved, too.
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the instruction is there; its register may be changed.
        unsafe { std::arch::asm!("vpternlogd zmm0, zmm0, zmm0, 255", out("xmm0") _) };
        show("one, upper halves in use", measure(leaf));
        // SAFETY: as above; leaves the lower halves alone.
        unsafe { std::arch::asm!("vzeroupper") };
    }
    let start = Instant::now();
    const CHANGES: u32 = 1000;
    for _ in 0..CHANGES {
        drop(empty());
    }
    println!("register + unregister beside another, nothing to switch: {:?}", start.elapsed() / CHANGES);
    all.clear();
    show("off again", measure(leaf));
    let start = Instant::now();
    for _ in 0..CHANGES {
        drop(empty());
    }
    println!("register + unregister, one site switched on and off: {:?}", start.elapsed() / CHANGES);
}
