//! Any bytes as an ELF file. `cargo +nightly fuzz run elf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = calltap_sites::may_have_sites(data);
    if let Ok(mut binary) = calltap_sites::read(data, "fuzz") {
        let _ = calltap_sites::find_prologues(data, &mut binary);
        assert!(binary.functions.is_sorted_by_key(|function| function.address), "in address order");
    }
});
