//! Files of trace-cmd's, imported.

mod pages;
mod round_trip;
mod together;
