//! Tests of Go functions that do not check their stack.

use crate::go::build_of;
use calltap_sites::{Binary, Function, SiteForm};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Leaves of each form, and one that cannot be traced.
const PROGRAM: &str = r#"
package main

import "os"

type pair struct{ a, b int }

var seed = len(os.Args)

//go:noinline
func read() int { return seed }

//go:noinline
func sum(a, b int) int { return a ^ b }

//go:noinline
func constant() int { return 7 }

//go:noinline
func empty() {}

//go:noinline
func field(p *pair) int { return p.b }

//go:noinline
func loop(n int) int {
again:
	n = n*3 + 1
	if n&1023 != 0 {
		goto again
	}
	return n
}

//go:nosplit
//go:noinline
func outer(n int) int { return sum(n, 1) + constant() }

func main() {
	empty()
	p := &pair{len(os.Args), 2}
	os.Exit(sum(p.a, constant())&1 + field(p)&1 + read()&1 + loop(3)&1 + outer(5)&1)
}
"#;

fn read(data: &[u8]) -> Binary {
    let mut binary = calltap_sites::read(data, "program").expect("an ELF file");
    calltap_sites::find_prologues(data, &mut binary, false).expect("the same");
    binary
}

fn unchecked(binary: &Binary) -> impl Iterator<Item = (&Function, &SiteForm)> {
    binary.functions.iter().filter_map(|function| match function.form() {
        Some(form @ SiteForm::Unchecked { .. }) => Some((function, form)),
        _ => None,
    })
}

/// The instructions that a disassembler finds, by address.
fn listing(path: &Path) -> BTreeMap<u64, String> {
    let listing = Command::new("objdump").args(["-dw", "--no-show-raw-insn"]).arg(path).output().unwrap();
    let instruction = |line: &str| {
        let (at, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(at.trim(), 16).ok()?, text.to_owned()))
    };
    String::from_utf8_lossy(&listing.stdout).lines().filter_map(instruction).collect()
}

#[test]
fn leaves_have_sites_of_whole_instructions() {
    let directory = tempfile::tempdir().unwrap();
    let Some(data) = build_of(PROGRAM, directory.path(), "program", &[]) else { return };
    let (binary, all) = (read(&data), listing(&directory.path().join("program")));
    let mut count = 0;
    for (function, form) in unchecked(&binary) {
        let SiteForm::Unchecked { at, old, .. } = form else { continue };
        let (name, end) = (&function.name, at.0 + old.len() as u64);
        assert!(all.contains_key(&at.0) && all.contains_key(&end) && old.len() >= 5, "{name}");
        assert_eq!(*at, function.address, "{name}");
        let moves = |text: &str| !text.starts_with('j') && !text.starts_with("call");
        assert!(all.range(at.0..end).all(|(_, text)| moves(text)), "{name}");
        // Goroutines are preempted in all functions but the runtime's own.
        let is_one = all.range(at.0 + 1..at.0 + 5).all(|(_, text)| text.starts_with("int3"));
        assert!(is_one || !name.starts_with("main."), "{name}");
        count += 1;
    }
    assert!(count > 100, "{count}");
    let code = |name: &str| {
        let function = binary.functions.iter().find(|function| function.name == name).expect(name);
        match function.form() {
            Some(_) => "",
            None => function.reason().expect(name).code(),
        }
    };
    assert_eq!(["main.read", "main.constant", "main.empty"].map(code), [""; 3]);
    assert_eq!(["main.sum", "main.outer"].map(code), ["short", "go-resumes"]);
    assert_eq!(code("main.field"), "go-may-fault");
    assert_eq!(code("runtime.sigtrampgo"), "go-other-stack");
    assert_eq!(code("runtime.memmove"), "go-unchecked-assembly");
}

#[test]
fn stripped_leaves_have_the_same_sites() {
    let directory = tempfile::tempdir().unwrap();
    for more in [&[][..], &["-buildmode=pie"]] {
        let flags = |strip| [more, &[strip]].concat();
        let Some(whole) = build_of(PROGRAM, directory.path(), "whole", &flags("-ldflags=")) else { return };
        let stripped = build_of(PROGRAM, directory.path(), "stripped", &flags("-ldflags=-s -w"));
        let Some(stripped) = stripped else { return };
        // Operands differ, as the programs' data lies elsewhere.
        let sites = |data: &[u8]| -> Vec<u64> {
            unchecked(&read(data)).map(|(function, _)| function.address.0).collect()
        };
        assert_eq!(sites(&stripped), sites(&whole));
    }
}
