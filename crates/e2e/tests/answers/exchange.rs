//! Recordings exported to and imported from other programs, whose results are those of calltap.

mod dataset;
mod exports;
mod import;
mod merge;
mod perfetto;
mod trace_cmd;
