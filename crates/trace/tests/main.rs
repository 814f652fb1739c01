//! Trace files: written, read, damaged.

mod damage;
mod golden;
mod history;
mod round_trip;
// Benchmarks use the other items of the module.
#[allow(dead_code)]
mod synthetic;
