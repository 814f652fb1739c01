//! `cargo +nightly fuzz run log`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::log(data));
