//! Tests that need a kernel which records its own functions: a distribution's, under QEMU, beneath a small system.

mod functions;
mod guest;
