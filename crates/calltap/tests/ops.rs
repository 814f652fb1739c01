//! Ops of a program on itself, on stable Rust: registration, filters, combinations, and the data
//! that callbacks get.

use calltap::{Call, Error, Ops, Registration, register, traced};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};

/// Returns a lock, as the tests share their functions and the library's bits.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

mod some {
    use calltap::traced;

    #[traced]
    pub fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    #[traced]
    pub fn double(a: u64) -> u64 {
        add(a, a)
    }
}

/// Registers ops that count the calls of these functions.
fn counting(filter: &[&str]) -> (Registration, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&calls);
    let ops = Ops::new("counting", move |_: &Call| {
        own.fetch_add(1, Relaxed);
    });
    (register(ops.filter(filter)).expect("registered"), calls)
}

#[track_caller]
fn check_calls(calls: &AtomicU64, expected: u64) {
    assert_eq!(calls.swap(0, Relaxed), expected);
}

#[test]
fn on_and_off() {
    let _alone = alone();
    assert_eq!(some::double(21), 42);
    let (counter, calls) = counting(&["ops::some::*"]);
    assert_eq!(counter.functions().expect("a number"), 2);
    assert_eq!(some::double(21), 42);
    check_calls(&calls, 2);
    counter.unregister().expect("off");
    assert_eq!(some::double(21), 42);
    check_calls(&calls, 0);
    assert_eq!(Arc::strong_count(&calls), 1, "the callback was dropped");
}

#[test]
fn filters_change_live() {
    let _alone = alone();
    let (counter, calls) = counting(&["*::add"]);
    some::double(1);
    check_calls(&calls, 1);
    counter.set_filter(["*::double"]).expect("set");
    some::double(1);
    some::add(1, 1);
    check_calls(&calls, 1);
    counter.set_filter(["ops::some::*"]).expect("set");
    counter.set_notrace(["*::add"]).expect("set");
    some::double(1);
    some::add(1, 1);
    check_calls(&calls, 1);
    counter.set_notrace([""; 0]).expect("set");
    some::double(1);
    check_calls(&calls, 2);
    counter.set_filter(["nothing_like_this"]).expect("set");
    assert_eq!(counter.functions().expect("a number"), 0);
    some::double(1);
    check_calls(&calls, 0);
}

#[test]
fn a_call_is_described() {
    let _alone = alone();
    static SEEN: Mutex<Vec<(String, String, u64, u32)>> = Mutex::new(Vec::new());
    let ops = Ops::new("describing", |call: &Call| {
        let function = call.function().expect("a known function");
        // Functions that a compiler's flag has given a site at the entry are traced there instead.
        let is_in_body = function.site() == "traced";
        let known = [call.arguments().is_some(), call.parent_ip().is_some(), call.stack_pointer().is_some()];
        assert_eq!(known, [!is_in_body; 3]);
        let seen = (function.name().to_owned(), function.module().to_owned(), call.ip(), call.mask());
        SEEN.lock().expect("a lock").push(seen);
    });
    let registered = register(ops.filter(["ops::some::*"])).expect("registered");
    some::double(4);
    let mask = registered.mask();
    registered.unregister().expect("off");
    let seen = SEEN.lock().expect("a lock");
    let names: Vec<_> = seen.iter().map(|seen| seen.0.as_str()).collect();
    assert_eq!(names, ["ops::some::double", "ops::some::add"]);
    assert!(seen.iter().all(|(_, module, _, own)| module.starts_with("ops-") && *own == mask));
    let function = calltap::function(seen[1].2).expect("known outside of callbacks, too");
    assert_eq!(function.name(), "ops::some::add");
    let place = some::add as *const () as u64;
    assert_eq!(function.address(), place);
    assert!(function.names().any(|name| name.contains("add") && name.starts_with('_')), "its linker symbol");
}

#[test]
fn several_are_called_in_order_with_their_mask() {
    let _alone = alone();
    static ORDER: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());
    let make = |number: u32, filter: &str| {
        let ops =
            Ops::new("ordered", move |call: &Call| ORDER.lock().expect("a lock").push((number, call.mask())));
        register(ops.filter([filter])).expect("registered")
    };
    let (both, add, double) = (make(0, "ops::some::*"), make(1, "*::some::add"), make(2, "*::some::double"));
    assert_eq!(calltap::combinations().expect("a number"), 2);
    some::double(1);
    let (with_add, with_double) = (both.mask() | add.mask(), both.mask() | double.mask());
    let expected = [(0, with_double), (2, with_double), (0, with_add), (1, with_add)];
    assert_eq!(*ORDER.lock().expect("a lock"), expected);
    let ids = [both.id(), add.id(), double.id()];
    assert!(ids[0] < ids[1] && ids[1] < ids[2]);
    drop((both, add, double));
    assert_eq!(calltap::combinations().expect("a number"), 0);
}

