//! Trace files: written, read, damaged.

mod damage;
mod golden;
mod history;
mod round_trip;
// Benchmarks use the rest of it.
#[allow(dead_code)]
mod synthetic;
