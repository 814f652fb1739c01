//! Tests of exports to the formats of other programs.

#[path = "../../analysis/tests/common/mod.rs"]
mod common;
mod engine;
mod export;
mod file;
mod perfetto;
mod profiles;
mod trace_dat;
