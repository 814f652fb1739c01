//! A program on tokio that counts its own polls.
//!
//! It prints `future NAME FUTURES POLLS READY PANICKED`; a future that was neither ready nor has
//! panicked was dropped. It also prints `least NAME NANOSECONDS`, the minimum time for which
//! futures of that type waited, together. With `serve` it runs until its input ends. With `locked`
//! its tasks wait for each other.

use std::collections::BTreeMap;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

#[derive(Default)]
struct Counts {
    futures: u64,
    polls: u64,
    ready: u64,
}

static COUNTS: Mutex<BTreeMap<&str, Counts>> = Mutex::new(BTreeMap::new());

fn count(name: &'static str, with: impl FnOnce(&mut Counts)) {
    with(COUNTS.lock().unwrap().entry(name).or_default());
}

/// Counts the polls of the future in it. The inner future is polled through its address, so that
/// its body remains a function of its own.
struct Counted<T> {
    polled: bool,
    name: &'static str,
    inner: Pin<Box<dyn Future<Output = T> + Send>>,
}

fn counted<T>(name: &'static str, inner: impl Future<Output = T> + Send + 'static) -> Counted<T> {
    Counted { polled: false, name, inner: Box::pin(inner) }
}

impl<T> Future for Counted<T> {
    type Output = T;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // A future that is aborted before its first poll is not counted.
        let first = !std::mem::replace(&mut self.polled, true);
        count(self.name, |counts| {
            counts.futures += u64::from(first);
            counts.polls += 1;
        });
        let result = self.inner.as_mut().poll(context);
        count(self.name, |counts| counts.ready += u64::from(result.is_ready()));
        result
    }
}

/// A future that is ready after a number of polls.
struct Countdown(u32);

impl Future for Countdown {
    type Output = u32;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        count("Countdown", |counts| counts.polls += 1);
        if self.0 == 0 {
            count("Countdown", |counts| counts.ready += 1);
            return Poll::Ready(black_box(7));
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Yields to other tasks a number of times.
async fn yielding(times: u32) -> u32 {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
    black_box(times)
}

/// Yields a number of times, and returns a result that does not fit into registers.
async fn large(times: u32) -> [u64; 9] {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
    black_box([times.into(); 9])
}

/// Never becomes ready, and is dropped while it waits.
async fn endless() {
    black_box(std::future::pending::<()>()).await;
}

async fn sleeping(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Returns a future that awaits nested ones up to a depth, each in a box of its own.
fn recursive(depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(counted("recursive", async move {
        if depth == 0 {
            tokio::task::yield_now().await;
            return 0;
        }
        1 + recursive(depth - 1).await
    }))
}

async fn counting_down() -> u32 {
    count("Countdown", |counts| counts.futures += 2);
    Countdown(3).await + Countdown(0).await
}

/// Panics at the second poll.
async fn panicking() {
    tokio::task::yield_now().await;
    panic!("as it should");
}

/// Awaits futures of one type in turn, all at one address, each dropped by a timeout.
async fn timed_out(times: u32) {
    for _ in 0..times {
        let result = tokio::time::timeout(Duration::from_millis(2), counted("endless", endless())).await;
        assert!(result.is_err());
    }
}

async fn selecting() -> u64 {
    tokio::select! {
        () = counted("endless", endless()) => 0,
        () = counted("sleeping", sleeping(3)) => 3,
    }
}

async fn serving() -> u32 {
    sleeping(1).await;
    yielding(3).await
}

/// Serves until the input ends.
fn serve() {
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        told.store(true, Ordering::Relaxed);
    });
    println!("serving");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        while !over.load(Ordering::Relaxed) {
            assert_eq!(tokio::spawn(serving()).await.unwrap(), 3);
        }
    });
    println!("served");
}

/// Holds a lock for 50 ms, in the last 20 of which it keeps the only worker from other tasks.
async fn holder(lock: Arc<tokio::sync::Mutex<()>>) {
    let guard = lock.lock().await;
    let (wake, woken) = tokio::sync::oneshot::channel();
    let tasks = [tokio::spawn(waiter(Arc::clone(&lock))), tokio::spawn(late(woken))];
    tokio::time::sleep(Duration::from_millis(30)).await;
    // Another thread wakes `late` while the worker is busy.
    std::thread::spawn(move || wake.send(()).unwrap()).join().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
}

async fn waiter(lock: Arc<tokio::sync::Mutex<()>>) {
    drop(lock.lock().await);
}

async fn late(woken: tokio::sync::oneshot::Receiver<()>) {
    woken.await.unwrap();
}

/// Runs tasks that wait for each other, on one worker.
fn locked() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    runtime.block_on(async { tokio::spawn(holder(lock)).await.unwrap() });
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("locked") {
        return locked();
    }
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    std::panic::set_hook(Box::new(|_| ()));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for times in 0..20 {
            tasks.push(tokio::spawn(
                async move { assert_eq!(counted("yielding", yielding(times)).await, times) },
            ));
            tasks.push(tokio::spawn(async move {
                assert_eq!(counted("large", large(times)).await[0], times.into())
            }));
        }
        for _ in 0..5 {
            tasks.push(tokio::spawn(async {
                assert_eq!(counted("counting_down", counting_down()).await, 14)
            }));
            tasks.push(tokio::spawn(async { assert_eq!(recursive(4).await, 4) }));
        }
        tasks.push(tokio::spawn(timed_out(5)));
        tasks.push(tokio::spawn(async { assert_eq!(selecting().await, 3) }));
        for milliseconds in [1, 5, 10] {
            tasks.push(tokio::spawn(counted("sleeping", sleeping(milliseconds))));
        }
        let panics = tokio::spawn(counted("panicking", panicking()));
        for task in tasks {
            task.await.unwrap();
        }
        assert!(panics.await.unwrap_err().is_panic());
        let aborted = tokio::spawn(counted("endless", endless()));
        tokio::time::sleep(Duration::from_millis(5)).await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
    });
    println!("least sleeping {}", (1 + 5 + 10 + 3) * 1_000_000);
    for (name, Counts { futures, polls, ready }) in COUNTS.lock().unwrap().iter() {
        println!("future {name} {futures} {polls} {ready} {}", u64::from(*name == "panicking"));
    }
}
