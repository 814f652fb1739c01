//! ftrace for user space, from inside: a program registers callbacks on its own functions while it
//! runs.
//!
//! This is `register_ftrace_function` for a program that traces itself. The compiler puts a NOP of
//! five bytes into every function, at no measurable cost. [`register`] turns the NOPs of the chosen
//! functions into calls of a trampoline, while all threads run; [`Registration::unregister`] turns
//! the calls back into NOPs. No thread is stopped, no signal is used, and no page of code is ever
//! writable.
//!
//! ```
//! use calltap::{Call, Ops, register, traced};
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! #[traced]
//! fn work(n: u64) -> u64 {
//!     n * 2
//! }
//!
//! static CALLS: AtomicU64 = AtomicU64::new(0);
//!
//! let count = |_: &Call| {
//!     CALLS.fetch_add(1, Relaxed);
//! };
//! let counter = register(Ops::new("counter", count).filter(["*::work"]))?;
//! assert_eq!(work(21), 42);
//! counter.unregister()?;
//! assert_eq!(work(21), 42);
//! assert_eq!(CALLS.load(Relaxed), 1);
//! # Ok::<(), calltap::Error>(())
//! ```
//!
//! # Which functions
//!
//! | way | what callbacks get |
//! |---|---|
//! | `-fpatchable-function-entry=5` (gcc, clang), `-Z patchable-function-entry=5` (rustc, `RUSTC_BOOTSTRAP=1` on stable), `-pg -mfentry` | all |
//! | `-pg` | no arguments |
//! | [`#[traced]`](traced), [`site!`], on stable Rust, without flags | no arguments, no parent |
//!
//! These are functions of the program itself and of all shared objects. gcc's flag makes five
//! instructions of one byte, and a thread may be between them. They become one instruction the
//! first time that this library is called, *if the program has a single thread then*: call [`init`]
//! at the beginning of `main`. Otherwise they are refused, and [`failures`] lists them. Sites in
//! front of their function (`=N,M`) are not used.
//!
//! # What a callback may do
//!
//! A callback runs inside any function that it was registered for, before the body, on the same
//! stack. So the program may be in any state: inside `malloc`, with locks held, inside a signal
//! handler. Choose filters that leave out functions which the callback needs and which are not
//! reentrant: if an allocator's functions are traced, a callback that allocates may wait for a lock
//! that its own thread holds. Atomics, `write`, and reading [`Call`] are safe everywhere.
//!
//! - Calls made inside a callback are not reported, in that thread: recursion is cut, and counted
//!   ([`recursions`]). So are those of signal handlers that interrupt a callback.
//! - A callback must return. It may block, but then it delays the thread that unregisters. A panic
//!   aborts the program, with its message; `longjmp`, `pthread_exit`, cancellation and exceptions
//!   must not leave it, nor may a signal handler that interrupted it leave by `siglongjmp`: the
//!   thread would count as inside for ever.
//! - [`register`], [`Registration::set_filter`], [`Registration::unregister`] and the like return
//!   an error inside a callback ([`Error::InCallback`]), and must not be called in signal handlers.
//! - A callback needs stack: 2 to 3 KB for the registers where AVX-512 is in use, and its own
//!   frames. Alternate signal stacks of minimal size do not have that.
//!
//! Every register of the traced function is preserved, vector registers included.
//!
//! # Fork
//!
//! Registered ops stay registered in the child, with a copy of the callbacks' data.
//!
//! # Together with `calltap record -p`
//!
//! Each of the two compares the bytes of a site with those it expects, and leaves the site alone
//! for good if another tool has changed it.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("calltap is for Linux on x86-64");

mod call;
mod callee;
mod control;
mod error;
mod gates;
mod grace;
mod lock;
mod objects;
mod ops;
mod records;
mod refusal;
mod returns;
mod scan;
mod site;
mod statics;
mod table;
mod text;
#[cfg(feature = "tracing")]
pub mod timeline;
mod trampoline;

pub use call::Call;
pub use calltap_macros::traced;
pub use error::Error;
pub use grace::recursions;
pub use ops::{Ops, Registration, register};
#[doc(hidden)]
pub use returns::Frame;
pub use returns::{Return, unseen_returns};
pub use table::{Function, function};
pub use trampoline::MAX_OPS;

/// Finds the functions that can be traced. The first other call of the library does so, too; a
/// program compiled with gcc should call this at the beginning of `main`: see [the crate](crate).
pub fn init() -> Result<(), Error> {
    lock::with(|_| Ok(()))
}

/// Looks for shared objects that were loaded (`dlopen`) or unloaded since. [`register`] does so
/// itself; this call enables the functions of new objects for ops that are registered already.
pub fn rescan() -> Result<(), Error> {
    lock::with(|control| control.rescan())
}

/// Returns all functions that can be traced (ftrace's `available_filter_functions`).
pub fn functions() -> Result<Vec<&'static Function>, Error> {
    lock::with(|control| Ok(control.functions()))
}

/// Returns the functions that were refused, and why (ftrace's `failures`).
pub fn failures() -> Result<Vec<(&'static Function, String)>, Error> {
    lock::with(|control| Ok(control.failures()))
}

/// Description of registered ops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracer {
    /// Name of the ops.
    pub name: String,
    /// Unique number of the ops.
    pub id: u64,
    /// Bit of the ops in [`Call::mask`].
    pub mask: u32,
    /// Number of functions that are enabled for them.
    pub functions: usize,
}

/// Returns all registered ops (ftrace's `function_tracers`).
pub fn tracers() -> Result<Vec<Tracer>, Error> {
    let tracer = |(name, id, mask, functions)| Tracer { name, id, mask, functions };
    lock::with(|control| Ok(control.list().into_iter().map(tracer).collect()))
}

/// Returns the number of combinations of ops in use.
pub fn combinations() -> Result<usize, Error> {
    lock::with(|control| Ok(control.combinations()))
}
