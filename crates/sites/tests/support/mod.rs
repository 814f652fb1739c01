//! Builds fixtures with the installed compilers, and compares with binutils what is found in them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use calltap_sites::{Binary, Function, Returns, SiteForm, Svma, file_may_have_sites, load, may_have_sites};
use tempfile::TempDir;

/// Source of four functions: exported and local, with their address taken or not, one excluded by
/// its attribute.
pub const C: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int leaf(int a) { return a * 3 + 1; }
__attribute__((noinline)) int mid(int a) { return leaf(a) + leaf(a + 1); }
__attribute__((noinline, patchable_function_entry(0))) int off(int a) { return leaf(a) - 1; }
int (*volatile pointer)(int) = mid;
int main(int argc, char **argv) { printf("%d %d\n", pointer(argc), off(argc)); return 0; }
"#;

/// Assembly of a function `perhaps` with a sled at its entry and `exit` before its end, both
/// recorded as XRay does.
pub fn with_sled(exit: &str, kind: u8, version: u8) -> String {
    let record = |sled: &str, kind: u8, version: u8| {
        format!(
            ".pushsection xray_instr_map,\\\"a\\\"; 8: .quad {sled}-8b, perhaps-(8b+8); .byte {kind},1,{version}; .skip 13; .popsection"
        )
    };
    let (entry, left) = (record("perhaps", 0, 2), record("7b", kind, version));
    format!(
        "asm(\".text; .globl perhaps; .type perhaps,@function; perhaps: {SLED}; {entry}; test %edi,%edi; 7: {exit}; \
         {left}; xor %eax,%eax; ret; .size perhaps,.-perhaps\");"
    )
}

/// A sled: a jump over nine bytes that are a NOP.
pub const SLED: &str = ".byte 0xeb,9,0x66,0x0f,0x1f,0x84,0,0,2,0,0";

/// Whether a tool is installed. Reports a missing one, so that a passing run does not hide what it
/// skipped.
pub fn have(tool: &str) -> bool {
    let works = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !works {
        // Bypasses the test runner, which captures what passing tests print with macros.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {tool} not installed");
    }
    works
}

/// A built file, and the directory that holds it.
pub struct Built {
    pub path: PathBuf,
    _directory: TempDir,
}