#[test]
fn thirty_two_ops_are_registered_together() {
    let _alone = alone();
    let mut all: Vec<_> = (0..calltap::MAX_OPS).map(|_| counting(&["*::some::add"])).collect();
    assert!(matches!(register(Ops::new("one too many", |_: &Call| ())), Err(Error::TooMany)));
    let masks = all.iter().fold(0, |masks, (ops, _)| masks | ops.mask());
    assert_eq!(masks, u32::MAX);
    assert_eq!(calltap::tracers().expect("a list").len(), 32);
    some::double(1);
    all.iter().for_each(|(_, calls)| check_calls(calls, 1));
    // Every second registration is dropped; the others stay.
    let mut number = 0;
    all.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    some::double(1);
    all.iter().for_each(|(_, calls)| check_calls(calls, 1));
}

#[test]
fn recursion_is_cut_and_counted() {
    let _alone = alone();
    let calls = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&calls);
    let ops = Ops::new("recursive", move |_: &Call| {
        own.fetch_add(some::double(1), Relaxed);
    });
    let registered = register(ops.filter(["ops::some::*"])).expect("registered");
    let before = calltap::recursions();
    some::add(1, 1);
    assert_eq!(calltap::recursions() - before, 2);
    drop(registered);
    check_calls(&calls, 2);
}

#[test]
fn inside_a_callback_nothing_can_be_changed() {
    let _alone = alone();
    static RESULT: Mutex<Option<[bool; 4]>> = Mutex::new(None);
    thread_local!(static DROPPED: Cell<Option<Registration>> = const { Cell::new(None) });
    let (other, calls) = counting(&["*::some::double"]);
    let (third, third_calls) = counting(&["*::some::double"]);
    DROPPED.set(Some(third));
    let held = Mutex::new(Some(other));
    let ops = Ops::new("busy", move |_: &Call| {
        let in_callback = |result: Result<(), Error>| matches!(result, Err(Error::InCallback));
        let new = register(Ops::new("inner", |_: &Call| ())).map(drop);
        let other = held.lock().expect("a lock").take();
        let filter = other.as_ref().map_or(Ok(()), |other| other.set_filter(["x"]).map(drop));
        let result = [new, filter, other.map_or(Ok(()), Registration::unregister), calltap::init()];
        RESULT.lock().expect("a lock").get_or_insert(result.map(in_callback));
        drop(DROPPED.take());
    });
    let busy = register(ops.filter(["*::some::add"])).expect("registered");
    some::add(1, 1);
    assert_eq!(*RESULT.lock().expect("a lock"), Some([true; 4]));
    // The ops that were dropped inside the callback stay enabled until a call from outside.
    some::double(1);
    check_calls(&calls, 1);
    check_calls(&third_calls, 1);
    drop(busy);
    some::double(1);
    check_calls(&calls, 0);
    check_calls(&third_calls, 0);
}

mod kinds {
    use calltap::traced;
    use std::fmt::Display;

    pub struct Counter(pub u64);

    impl Counter {
        #[traced]
        pub fn method(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
    }

    #[traced]
    pub fn generic<T: Display>(value: T) -> usize {
        value.to_string().len()
    }

    #[traced]
    pub async fn later(n: u64) -> u64 {
        n + 1
    }

    #[traced]
    #[inline]
    pub fn inlined(n: u64) -> u64 {
        n ^ 1
    }

    #[traced]
    pub unsafe extern "C" fn foreign(n: i32) -> i32 {
        n - 1
    }

    #[traced]
    pub fn panics(n: u64) {
        assert!(n == 0, "as it should");
    }

    #[traced]
    pub fn r#match<'a>(one: &'a str, _: &str) -> &'a str {
        one
    }
}

