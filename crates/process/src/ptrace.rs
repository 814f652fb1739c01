//! Threads of other processes, stopped, followed and released by ptrace.

use crate::error::Error;

pub mod followed;
mod requests;
pub mod sharing;
pub mod standstill;
pub mod stop_times;
mod suspension;
pub mod threads;
pub mod tracees;
pub mod urgent;
pub mod wait;

/// Runs `work` in a thread that ends with it: the kernel then releases all threads that are still
/// held. The error says that `work` panicked.
pub fn in_tracer_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    // The kernel has released the threads that `work` could not release itself.
    tracees::release_ended();
    done.map_err(|_| Error::thread())
}
