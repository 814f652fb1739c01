//! Recordings that go to other programs and come from them: what these read is what calltap says.

mod dataset;
mod exports;
mod import;
mod merge;
mod perfetto;
mod trace_cmd;
