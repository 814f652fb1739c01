//! Broken, foreign and hostile files: an error or a complaint, never a panic, never a long wait.

mod support;

use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use calltap_sites::{file_may_have_sites, find_prologues, interpreter_of, load, may_have_sites, read};
use proptest::prelude::*;
use support::{C, SLED, build, with_sled};

/// Has everything that is read: symbols, frames, records, relocations, notes.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = format!("{C} {}", with_sled(&format!("{SLED}; jmp main"), 2, 2));
    build("gcc -O2 -pg -fPIE -pie -fpatchable-function-entry=7,5", "c", &source).data()
});
/// The same without section headers' help.
static STRIPPED: LazyLock<Vec<u8>> =
    LazyLock::new(|| build("gcc -O2 -s -pg -fPIC -shared -mfentry -mrecord-mcount", "c", C).data());

fn check(data: &[u8]) {
    let start = Instant::now();
    let whole = read(data, "fixture");
    assert_eq!(interpreter_of(data), whole.clone().map(|binary| binary.interpreter));
    if let Ok(mut binary) = whole {
        assert!(binary.functions.is_sorted_by(|a, b| a.address < b.address));
        let found = find_prologues(data, &mut binary, false);
        assert!(found.is_ok() && binary.functions.iter().all(|f| f.form.is_some() || !f.reason.is_empty()));
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    may_have_sites(data);
    file_may_have_sites(&file);
    assert_eq!(load(&file).unwrap().len(), data.len());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "took {took:?}");
}

#[track_caller]
fn check_error(data: &[u8], expected: &str) {
    assert_eq!(read(data, "fixture").unwrap_err().to_string(), expected);
}

/// The fixture with some header bytes replaced.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut data = FILE.clone();
    data[at..at + bytes.len()].copy_from_slice(bytes);
    data
}

#[test]
fn files_that_cannot_be_traced_say_why() {
    check_error(b"", "not an ELF file");
    check_error(b"#!/bin/sh\n", "not an ELF file");
    check_error(b"\x7fELF", "truncated or corrupt ELF file: the file header");
    check_error(&with(4, &[1]), "a 32-bit ELF file: only 64-bit programs can be traced");
    check_error(&with(18, &[183, 0]), "an ELF file for aarch64: only x86-64 can be traced");
    check_error(&with(5, &[2]), "an ELF file for machine 15872: only x86-64 can be traced");
    check_error(&with(18, &[0x39, 0x30]), "an ELF file for machine 12345: only x86-64 can be traced");
    check_error(&with(16, &[1, 0]), "a relocatable object file, not an executable or shared object");
    check_error(&with(16, &[4, 0]), "a core dump, not an executable or shared object");
    check_error(
        &build("gcc -c", "c", C).data(),
        "a relocatable object file, not an executable or shared object",
    );
    check_error(
        &FILE[..100],
        "truncated or corrupt ELF file: the program headers lie beyond the end of the file",
    );
    check_error(
        &FILE[..4096],
        "truncated or corrupt ELF file: a segment at offset 0x1000 goes beyond the end of the file",
    );
}

#[test]
fn a_missing_part_is_a_complaint() {
    // The section headers are the file's last part.
    let binary = read(&FILE[..FILE.len() - 100], "fixture").unwrap();
    assert_eq!(
        binary.complaints,
        ["broken section headers: only what the loader needs can be found, no trace sites"]
    );
    assert!(!binary.functions.is_empty());
}

#[test]
fn every_truncation_is_survived() {
    for length in (0..FILE.len()).step_by(61) {
        check(&FILE[..length]);
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) }
}

/// A place in the file, the headers at both ends more often than the rest.
fn place(length: usize) -> impl Strategy<Value = usize> {
    prop_oneof![0..1024.min(length), 0..length, length.saturating_sub(2500)..length]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn flipped_bytes_are_survived(
        stripped: bool,
        changes in prop::collection::vec((place(STRIPPED.len().min(FILE.len())), any::<u8>()), 1..40),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut data = if stripped { STRIPPED.clone() } else { FILE.clone() };
        for (at, byte) in changes {
            data[at] = byte;
        }
        if let Some(cut) = cut {
            data.truncate(cut.index(data.len()));
        }
        check(&data);
    }

    #[test]
    fn extreme_numbers_are_survived(
        stripped: bool,
        changes in prop::collection::vec(
            (
                place(STRIPPED.len().min(FILE.len()) - 8),
                prop::sample::select(vec![0, 1, 8, 0x1000, 1 << 31, u64::MAX >> 1, 1 << 63, u64::MAX - 7, u64::MAX]),
            ),
            1..6,
        ),
    ) {
        let mut data = if stripped { STRIPPED.clone() } else { FILE.clone() };
        for (at, number) in changes {
            let at = at & !7;
            data[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        check(&data);
    }
}