impl Built {
    pub fn data(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Reads the file, and compares every site and symbol with binutils.
    pub fn read(&self) -> Binary {
        let (data, file) = (self.data(), File::open(&self.path).unwrap());
        let binary = calltap_sites::read(&data, "fixture").unwrap();
        compare_symbols(&self.path, &binary);
        compare_bytes(&self.path, &binary);
        if binary.functions.iter().any(|function| function.is_traceable()) {
            assert!(may_have_sites(&data), "the quick look sees no site in {}", self.path.display());
        }
        assert_eq!(file_may_have_sites(&file), may_have_sites(&data), "{}", self.path.display());
        let loaded = calltap_sites::read(&load(&file).unwrap(), "fixture");
        assert_eq!(loaded.as_ref(), Ok(&binary), "{} was not loaded as a whole", self.path.display());
        binary
    }

    /// Runs a tool with the file's path as its last argument.
    pub fn tool(self, command: &str) -> Self {
        run(Command::new("sh").arg("-c").arg(format!("{command} \"$0\"")).arg(&self.path));
        self
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed:\n{out}{err}");
    out.into_owned()
}

/// Compiles `source`, a file with this suffix, by a command line such as `gcc -O2 -pg`.
pub fn build(command: &str, suffix: &str, source: &str) -> Built {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(format!("fixture.{suffix}"));
    let path = directory.path().join("fixture");
    std::fs::write(&file, source).unwrap();
    let mut words = command.split_whitespace();
    let mut compiler = Command::new(words.next().unwrap());
    // The tested flags of rustc need nightly features.
    compiler.env("RUSTC_BOOTSTRAP", "1").current_dir(directory.path());
    run(compiler.args(words).arg(&file).arg("-o").arg(&path));
    Built { path, _directory: directory }
}

/// Describes a site as the expectations do: with addresses relative to the function, and without
/// call targets.
pub fn describe(function: &Function) -> String {
    let place = |at: Svma| format!("{:+}", at.0.wrapping_sub(function.address.0) as i64);
    let bytes = |old: &[u8]| match old {
        [0xe8, _, _, _, _] => "call".to_owned(),
        [0xff, 0x15, _, _, _, _] => "call-got".to_owned(),
        [0x67, 0xe8, _, _, _, _] => "addr32-call".to_owned(),
        _ => old.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let what = match function.form() {
        Some(SiteForm::Entry { at, old }) => format!("entry{} {}", place(*at), bytes(old)),
        Some(SiteForm::Prologue { at, old }) => format!("prologue{} {}", place(*at), bytes(old)),
        Some(SiteForm::Checked { at, old, .. }) => format!("checked{} {}", place(*at), bytes(old)),
        Some(SiteForm::Trap { at, old }) => format!("trap{} {}", place(*at), bytes(old)),
        Some(SiteForm::AfterPrologue { at: _, old }) => format!("after-prologue {}", bytes(old)),
        Some(SiteForm::Prefix { prefix, prefix_old, entry, entry_old }) => format!(
            "prefix{} {} entry{} {}",
            place(*prefix),
            bytes(prefix_old),
            place(*entry),
            bytes(entry_old)
        ),
        Some(SiteForm::Unchecked { at, old, .. }) => format!("unchecked{} {}", place(*at), bytes(old)),
        Some(SiteForm::PaddingJump { front, front_old, at, old }) => {
            format!("beside{} {} entry{} {}", place(*front), bytes(front_old), place(*at), bytes(old))
        }
        None => format!("({})", function.reason().map(ToString::to_string).unwrap_or_default()),
    };
    format!("{} {}", function.kind(), what)
}

/// Returns the function with this name.
pub fn find<'b>(binary: &'b Binary, name: &str) -> &'b Function {
    let mut found = binary.functions.iter().filter(|function| function.name == name);
    let function = found.next().unwrap_or_else(|| panic!("no {name} in {:#?}", binary.functions));
    assert!(found.next().is_none(), "{name} is listed twice");
    function
}

/// Builds and reads a fixture, and compares the named functions with lines such as `main patchable
/// entry+0 9090909090`.
pub fn check(command: &str, suffix: &str, source: &str, expected: &str) -> Binary {
    let built = build(command, suffix, source);
    let binary = built.read();
    check_binary(command, &binary, expected);
    binary
}

/// Compares an already read binary as [`check`] does.
pub fn check_binary(what: &str, binary: &Binary, expected: &str) {
    assert_eq!(binary.complaints, Vec::<String>::new(), "{what}");
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let found: Vec<String> = expected
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .map(|name| format!("{name} {}", describe(find(binary, name))))
        .collect();
    assert_eq!(found, expected, "{what}");
}

fn find_at(binary: &Binary, address: Svma) -> &Function {
    binary.functions.iter().find(|function| function.address == address).unwrap()
}

/// Checks that every function symbol of `readelf` is listed exactly once at its address, and that
/// no other entry has a name. Functions chosen by a resolver have its names, too.
fn compare_symbols(path: &Path, binary: &Binary) {
    let sections = run(Command::new("readelf").arg("-SW").arg(path));
    let code: Vec<&str> = sections
        .lines()
        .filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'))
        .filter(|(_, rest)| {
            let words: Vec<&str> = rest.split_whitespace().collect();
            !rest.trim().starts_with(".plt") && words.get(6).is_some_and(|flags| flags.contains('X'))
        })
        .map(|(index, _)| index.trim())
        .collect();
    let mut expected: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut chosen: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in run(Command::new("readelf").arg("-sW").arg(path)).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, value, _, kind, _, _, section, name, ..] = words[..] else { continue };
        if matches!(kind, "FUNC" | "IFUNC") && code.contains(&section) {
            let address = u64::from_str_radix(value, 16).unwrap();
            let name = name.split('@').next().unwrap().to_owned();
            let names = expected.entry(address).or_default();
            if kind == "FUNC" {
                names.push(name);
            } else {
                chosen.entry(address).or_default().insert(name);
            }
        }
    }
    let found = binary
        .resolvers
        .iter()
        .map(|resolver| (resolver.address.0, resolver.names.iter().cloned().collect()));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), chosen, "{}", path.display());
    for resolver in &binary.resolvers {
        let names = &chosen[&resolver.address.0];
        let own = expected.entry(resolver.address.0).or_default();
        if own.is_empty() {
            own.push(find_at(binary, resolver.address).name.clone());
        }
        for choice in &resolver.choices {
            expected.entry(choice.0).or_default().extend(names.iter().cloned());
        }
    }
    for names in expected.values_mut() {
        names.sort();
        names.dedup();
    }
    let listed: BTreeMap<u64, Vec<String>> = binary
        .functions
        .iter()
        .filter(|function| !function.name.starts_with("fixture+0x"))
        .map(|function| {
            let mut names = function.aliases.clone();
            assert!(names.is_sorted(), "{names:?}");
            names.push(function.name.clone());
            names.sort();
            (function.address.0, names)
        })
        .collect();
    assert_eq!(listed, expected, "{}", path.display());
    assert!(binary.functions.is_sorted_by(|a, b| a.address < b.address), "one per address, in order");
}

