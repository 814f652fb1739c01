//! Tests of importing files of trace-cmd.

mod pages;
mod round_trip;
mod together;
