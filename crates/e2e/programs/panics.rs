//! Panics caught in 8 threads, panics in Drop, and a backtrace with all names.

use std::backtrace::Backtrace;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DEEP: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static CATCHER: AtomicU64 = AtomicU64::new(0);

struct Guard(bool);

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
        if self.0 {
            panic!("in drop");
        }
    }
}

#[inline(never)]
fn deep(n: u64, depth: u32) -> u64 {
    DEEP.fetch_add(1, Relaxed);
    let guard = Guard(false);
    let r = if depth > 0 { deep(n, depth - 1) } else if n % 2 == 0 { panic!("{n}") } else { n };
    std::hint::black_box(&guard);
    r + 1
}

#[inline(never)]
fn catcher(n: u64) -> u64 {
    CATCHER.fetch_add(1, Relaxed);
    match catch_unwind(|| catch_unwind(|| deep(n, 19)).unwrap_or_else(|e| resume_unwind(e))) {
        Ok(value) => value,
        Err(e) => e.downcast_ref::<String>().map_or(7, |text| text.parse().unwrap_or(9)),
    }
}

#[inline(never)]
fn drops() -> bool {
    catch_unwind(|| drop(Guard(true))).is_err()
}

#[inline(never)]
fn inner_frame() -> String {
    std::hint::black_box(Backtrace::force_capture()).to_string()
}
#[inline(never)]
fn middle_frame() -> String {
    let text = inner_frame();
    std::hint::black_box(&text);
    text
}
#[inline(never)]
fn outer_frame() -> String {
    let text = middle_frame();
    std::hint::black_box(&text);
    text
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..8)
        .map(|t| std::thread::spawn(move || (0..200).fold(0u64, |s, i| s.wrapping_mul(31).wrapping_add(catcher(i * 3 + t)))))
        .collect();
    for thread in threads {
        println!("{}", thread.join().unwrap());
    }
    let all = (0..100).filter(|_| drops()).count();
    println!("panics in drop: {all}, guards dropped: {}", DROPPED.load(Relaxed));
    let text = outer_frame();
    let names = ["inner_frame", "middle_frame", "outer_frame", "panics::main"];
    let places: Vec<_> = names.iter().map(|name| text.find(name)).collect();
    println!("all frames there: {}, in order: {}", places.iter().all(Option::is_some), places.is_sorted());
    if !places.iter().all(Option::is_some) || !places.is_sorted() {
        println!("{text}");
    }
    println!("calls deep {}\ncalls catcher {}", DEEP.load(Relaxed), CATCHER.load(Relaxed));
    println!("calls drops 100\ncalls inner_frame 1\ncalls middle_frame 1\ncalls outer_frame 1");
    std::process::exit(9);
}
