//! Any pattern against any name. `cargo +nightly fuzz run glob`
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (String, String)| {
    let (pattern, name) = input;
    let _ = calltap_analysis::Glob::new(&pattern).matches(&name);
});
