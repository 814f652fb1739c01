//! Everything computed from a trace.
