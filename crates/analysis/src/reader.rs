//! Trace files as a source.
