//! Compiles object files with the compilers of this machine, adds their lists, links them, and
//! finds the calls with binutils.
#![allow(dead_code, reason = "each test file uses its part")]

use object::read::elf::{ElfFile32, ElfFile64};
use object::{Endianness, Object, ObjectSection as _};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// C source: exported and local functions in several sections, one cold, one without a call.
pub const C: &str = r#"
int from_two(int);
__attribute__((noinline)) static int local(int a) { return a * 3; }
__attribute__((noinline, section(".text.other"))) int other(int a) { return local(a) + 1; }
__attribute__((noinline, section(".text.another"))) static int another(int a) { return a * 7; }
__attribute__((noinline, cold)) int cold(int a) { return other(a) + 2; }
__attribute__((noinline, no_instrument_function)) int off(int a) { return a; }
int (*volatile pointer)(int) = local;
int start(int a) { return pointer(a) + cold(a) + off(a) + another(a) + from_two(a); }
"#;

/// C source of another unit, with a function of the same name as one in the first, and one that is
/// not called.
pub const TWO: &str = r#"
__attribute__((noinline)) static int local(int a) { return a * 5; }
int dead(int a) { return local(a) + 1; }
int from_two(int a) { return local(a); }
"#;

/// C++ source: a template, an inline function and a class, which all units share; both a unit of
/// its own and with `MAIN`.
pub const CPP: &str = r#"
template <typename T> __attribute__((noinline)) T twice(T a) { return a + a; }
inline __attribute__((noinline)) int shared(int a) { static int n; return n += a; }
struct Base { virtual int get(int a) { return twice(a); } Base() { value = shared(1); } int value; };
#ifdef MAIN
extern "C" int from_two(int);
extern "C" int start(int a) { Base base; return base.get(a) + twice(a) + (int)twice(a * 2L) + shared(a) + from_two(a); }
#else
extern "C" int from_two(int a) { Base base; return base.get(a) + twice(a) + shared(a); }
#endif
extern "C" void __cxa_pure_virtual(); void operator delete(void *, unsigned long) noexcept;
"#;

/// Assembly that a program without a C library needs for linking.
const RUNTIME: &str = r#"
    .globl _start, mcount, _mcount, __fentry__
    .text
    _start: call start; hlt
    mcount: _mcount: __fentry__: ret
    .weak _GLOBAL_OFFSET_TABLE_, _ZTVN10__cxxabiv117__class_type_infoE
    .section .note.GNU-stack,"",@progbits
"#;

const LIST: &str = "__mcount_loc";

/// Whether the tool runs here; reports it as skipped otherwise.
pub fn have(tool: &str) -> bool {
    let works = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !works {
        // Written directly, as the test runner swallows the macros' output of passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {tool} not installed");
    }
    works
}

/// Runs a command that must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let (ok, text) = tried(command);
    assert!(ok, "{command:?} failed:\n{text}");
    text
}

/// Runs a command. Returns whether it succeeds, and its output.
pub fn tried(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// A directory with object files.
pub struct Bench(TempDir);

impl Bench {
    pub fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles with a command line such as `gcc -O2 -pg`.
    pub fn compile(&self, command: &str, suffix: &str, source: &str, name: &str) -> PathBuf {
        let file = self.path(&format!("{name}.{suffix}"));
        let object = self.path(&format!("{name}.o"));
        std::fs::write(&file, source).unwrap();
        let mut words = command.split_whitespace();
        let mut compiler = Command::new(words.next().unwrap());
        run(compiler.args(words).arg("-c").arg(&file).arg("-o").arg(&object).current_dir(self.0.path()));
        object
    }

    /// Compiles the runtime for programs of this width.
    pub fn runtime(&self, width: &str) -> PathBuf {
        self.compile(&format!("gcc {width}"), "s", RUNTIME, "runtime")
    }

    /// Links a static program.
    pub fn link(&self, linker: &str, objects: &[PathBuf], name: &str) -> Result<PathBuf, String> {
        let program = self.path(name);
        let mut words = linker.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        let (ok, text) = tried(command.args(words).arg("-o").arg(&program).args(objects));
        if ok { Ok(program) } else { Err(text) }
    }
}

/// Adds the list to an object in place. The object must need one, and have it then.
pub fn add(object: &Path) {
    let old = std::fs::read(object).unwrap();
    let new = calltap_recordmcount::add(&old).unwrap().expect("calls to mcount");
    assert_eq!(calltap_recordmcount::add(&new), Ok(None), "a second time");
    std::fs::write(object, new).unwrap();
}

/// Returns the bytes of the list.
fn content<'d>(file: &impl Object<'d>) -> Vec<u8> {
    file.section_by_name(LIST).map_or(Vec::new(), |section| section.data().unwrap().to_vec())
}

/// Returns the addresses in a program's list.
pub fn list(program: &Path) -> Vec<u64> {
    let bytes = std::fs::read(program).unwrap();
    let content = if bytes[4] == 1 {
        content(&ElfFile32::<Endianness>::parse(&*bytes).unwrap())
    } else {
        content(&ElfFile64::<Endianness>::parse(&*bytes).unwrap())
    };
    let width = if bytes[18] == 3 { 4 } else { 8 };
    let mut all: Vec<u64> = content
        .chunks_exact(width)
        .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        .collect();
    all.sort_unstable();
    all
}

/// Returns the addresses of the program's calls of the profiling functions. A call that mold has
/// made direct begins with a NOP.
pub fn calls(program: &Path) -> Vec<u64> {
    let text = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program));
    let is_hook =
        |line: &str| ["<mcount>", "<_mcount>", "<__fentry__>"].iter().any(|name| line.contains(name));
    let listed = list(program);
    let (mut calls, mut nop) = (BTreeSet::new(), None);
    for line in text.lines() {
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        let address = u64::from_str_radix(address.trim(), 16).unwrap();
        if instruction.contains("call") && is_hook(instruction) {
            calls.insert(nop.filter(|nop| *nop + 1 == address && listed.contains(nop)).unwrap_or(address));
        }
        nop = (instruction.trim() == "nop").then_some(address);
    }
    calls.into_iter().collect()
}
