//! `cargo +nightly fuzz run elf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| calltap_fuzz::elf(data));
