//! Tests of Go functions: found by the runtime's own table in each of its layouts, and with every
//! form of stack check that compilers have written.

use calltap_sites::{Binary, Function, Reason, Returns, SiteForm, SiteKind};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

const TEXT: u64 = 0x401000;
const TABLE: u64 = 0x402000;
/// Address of `runtime.moduledata`.
const MODULE: u64 = 0x403000;

/// Puts bytes into the file at an address.
fn put(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = (at - 0x400000) as usize;
    file.resize(file.len().max(at + bytes.len()), 0);
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Builds a `runtime.moduledata` with the words that are read: table, first function, text.
fn module(table: u64, first: u64, text: u64) -> Vec<u8> {
    let mut words = [0u64; 24];
    (words[0], words[20], words[22]) = (table, first, text);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Builds an ELF file at a fixed address with three segments (code, table, module), and sections
/// for table and module.
fn program(functions: &[(&str, Vec<u8>)], table: &[u8]) -> Vec<u8> {
    program_of(functions, table, &module(TABLE, TEXT, TEXT))
}

fn program_of(functions: &[(&str, Vec<u8>)], table: &[u8], module: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let code: Vec<u8> = functions.iter().flat_map(|(_, code)| code.clone()).collect();
    put(&mut file, TEXT, &code);
    put(&mut file, TABLE, table);
    put(&mut file, MODULE, module);
    let end = file.len().next_multiple_of(8);
    let names = b"\0.gopclntab\0.names\0.go.module\0";
    let (names_at, sections_at) = (end as u64, (end + names.len()).next_multiple_of(8) as u64);
    put(&mut file, 0x400000 + names_at, names);
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let halves = |halves: &[u32]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let section = |name, kind, address, offset, size| {
        [halves(&[name, kind]), words(&[2, address, offset, size, 0, 1, 0])].concat()
    };
    let sections = [
        vec![0; 64],
        section(1, 1, TABLE, TABLE - 0x400000, table.len() as u64),
        section(12, 3, 0, names_at, names.len() as u64),
        section(19, 1, MODULE, MODULE - 0x400000, module.len() as u64),
    ];
    put(&mut file, 0x400000 + sections_at, &sections.concat());
    let segment = |flags, at: u64, size: u64| {
        [halves(&[1, flags]), words(&[at - 0x400000, at, at, size, size, 0x1000])].concat()
    };
    let header = [
        &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0"[..],
        &words(&[TEXT, 64, sections_at]),
        &[0, 0, 0, 0, 64, 0, 56, 0, 3, 0, 64, 0, 4, 0, 2, 0],
        &segment(5, TEXT, code.len() as u64),
        &segment(4, TABLE, table.len() as u64),
        &segment(6, MODULE, module.len() as u64),
    ];
    put(&mut file, 0x400000, &header.concat());
    file
}

/// Builds the table as Go's linkers have written it: version 1.16, 1.18, 1.20 or 1.26.
fn table(version: u32, functions: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let distances = version >= 18;
    let word = |number: u64| match distances {
        true => (number as u32).to_le_bytes().to_vec(),
        false => (TEXT + number).to_le_bytes().to_vec(),
    };
    let reference = |number: u64| match distances {
        true => (number as u32).to_le_bytes().to_vec(),
        false => number.to_le_bytes().to_vec(),
    };
    let (mut names, mut list, mut records, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let width = if distances { 4 } else { 8 };
    let list_size = (2 * functions.len() as u64 + 1) * width;
    for (name, code) in functions {
        list.extend([word(at), reference(list_size + records.len() as u64)].concat());
        records.extend([word(at), (names.len() as u32).to_le_bytes().to_vec(), vec![0; 32]].concat());
        names.extend([name.as_bytes(), b"\0"].concat());
        at += code.len() as u64;
    }
    list.extend(word(at));
    let magic: u32 = match version {
        16 => 0xFFFF_FFFA,
        18 => 0xFFFF_FFF0,
        15 => 0xFFFF_FFFB,
        _ => 0xFFFF_FFF1,
    };
    let header_words = if distances { 9 } else { 8 };
    let (names_at, list_at) = (8 * header_words, 8 * header_words + names.len() as u64);
    let count = functions.len() as u64;
    let header: Vec<u64> = match distances {
        true => vec![count, 0, if version >= 26 { 0 } else { TEXT }, names_at, 0, 0, 0, list_at],
        false => vec![count, 0, names_at, 0, 0, 0, list_at],
    };
    let header: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    [&magic.to_le_bytes()[..], &[0, 0, 1, 8], &header, &names, &list, &records].concat()
}

/// Builds a function from the beginning of its check, in front of the branch of two bytes, and its
/// body; behind it comes the call that grows the stack, and the jump back.
fn checked(check: &[u8], body: &[u8]) -> Vec<u8> {
    let more = body.len() as u8;
    let start = check.len() + 2 + body.len() + 5 + 5;
    let back = (-(start as i32)).to_le_bytes();
    [check, &[0x76, more], body, &[0xE8, 0, 0, 0, 0, 0xE9], &back].concat()
}

fn read(functions: &[(&str, Vec<u8>)], version: u32) -> Binary {
    let data = program(functions, &table(version, functions));
    let mut binary = calltap_sites::read(&data, "program").expect("an ELF file");
    calltap_sites::find_prologues(&data, &mut binary, false).expect("the same");
    binary
}

const SMALL: &[u8] = b"\x49\x3b\x66\x10";
const BODY: &[u8] = b"\x48\x83\xec\x18\x48\x83\xc4\x18\xc3";

#[test]
fn every_layout_of_the_table_names_the_functions() {
    let functions = [
        ("main.main", checked(SMALL, BODY)),
        ("main.leaf", vec![0xC3; 16]),
        ("main.(*T).Do[...]", checked(SMALL, BODY)),
    ];
    let unknown = calltap_sites::read(&program(&functions, &table(15, &functions)), "program");
    assert_eq!(unknown.expect("an ELF file").functions, []);
    for version in [16, 18, 20, 26] {
        let binary = read(&functions, version);
        let names: Vec<&str> = binary.functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["main.main", "main.leaf", "main.(*T).Do[...]"], "{version}");
        let mut at = TEXT;
        for (function, (_, code)) in binary.functions.iter().zip(&functions) {
            assert_eq!((function.address.0, function.size), (at, code.len() as u64), "{version}");
            at += code.len() as u64;
        }
    }
}

// Go 1.26 does not write the text's beginning into the table, and a module of another table must
// not be used for it.
#[test]
fn functions_are_at_addresses_of_the_module_table() {
    let functions = [("main.main", checked(SMALL, BODY))];
    let names = |module: Vec<u8>| {
        let data = program_of(&functions, &table(26, &functions), &module);
        let binary = calltap_sites::read(&data, "program").expect("an ELF file");
        binary.functions.iter().map(|function| function.address.0).collect::<Vec<_>>()
    };
    assert_eq!(names(module(TABLE, TEXT, TEXT)), [TEXT]);
    assert_eq!(names(module(TABLE + 8, TEXT, TEXT)), [0; 0]);
    assert_eq!(names(module(TABLE, TEXT + 16, TEXT)), [0; 0]);
    assert_eq!(names(vec![]), [0; 0]);
}

/// Bytes of a function's check, or why it cannot be traced.
fn verdict(code: Vec<u8>) -> Result<usize, String> {
    let binary = read(&[("f", code), ("g", vec![0xCC; 16])], 20);
    let function = &binary.functions[0];
    match function.form() {
        Some(SiteForm::Checked { at, old, .. }) => {
            assert_eq!((function.kind(), *at), (SiteKind::Prologue, function.address));
            Ok(old.len())
        }
        form => {
            assert_eq!(form, None);
            Err(function.reason().map(ToString::to_string).unwrap_or_default())
        }
    }
}

#[test]
fn stack_checks_of_all_compilers_are_known() {
    let forms: [&[u8]; 9] = [
        SMALL,
        b"\x49\x3b\x66\x18",                                     // on the system's stack
        b"\x4c\x8d\x64\x24\xc0\x4d\x3b\x66\x10",                 // a larger frame
        b"\x4c\x8d\xa4\x24\x00\xf0\xff\xff\x4d\x3b\x66\x10",     // 4 KiB
        b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x3b\x61\x10", // Go 1.16, and assembly
        b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x8d\x44\x24\xc0\x48\x3b\x41\x10", // and a larger frame
        b"\x48\xc7\xc1\xf8\xff\xff\xff\x64\x48\x8b\x09\x48\x3b\x61\x10", // position independent
        b"\x48\x8b\x0d\x00\x10\x00\x00\x64\x48\x8b\x09\x48\x3b\x61\x10", // as an external linker leaves it
        b"\x49\xc7\xc6\xf8\xff\xff\xff\x64\x4d\x8b\x36\x49\x3b\x66\x10", // into the register it has elsewhere
    ];
    for check in forms {
        assert_eq!(verdict(checked(check, BODY)), Ok(check.len() + 2), "{check:02x?}");
    }
    // In a frame so large that the subtraction may wrap, two branches lead to the same place.
    let huge = [&b"\x49\x89\xe4\x49\x81\xec\x00\x00\x10\x00\x72\x0f\x4d\x3b\x66\x10"[..]].concat();
    assert_eq!(verdict(checked(&huge, BODY)), Ok(huge.len() + 2));
}

#[test]
fn go_functions_without_stack_check_or_with_double_entry_are_refused() {
    let why = |code, says: &str| {
        let reason = verdict(code).expect_err(says);
        assert!(reason.contains(says), "{reason}");
    };
    why(vec![0xC3; 16], "does not check its stack");
    why(checked(b"\x49\x3b\x66\x20", BODY), "does not check its stack"); // no guard
    why(checked(b"\x49\x3b\x65\x10", BODY), "does not check its stack"); // not its g
    why(checked(b"\x4c\x8d\x65\xc0\x4d\x3b\x66\x10", BODY), "does not check its stack"); // not its stack
    let once = [&checked(SMALL, BODY)[..20], &[0xC3]].concat();
    why(once, "does not lead back");
    why(checked(SMALL, b"\xeb\xf8\x90\xc3"), "jumps back to its own beginning");
    why(checked(SMALL, b"\xeb\xfb\x90\xc3"), "a jump targets bytes that calltap would overwrite");
    let fips = [("crypto/internal/fips140/sha256.block", checked(SMALL, BODY))];
    assert_eq!(read(&fips, 20).functions[0].reason(), Some(&Reason::GoFips));
}

/// Builds a Go program; None if Go is not installed.
pub fn build(directory: &Path, name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    const TEXT: &str = "package main\nimport \"fmt\"\nfunc main() { fmt.Println(1) }\n";
    build_of(TEXT, directory, name, flags)
}

/// Builds a Go program of this text; None if Go is not installed.
pub fn build_of(text: &str, directory: &Path, name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let source = directory.join("program.go");
    std::fs::write(&source, text).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", name]).args(flags).arg(&source).current_dir(directory);
    let built = go.status().is_ok_and(|status| status.success());
    if !built {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no go here");
    }
    built.then(|| std::fs::read(directory.join(name)).unwrap())
}

/// A symbol's name in the form of the table: without the ABI and type arguments.
fn plain(name: &str) -> &str {
    name.trim_end_matches(".abi0").split('[').next().unwrap_or_default()
}

fn is_checked(function: &Function) -> bool {
    matches!(function.form(), Some(SiteForm::Checked { .. }))
}

/// Checks by a disassembler that all sites are whole instructions, the last of them the branch.
/// Returns the number of sites.
fn are_checks(path: &Path, binary: &Binary) -> usize {
    let listing = Command::new("objdump").args(["-dw", "--no-show-raw-insn"]).arg(path).output().unwrap();
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let instruction = |line: &str| {
        let (at, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(at.trim(), 16).ok()?, text.to_owned()))
    };
    let all: BTreeMap<u64, String> = listing.lines().filter_map(instruction).collect();
    let sites = binary.functions.iter().filter_map(|function| match function.form() {
        Some(SiteForm::Checked { at, old, .. }) => Some((at.0, at.0 + old.len() as u64)),
        _ => None,
    });
    sites
        .inspect(|(start, end)| {
            assert!(all.contains_key(start) && all.contains_key(end), "{start:#x}");
            let last = all.range(..end).next_back().map_or("", |(_, text)| text);
            assert!(last.starts_with("jbe"), "{start:#x}: {last}");
        })
        .count()
}

// Compares the table of a stripped program with the symbols of the same program, and the sites with
// a disassembler.
#[test]
fn a_stripped_program_has_the_functions_that_its_symbols_named() {
    let directory = tempfile::tempdir().unwrap();
    for more in [&[][..], &["-buildmode=pie"]] {
        let flags = |strip| [more, &[strip]].concat();
        let Some(_) = build(directory.path(), "whole", &flags("-ldflags=")) else { return };
        let Some(data) = build(directory.path(), "stripped", &flags("-ldflags=-s -w")) else { return };
        let mut binary = calltap_sites::read(&data, "stripped").unwrap();
        calltap_sites::find_prologues(&data, &mut binary, false).unwrap();
        let traceable = are_checks(&directory.path().join("stripped"), &binary);
        for function in binary.functions.iter().filter(|function| is_checked(function)) {
            // A return stub never sees the return of a Go function.
            let is_of_go = |reason: &Reason| reason.code().starts_with("go-");
            let Returns::Stub(why) = &function.returns else { continue };
            assert!(why.as_ref().is_some_and(is_of_go), "{}: {why:?}", function.name);
        }
        let found: BTreeMap<u64, &str> =
            binary.functions.iter().map(|function| (function.address.0, function.name.as_str())).collect();
        let symbols = Command::new("nm").arg(directory.path().join("whole")).output().unwrap();
        let mut compared = 0;
        for line in String::from_utf8_lossy(&symbols.stdout).lines() {
            let [at, "t" | "T", name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { continue };
            let at = u64::from_str_radix(at, 16).unwrap();
            // The linker's own symbols are not functions; symbols distinguish assembly from Go.
            let is_mark = ["runtime.text", "runtime.etext", "go.buildid", "go:buildid"].contains(&name);
            if !is_mark && !name.starts_with('_') {
                assert_eq!(found.get(&at).map(|found| plain(found)), Some(plain(name)), "{at:#x}");
                compared += 1;
            }
        }
        assert!(compared > 1000 && traceable > compared / 2, "{compared} {traceable}");
    }
}
