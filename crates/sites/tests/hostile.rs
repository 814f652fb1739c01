//! Broken, foreign and hostile files: reading them results in an error or a complaint, never in a
//! panic or a long wait.

use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::support::{C, SLED, build, with_sled};
use calltap_sites::{file_may_have_sites, find_prologues, interpreter_of, load, may_have_sites, read};
use proptest::prelude::*;

/// A file with everything that is read: symbols, frames, records, relocations, notes.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = format!("{C} {}", with_sled(&format!("{SLED}; jmp main"), 2, 2));
    build("gcc -O2 -pg -fPIE -pie -fpatchable-function-entry=7,5", "c", &source).data()
});
/// A library with records and relocations, but without symbols.
static STRIPPED: LazyLock<Vec<u8>> =
    LazyLock::new(|| build("gcc -O2 -s -pg -fPIC -shared -mfentry -mrecord-mcount", "c", C).data());

fn check(data: &[u8]) {
    let start = Instant::now();
    let whole = read(data, "fixture");
    assert_eq!(interpreter_of(data), whole.clone().map(|binary| binary.interpreter));
    if let Ok(mut binary) = whole {
        assert!(binary.functions.is_sorted_by(|a, b| a.address < b.address));
        let found = find_prologues(data, &mut binary, false);
        assert!(found.is_ok() && binary.functions.iter().all(|f| f.is_traceable() || f.reason().is_some()));
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

/// Returns the fixture with some header bytes replaced.
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

/// A position in the file, more often in the headers at both ends.
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

/// Reads all of a file, within the time that a user would wait.
#[track_caller]
fn check_in_time(data: &[u8]) {
    let start = Instant::now();
    let mut binary = read(data, "fixture").unwrap();
    find_prologues(data, &mut binary, false).unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "took {took:?}");
}

#[test]
fn one_exception_table_of_many_functions_takes_no_more_than_its_own_memory() {
    let functions: String = (0..20_000)
        .map(|n| format!("f{n}: .cfi_startproc\n.cfi_lsda 0x1b, table\nret\n.cfi_endproc\n.skip 15, 0xcc\n"))
        .collect();
    let table = "table: .byte 0xff, 0xff, 1\n.uleb128 1000000\n.rept 250000\n.byte 0, 1, 1, 0\n.endr\n";
    let source = format!(".text\n{functions}.section .gcc_except_table,\"a\"\n{table}");
    check_in_time(&build("gcc -nostdlib -shared", "s", &source).data());
}

#[test]
fn one_jump_table_of_many_functions_is_not_read_for_each() {
    let function = |n: u32| {
        format!(
            ".type g{n}, @function\ng{n}: cmp $20000, %edi\nja 1f\nmov %edi, %edi\nlea table(%rip), %rax\n\
             movslq (%rax,%rdi,4), %rcx\nadd %rax, %rcx\njmp *%rcx\n1: ret\n.size g{n}, .-g{n}\n"
        )
    };
    let functions: String = (0..20_000).map(function).collect();
    let entries: String = (0..20_000).map(|n| format!(".long g{n} - table\n")).collect();
    let source = format!(".text\n{functions}.section .rodata\n.p2align 2\ntable:\n{entries}");
    check_in_time(&build("gcc -nostdlib -shared", "s", &source).data());
}

#[test]
fn parts_of_parts_of_parts_are_followed_once() {
    let part = |n: u32| {
        format!(".type f{n}.cold, @function\nf{n}.cold: jmp f{}.cold\n.size f{n}.cold, .-f{n}.cold\n", n + 1)
    };
    let parts: String = (0..20_000).map(part).collect();
    let last = "f20000.cold: jmp 1f\n.globl f\n.type f, @function\nf: push %rbx\n1: call f\npop %rbx\nret\n.size f, .-f\n";
    check_in_time(&build("gcc -nostdlib -shared", "s", &format!(".text\n{parts}{last}")).data());
}

#[test]
fn a_file_that_is_mostly_a_hole_or_endless_is_not_read() {
    let check = |length: u64, expected: &str| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&FILE).unwrap();
        file.set_len(length).unwrap();
        assert_eq!(load(&file).unwrap_err().to_string(), expected);
        let _ = (file_may_have_sites(&file), calltap_sites::types::Types::read(&file));
    };
    check(2 << 40, "too large to be read: it is 2048 GiB long");
    check(16 << 30, "too large to be read: it is 16384 MiB long, and nearly all of it is a hole");
}

#[test]
fn a_section_that_is_larger_than_memory_is_not_read() {
    let mut data = build("gcc -g", "c", C).data();
    let word = |data: &[u8], at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap()) as usize;
    let (headers, count) = (word(&data, 40), usize::from(u16::from_le_bytes([data[60], data[61]])));
    // All sections but the first and the last, whose names are needed, claim a length of 12 GiB.
    for header in (1..count - 1).map(|n| headers + n * 64) {
        data[header + 24..header + 32].copy_from_slice(&0u64.to_le_bytes());
        data[header + 32..header + 40].copy_from_slice(&(12u64 << 30).to_le_bytes());
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    file.set_len(16 << 30).unwrap();
    let start = Instant::now();
    let _ = (file_may_have_sites(&file), calltap_sites::types::Types::read(&file));
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn non_regular_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let pipe = place.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&*pipe, "/dev/zero".as_ref(), place.path()] {
        assert_eq!(calltap_sites::open(path).unwrap_err().to_string(), "not a regular file");
    }
}
