//! The agent: the part of calltap inside the traced program, which records events.
//!
//! It is freestanding: no libc, no allocation, no locks on the data path. It depends on nothing in
//! the process, so that malloc, memcpy, signal handlers and the dynamic linker itself can be
//! traced. The data path is assembly (`hooks`) and uses integer registers only; rare cases are
//! Rust, called through a shim that saves the registers that Rust may change.
//!
//! No code here may fault, wait without a bound, or end the process: a failure stops tracing, and
//! is counted.
#![no_std]

#[cfg(not(feature = "placed"))]
mod env;
mod files;
mod go_values;
mod hooks;
#[cfg(not(feature = "placed"))]
mod init;
mod loader;
mod mem;
mod nonlocal;
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

/// Required by Rust. No code path panics: the build checks that no panic is linked in.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
