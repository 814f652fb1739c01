//! Any bytes as an object file. `cargo +nightly fuzz run object`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(Some(new)) = calltap_recordmcount::add(data) {
        assert!(new.len() > data.len() / 2, "nothing is taken away");
        let _ = calltap_recordmcount::add(&new);
    }
});
