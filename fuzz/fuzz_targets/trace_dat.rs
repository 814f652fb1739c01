//! `cargo +nightly fuzz run trace_dat`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::trace_dat(data));
