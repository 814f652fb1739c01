//! Returns: durations, results, how calls end, and that panics pass through.

use calltap::{Call, Error, Ops, Registration, Return, register, traced};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

mod some {
    use calltap::traced;
    use std::time::Duration;

    #[traced]
    pub fn outer(n: u64) -> u64 {
        std::thread::sleep(Duration::from_millis(n));
        inner(n) + 1
    }

    #[traced]
    pub fn inner(n: u64) -> u64 {
        std::hint::black_box(n)
    }

    #[traced]
    pub fn panics() {
        std::thread::sleep(Duration::from_millis(2));
        panic!("as it should");
    }

    #[traced]
    pub fn generic<T: std::fmt::Display>(value: T) -> usize {
        value.to_string().len()
    }

    #[traced]
    pub async fn later(n: u64) -> u64 {
        std::future::ready(n).await + 1
    }

    pub struct Counter(pub u64);

    impl Counter {
        #[traced]
        pub fn step(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
    }

    pub struct Other;

    impl Other {
        #[traced]
        pub fn step(&self) -> u64 {
            std::hint::black_box(5)
        }
    }
}

type Seen = Arc<Mutex<Vec<(String, Duration)>>>;

/// Registers ops that collect names and durations of returns.
fn noting(filter: &[&str]) -> (Registration, Seen, Arc<AtomicU64>) {
    let (seen, entries) = (Seen::default(), Arc::new(AtomicU64::new(0)));
    let (own, counted) = (Arc::clone(&seen), Arc::clone(&entries));
    let ops = Ops::new("noting", move |_: &Call| {
        counted.fetch_add(1, Relaxed);
    });
    let ops = ops.filter(filter).on_return(move |call: &Return| {
        let name = call.function().expect("a known function").name().to_owned();
        own.lock().expect("a lock").push((name, call.duration()));
    });
    (register(ops).expect("registered"), seen, entries)
}

fn take(seen: &Seen) -> Vec<(String, Duration)> {
    std::mem::take(&mut *seen.lock().expect("a lock"))
}

fn names(seen: &Seen) -> Vec<String> {
    take(seen).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn durations_are_those_of_the_calls() {
    let _alone = alone();
    let (ops, seen, entries) = noting(&["returns::some::outer", "returns::some::inner"]);
    assert_eq!(some::outer(20), 21);
    let both = take(&seen);
    assert_eq!(entries.load(Relaxed), 2);
    assert_eq!(
        both.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["returns::some::inner", "returns::some::outer"]
    );
    assert!(both[1].1 >= Duration::from_millis(20), "{both:?}");
    assert!(both[0].1 < both[1].1, "{both:?}");
    ops.unregister().expect("off");
    some::outer(0);
    assert!(take(&seen).is_empty());
}

#[test]
fn a_panic_ends_a_call() {
    let _alone = alone();
    let (_ops, seen, _) = noting(&["*::some::panics"]);
    assert!(std::panic::catch_unwind(some::panics).is_err());
    let ended = take(&seen);
    assert!(ended.len() == 1 && ended[0].1 >= Duration::from_millis(2), "{ended:?}");
}

#[test]
fn future_ends_when_ready_or_dropped() {
    let _alone = alone();
    let (_ops, seen, entries) = noting(&["*::some::later"]);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    {
        let mut future = std::pin::pin!(some::later(1));
        assert_eq!(future.as_mut().poll(&mut context), std::task::Poll::Ready(2));
    }
    drop(some::later(1));
    assert_eq!((names(&seen).len(), entries.load(Relaxed)), (1, 1));
}

#[test]
fn methods_have_their_types_in_their_names() {
    let _alone = alone();
    let (ops, seen, _) = noting(&["returns::some::Counter::step"]);
    assert_eq!(ops.functions().expect("a number"), 1);
    let mut counter = some::Counter(0);
    assert_eq!((counter.step(), some::Other.step()), (1, 5));
    assert_eq!(names(&seen), ["returns::some::Counter::step"]);
    // The filter matches both, by the name that the attribute knows.
    assert_eq!(ops.set_filter(["returns::some::step"]).expect("set"), 2);
    assert_eq!((counter.step(), some::Other.step()), (2, 5));
    assert_eq!(names(&seen), ["returns::some::Counter::step", "returns::some::Other::step"]);
}

#[test]
fn instances_return_as_themselves() {
    let _alone = alone();
    let (ops, seen, _) = noting(&["returns::some::generic"]);
    assert_eq!((some::generic(12.5), some::generic("abc")), (4, 3));
    assert_eq!(names(&seen).len(), 2);
    assert_eq!(ops.functions().expect("a number"), 2, "ends are no functions");
}

#[test]
fn only_ops_that_saw_the_entry_see_the_return() {
    let _alone = alone();
    #[traced]
    fn changes(filters: &Registration) {
        filters.set_filter(["*::changes"]).expect("set");
    }
    let (first, first_seen, _) = noting(&["*::changes"]);
    let (late, late_seen, late_entries) = noting(&["*::some::inner"]);
    changes(&late);
    assert_eq!((names(&first_seen).len(), names(&late_seen).len(), late_entries.load(Relaxed)), (1, 0, 0));
    changes(&late);
    assert_eq!((names(&first_seen).len(), names(&late_seen).len(), late_entries.load(Relaxed)), (1, 1, 1));
    drop(first);
}

#[test]
fn filter_without_match_is_an_error() {
    let _alone = alone();
    let new = || Ops::new("nothing", |_: &Call| ()).filter(["no_such_function"]);
    let error = register(new()).expect_err("nothing to trace");
    assert!(
        matches!(error, Error::NothingMatches(_)) && error.to_string().contains("no_such_function"),
        "{error}"
    );
    let later = register(new().may_match_nothing()).expect("registered");
    assert_eq!(later.functions().expect("a number"), 0);
    assert_eq!(later.set_filter(["*::some::inner"]).expect("set"), 1);
    assert_eq!(later.set_filter(["nothing"]).expect("set"), 0);
}