#[test]
fn all_kinds_of_functions() {
    let _alone = alone();
    let (counter, calls) = counting(&["ops::kinds::*", "a closure"]);
    assert_eq!(kinds::Counter(1).method(), 2);
    check_calls(&calls, 1);
    assert_eq!((kinds::generic(12.5), kinds::generic("abc")), (4, 3));
    check_calls(&calls, 2);
    let future = kinds::later(1);
    check_calls(&calls, 0);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert_eq!(std::pin::pin!(future).poll(&mut context), std::task::Poll::Ready(2));
    check_calls(&calls, 1);
    assert_eq!(kinds::inlined(2) + kinds::inlined(3), 5);
    check_calls(&calls, 2);
    // SAFETY: it does nothing unsafe.
    assert_eq!(unsafe { kinds::foreign(1) }, 0);
    check_calls(&calls, 1);
    assert!(std::panic::catch_unwind(|| kinds::panics(1)).is_err());
    check_calls(&calls, 1);
    assert_eq!(kinds::r#match("a", "b"), "a");
    check_calls(&calls, 1);
    let closure = |n: u64| {
        calltap::site!("a closure");
        n + 2
    };
    assert_eq!(closure(std::hint::black_box(1)), 3);
    check_calls(&calls, 1);
    // The filter selects an instance of a generic function by its linker symbol.
    let instances: Vec<String> = calltap::functions()
        .expect("a list")
        .iter()
        .filter(|function| function.name() == "ops::kinds::generic")
        .filter_map(|function| function.names().last().map(str::to_owned))
        .collect();
    assert_eq!(instances.len(), 2, "{instances:?}");
    counter.set_filter(&instances[..1]).expect("set");
    assert_eq!((kinds::generic(12.5), kinds::generic("abc")), (4, 3));
    check_calls(&calls, 1);
}

#[test]
fn frames_below_a_callback_are_seen() {
    let _alone = alone();
    static TRACE: Mutex<String> = Mutex::new(String::new());
    #[traced]
    fn traced_frame() -> u64 {
        std::hint::black_box(7)
    }
    #[inline(never)]
    fn calling_frame() -> u64 {
        traced_frame() + 1
    }
    let ops = Ops::new("backtrace", |_: &Call| {
        *TRACE.lock().expect("a lock") = std::backtrace::Backtrace::force_capture().to_string();
    });
    let registered = register(ops.filter(["*::traced_frame"])).expect("registered");
    assert_eq!(calling_frame(), 8);
    drop(registered);
    let trace = TRACE.lock().expect("a lock");
    let at = |name: &str| trace.find(name).unwrap_or_else(|| panic!("no {name} in\n{trace}"));
    assert!(at("calltap_trampoline") < at("traced_frame"));
    assert!(at("traced_frame") < at("calling_frame"));
    let below = trace.rfind("frames_below_a_callback_are_seen");
    assert!(below.is_some_and(|below| at("calling_frame") < below), "{trace}");
}

#[test]
fn forked_child_continues_tracing() {
    let _alone = alone();
    let (counter, calls) = counting(&["ops::some::*"]);
    // SAFETY: the child calls no code that allocates except the library, and no thread holds the
    // allocator's lock at the fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        some::double(1);
        let on = calls.load(Relaxed) == 2;
        let off = counter.set_filter(["*::add"]).is_ok() && some::double(1) == 2 && calls.load(Relaxed) == 3;
        let gone = counter.unregister().is_ok() && some::double(1) == 2 && calls.load(Relaxed) == 3;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if on && off && gone { 0 } else { 1 }) };
    }
    some::double(1);
    check_calls(&calls, 2);
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "in the child");
    some::double(1);
    check_calls(&calls, 2);
}

#[test]
fn a_callback_may_fork() {
    let _alone = alone();
    static CHILD: AtomicU32 = AtomicU32::new(0);
    let ops = Ops::new("forking", |_: &Call| {
        if CHILD.load(Relaxed) == 0 {
            // SAFETY: as above.
            CHILD.store(unsafe { libc::fork() } as u32, Relaxed);
        }
    });
    let registered = register(ops.filter(["*::some::add"])).expect("registered");
    some::double(1);
    if CHILD.load(Relaxed) == 0 {
        let good = registered.unregister().is_ok() && some::double(1) == 2;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    drop(registered);
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(CHILD.load(Relaxed) as i32, &raw mut status, 0) };
    assert_eq!(status, 0, "in the child");
}

#[test]
fn a_panic_in_a_callback_aborts() {
    if std::env::var_os("CALLTAP_TEST_PANIC").is_some() {
        let _registered =
            register(Ops::new("panics", |_: &Call| panic!("out of the callback")).filter(["*::add"]));
        some::add(1, 1);
        return;
    }
    let own = std::env::current_exe().expect("this test");
    let mut command = std::process::Command::new(own);
    command.args(["a_panic_in_a_callback_aborts", "--exact", "--nocapture"]).env("CALLTAP_TEST_PANIC", "1");
    let output = command.output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    assert!(errors.contains("out of the callback") && errors.contains("cannot unwind"), "{errors}");
}

#[test]
fn functions_and_failures_are_listed() {
    let _alone = alone();
    let functions = calltap::functions().expect("a list");
    assert!(functions.iter().any(|function| function.name() == "ops::some::add"));
    assert!(calltap::failures().expect("a list").is_empty());
}
