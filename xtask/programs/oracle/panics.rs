//! Panics caught in 8 threads, with `one-by-one` one thread after the other: through frames with
//! destructors, resumed, and raised by a trait object's method.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, panic_any, resume_unwind, set_hook, AssertUnwindSafe};
use std::thread;

struct Guard<'a>(&'a mut u64);

impl Drop for Guard<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        *self.0 += 1;
    }
}

trait Step {
    fn step(&self, n: u64) -> u64;
}
struct Doubles;
struct Fails(u64);

impl Step for Doubles {
    #[inline(never)]
    fn step(&self, n: u64) -> u64 {
        n * 2
    }
}
impl Step for Fails {
    #[inline(never)]
    fn step(&self, n: u64) -> u64 {
        if n % self.0 == 0 {
            panic_any(n);
        }
        n + 1
    }
}

#[inline(never)]
fn down(depth: u64, n: u64, count: &mut u64, steps: &[Box<dyn Step>]) -> u64 {
    let guard = Guard(count);
    let result = if depth == 0 {
        steps.iter().fold(n, |n, step| step.step(n))
    } else {
        down(depth - 1, n, guard.0, steps) + 1
    };
    std::hint::black_box(&guard);
    result
}

#[inline(never)]
fn one(n: u64, count: &mut u64, steps: &[Box<dyn Step>]) -> u64 {
    let inner = catch_unwind(AssertUnwindSafe(|| down(n % 20, n, count, steps)));
    match inner {
        Ok(value) => value,
        Err(payload) if n % 2 == 0 => resume_unwind(payload),
        Err(payload) => payload.downcast_ref::<u64>().copied().unwrap_or(7),
    }
}

#[inline(never)]
fn work(id: u64) -> u64 {
    let steps: Vec<Box<dyn Step>> = vec![Box::new(Doubles), Box::new(Fails(3)), Box::new(Doubles), Box::new(Fails(5))];
    let (mut count, mut words) = (0, BTreeMap::new());
    for n in 0..500 {
        let value = catch_unwind(AssertUnwindSafe(|| one(n + id, &mut count, &steps))).unwrap_or(1);
        *words.entry(format!("{}", n % 37)).or_insert(0) += value;
    }
    words.iter().map(|(word, value)| word.len() as u64 * value).sum::<u64>() + count
}

fn main() {
    set_hook(Box::new(|_| ()));
    let one_by_one = std::env::args().nth(1).is_some_and(|word| word == "one-by-one");
    let start = |id| thread::spawn(move || work(id));
    let ends: Box<dyn Iterator<Item = _>> = match one_by_one {
        true => Box::new((0..8).map(|id| start(id).join())),
        false => Box::new((0..8).map(start).collect::<Vec<_>>().into_iter().map(|thread| thread.join())),
    };
    for end in ends {
        println!("{}", end.unwrap_or(0));
    }
}
