//! `cargo +nightly fuzz run trace`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::trace(data));
