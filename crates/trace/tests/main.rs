//! Trace files: written, read, damaged.

mod damage;
mod golden;
mod history;
mod round_trip;
mod synthetic;
