//! Any lines as a log of code changes. `cargo +nightly fuzz run log`
#![no_main]

libfuzzer_sys::fuzz_target!(|lines: &str| {
    let _ = calltap_patch::Audit::of(lines.lines().filter_map(|line| line.parse().ok()));
});
