//! Tests that need a kernel which can record its own functions: a distribution's kernel under QEMU,
//! with a small system.

mod functions;
mod guest;
