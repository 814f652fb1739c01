//! `cargo +nightly fuzz run object`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::object(data));
