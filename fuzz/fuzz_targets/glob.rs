//! `cargo +nightly fuzz run glob`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::glob(data));
