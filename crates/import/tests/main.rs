//! Files of trace-cmd's, imported.

mod round_trip;
mod together;
