//! The part of calltap that lives inside the traced program.
//!
//! Freestanding: no libc, no allocation, no locks on the data path; it depends on nothing in the process, so that
//! malloc, memcpy, signal handlers and the loader itself can be traced. The data path is assembly (`hooks`) and uses integer
//! registers only; everything that happens rarely is Rust, called through a shim that saves what Rust may touch.
//!
//! Nothing here may fault, wait without a bound, or end the process: whatever goes wrong stops tracing and is
//! counted.
#![no_std]

#[cfg(not(feature = "placed"))]
mod env;
mod files;
mod hooks;
#[cfg(not(feature = "placed"))]
mod init;
mod loader;
mod mem;
mod plan;
mod profile;
mod python;
mod record;
mod register;
mod ring;
mod shadow;
mod start;
mod state;
mod sys;
mod tables;
mod traps;
mod values;
mod waits;
mod word;

/// There is no code path that panics (the build checks that none is linked in); Rust wants the function to exist.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