/// Checks that the bytes at each site are whole instructions of `objdump`: NOPs, calls of the
/// profiling functions, or sleds.
fn compare_bytes(path: &Path, binary: &Binary) {
    let text = run(Command::new("objdump").args(["-d", "--insn-width=16"]).arg(path));
    let mut instructions: BTreeMap<u64, (Vec<u8>, &str)> = BTreeMap::new();
    for line in text.lines() {
        let mut columns = line.splitn(3, '\t');
        let (Some(address), Some(bytes), text) = (columns.next(), columns.next(), columns.next()) else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let bytes = bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
        instructions.insert(address, (bytes.collect(), text.unwrap_or("")));
    }
    let whole = |at: Svma, old: &[u8]| {
        let mut bytes = Vec::new();
        while bytes.len() < old.len() {
            let (instruction, text) = &instructions[&(at.0 + bytes.len() as u64)];
            let allowed = ["nop", "xchg   %ax,%ax", "mcount", "__fentry__"];
            // For a call through a GOT without symbols, objdump prints only the slot.
            let through_got = instruction.starts_with(&[0xff, 0x15]);
            // A sled jumps over itself, or returns.
            let sled = bytes.is_empty()
                && (instruction[..] == [0xeb, old.len() as u8 - 2] || instruction[..] == [0xc3]);
            assert!(
                through_got || sled || allowed.iter().any(|allowed| text.contains(allowed)),
                "{at:x?} is {text}"
            );
            bytes.extend_from_slice(instruction);
        }
        assert_eq!(bytes, old, "{at:x?}");
    };
    let flat: BTreeMap<u64, u8> = instructions
        .iter()
        .flat_map(|(&at, (bytes, _))| bytes.iter().enumerate().map(move |(i, &byte)| (at + i as u64, byte)))
        .collect();
    for function in &binary.functions {
        assert_eq!(function.is_traceable(), function.reason().is_none(), "{function:?}");
        if let Returns::Exits { elsewhere, .. } = &function.returns {
            elsewhere.iter().for_each(|exit| whole(exit.at, &exit.old));
        }
        match function.form() {
            Some(
                SiteForm::Entry { at, old }
                | SiteForm::Prologue { at, old }
                | SiteForm::Checked { at, old, .. }
                | SiteForm::Unchecked { at, old, .. }
                | SiteForm::Trap { at, old }
                | SiteForm::AfterPrologue { at, old },
            ) => {
                assert!(old.len() >= 5);
                whole(*at, old);
            }
            Some(SiteForm::Prefix { prefix, prefix_old, entry, entry_old }) => {
                assert_eq!((prefix_old.len(), entry_old.len()), (5, 2));
                assert_eq!(prefix.0 + 5, function.address.0);
                whole(*entry, entry_old);
                let found: Vec<u8> = (prefix.0..prefix.0 + 5).map(|at| flat[&at]).collect();
                assert_eq!(&found, prefix_old);
            }
            Some(SiteForm::PaddingJump { front, front_old, at, old }) => {
                assert_eq!(front.0 + front_old.len() as u64, at.0);
                whole(*at, old);
            }
            None => {}
        }
    }
}
