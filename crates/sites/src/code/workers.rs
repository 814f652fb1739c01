//! Division of work between processors: a large library has a hundred thousand functions, and the
//! program waits until all of them are decoded.

use std::panic;
use std::thread;

/// Bytes of code below which a single thread is faster.
const MIN_CODE_SIZE: u64 = 1 << 20;
/// Maximum number of threads: the traced program needs processors, too.
const MAX_THREADS: u64 = 4;

/// Applies `work` to consecutive parts of the items, of about equal weight (bytes), in parallel.
/// Returns the results in order.
pub(crate) fn share<T: Sync, R: Send>(
    items: &[T],
    weight: impl Fn(&T) -> u64,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    // The sizes that a hostile file states may have any sum.
    let all = items.iter().map(&weight).fold(0, u64::saturating_add);
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let part = all.div_ceil(processors.min(MAX_THREADS)).max(MIN_CODE_SIZE);
    let (mut parts, mut start, mut full) = (Vec::new(), 0, 0);
    for (n, item) in items.iter().enumerate() {
        full = weight(item).saturating_add(full);
        if full >= part {
            parts.push(&items[start..=n]);
            (start, full) = (n + 1, 0);
        }
    }
    let (last, work) = (&items[start..], &work);
    thread::scope(|scope| {
        let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        let last = work(last);
        others.into_iter().map(joined).chain([last]).collect()
    })
}

/// Runs two closures, in parallel if the weight (bytes of code) is worth it.
pub(crate) fn both<A: Send, B>(weight: u64, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B) -> (A, B) {
    if weight < MIN_CODE_SIZE {
        return (a(), b());
    }
    thread::scope(|scope| {
        let a = scope.spawn(a);
        let b = b();
        (joined(a), b)
    })
}

fn joined<R>(worker: thread::ScopedJoinHandle<'_, R>) -> R {
    worker.join().unwrap_or_else(|why| panic::resume_unwind(why))
}
