//! Any bytes as an ELF file. `cargo +nightly fuzz run elf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = calltap_sites::may_have_sites(data);
    if let Ok(binary) = calltap_sites::read(data, "fuzz") {
        assert!(binary.functions.is_sorted_by_key(|function| function.address), "in address order");
    }
});
