//! Generated functions with all mixtures of parameter types: the values that `-A` and `-R` show
//! must be those that the function prints.
//!
//! `CALLTAP_PROTOTYPES=3000` sets their number for each compiler, `CALLTAP_SEED` the seed.

use calltap_e2e::{Run, calltap_run, have};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// A type: its name, a value of it (`$` is a number from 1 to 99), and the form in which the value
/// is shown.
struct Kind {
    name: &'static str,
    value: &'static str,
    shown: Shown,
    cpp_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The value is always shown, as C prints it in this format.
    As(&'static str),
    /// The value may be left out; if shown, it is the bytes of the value.
    Bytes,
    /// The value is never shown, as it is wider than a word.
    Not,
    /// The value is shown as an address.
    Address,
}

const fn kind(name: &'static str, value: &'static str, shown: Shown) -> Kind {
    Kind { name, value, shown, cpp_only: false }
}

const KINDS: [Kind; 45] = [
    kind("signed char", "(signed char)-$", Shown::As("%d")),
    kind("unsigned char", "(unsigned char)(200 + $ % 50)", Shown::As("%d")),
    kind("char", "(char)('a' + $ % 26)", Shown::As("'%c'")),
    kind("short", "(short)(-300 * $)", Shown::As("%d")),
    kind("unsigned short", "(unsigned short)(600 * $)", Shown::As("%d")),
    kind("int", "(-70000 * $)", Shown::As("%d")),
    kind("unsigned", "(4000000000u + $)", Shown::As("%u")),
    kind("long", "(-(1l << 40) * $)", Shown::As("%ld")),
    kind("unsigned long", "(~0ul - $)", Shown::As("%lu")),
    kind("bool", "($ % 2 == 0)", Shown::As("%s")),
    kind("void *", "(void *)(0x1000ul * $)", Shown::As("%p")),
    kind("enum color", "(enum color)($ % 3)", Shown::As("%d")),
    kind("float", "($ + 0.5f)", Shown::As("%g")),
    kind("double", "(-$ - 0.25)", Shown::As("%g")),
    kind("long double", "($ * 1.5L)", Shown::Not),
    kind("FLOAT128", "(FLOAT128)$", Shown::Not),
    kind("__int128", "((__int128)$ << 70 | 5)", Shown::Not),
    kind("double _Complex", "(double _Complex)($ + 1.5)", Shown::Not),
    kind("float _Complex", "(float _Complex)($ + 1.5f)", Shown::Bytes),
    kind("long double _Complex", "(long double _Complex)($ + 1.5L)", Shown::Not),
    kind("int _Complex", "(int _Complex)$", Shown::Bytes),
    kind("struct packed", "MAKE(struct packed, (char)$, $)", Shown::Bytes),
    kind("struct packed_long", "MAKE(struct packed_long, (char)$, $)", Shown::Not),
    kind("v4int", "((v4int){$, 2, 3, 4})", Shown::Not),
    kind("v8int", "((v8int){$, 2})", Shown::Not),
    kind("v2int", "((v2int){$, 2})", Shown::Bytes),
    kind("v4char", "((v4char){1, 2, 3, 4})", Shown::Bytes),
    kind("struct floats", "MAKE(struct floats, $ + 0.5f, 2)", Shown::Bytes),
    kind("struct doubles", "MAKE(struct doubles, $ + 0.5, 2)", Shown::Not),
    kind("struct mixed", "MAKE(struct mixed, $, 2.5)", Shown::Not),
    kind("struct longs", "MAKE(struct longs, $, 2)", Shown::Not),
    kind("struct three", "MAKE(struct three, {(char)$, 2, 3})", Shown::Bytes),
    kind("struct x87", "MAKE(struct x87, $ * 1.5L)", Shown::Not),
    kind("struct large", "MAKE(struct large, {$, 2, 3, 4, 5})", Shown::Not),
    kind("struct bits", "MAKE(struct bits, $ % 15, 1000)", Shown::Bytes),
    kind("struct aligned", "MAKE(struct aligned, $)", Shown::Not),
    kind("struct wide_double", "MAKE(struct wide_double, $ + 0.5)", Shown::Not),
    kind("struct wide_floats", "MAKE(struct wide_floats, $ + 0.5f, 2)", Shown::Not),
    kind("bits33", "((bits33)-$)", Shown::Bytes),
    kind("struct late_float", "MAKE(struct late_float, {$, 1}, 2.5f)", Shown::Not),
    Kind { name: "empty", value: "empty()", shown: Shown::Not, cpp_only: true },
    Kind { name: "decltype(nullptr)", value: "nullptr", shown: Shown::Not, cpp_only: true },
    Kind { name: "pair", value: "pair{$, 2}", shown: Shown::Not, cpp_only: true },
    Kind { name: "counted_double", value: "counted_double($ + 0.5)", shown: Shown::Address, cpp_only: true },
    Kind { name: "counted", value: "counted($)", shown: Shown::Address, cpp_only: true },
];

const HEAD: &str = "
#include <stdio.h>
#include <string.h>
#ifdef __cplusplus
#define MAKE(type, ...) ([] { type made = {__VA_ARGS__}; return made; }())
struct empty {};
struct counted_double { double n; counted_double(double n) : n(n) {} counted_double(const counted_double &o) : n(o.n) {} ~counted_double() { n = 0; } };
struct pair { int *a; long b; pair(long n, long b) : a((int *)n), b(b) {} };
struct counted { long n; counted(long n) : n(n) {} counted(const counted &o) : n(o.n) {} ~counted() { n = 0; } };
extern \"C\" {
#else
#include <stdbool.h>
#define MAKE(type, ...) ((type){__VA_ARGS__})
#endif
#ifdef __clang__
#define NO __attribute__((noinline))
#define FLOAT128 __float128
#else
#define NO __attribute__((noinline, noipa))
#define FLOAT128 _Float128
#endif
#if defined(__cplusplus) && !defined(__clang__)
#undef FLOAT128
#define FLOAT128 __float128
#endif
enum color { RED, GREEN, BLUE };
typedef int v4int __attribute__((vector_size(16)));
typedef int v8int __attribute__((vector_size(32)));
typedef int v2int __attribute__((vector_size(8)));
typedef char v4char __attribute__((vector_size(4)));
struct __attribute__((packed)) packed { char a; int b; };
struct __attribute__((packed)) packed_long { char a; long b; };
struct floats { float a, b; };
struct doubles { double a, b; };
struct mixed { long a; double b; };
struct longs { long a, b; };
struct three { char a[3]; };
struct x87 { long double a; };
struct large { long a[5]; };
struct bits { unsigned a : 5, b : 20; };
struct __attribute__((aligned(16))) aligned { int a; };
struct __attribute__((aligned(32))) wide_double { double a; };
struct __attribute__((aligned(64))) wide_floats { float a, b; };
#if defined(__clang__) && __clang_major__ >= 14
typedef _BitInt(33) bits33;
#else
typedef char bits33 __attribute__((vector_size(4)));
#endif
struct late_float { int a[2]; float b; };
static unsigned long bytes(const void *from, unsigned long size) {
    unsigned long all = 0;
    memcpy(&all, from, size < 8 ? size : 8);
    return all;
}
";

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }
}

/// Returns a statement that prints ` NAME=VALUE`; ` NAME~VALUE` if the value may be left out; and
/// nothing if it must not be shown.
fn print(kind: &Kind, name: &str) -> String {
    match (kind.shown, kind.name) {
        (Shown::As(_), "bool") => format!("printf(\" {name}=%s\", {name} ? \"true\" : \"false\");"),
        (Shown::As(format), "float" | "double") => format!("printf(\" {name}={format}\", (double){name});"),
        (Shown::As(format), _) => format!("printf(\" {name}={format}\", {name});"),
        (Shown::Bytes, _) => format!("printf(\" {name}~0x%lx\", bytes(&{name}, sizeof {name}));"),
        (Shown::Address, _) => format!("printf(\" {name}@%p\", (void *)&{name});"),
        (Shown::Not, _) => String::new(),
    }
}

/// Returns a program with `count` functions, each of which is called once.
fn source(count: usize, seed: u64, is_cpp: bool) -> String {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let kinds: Vec<&Kind> = KINDS.iter().filter(|kind| is_cpp || !kind.cpp_only).collect();
    let scalars: Vec<&Kind> = KINDS.iter().filter(|kind| matches!(kind.shown, Shown::As(_))).collect();
    let (mut text, mut calls) = (HEAD.to_owned(), String::new());
    for n in 0..count {
        let result = kinds[random.below(kinds.len())];
        let parameters = 1 + random.below(11);
        // Unusual types are mixed in: the parameters behind them must still be right.
        let parameters: Vec<&Kind> = (0..parameters)
            .map(|_| {
                if random.below(3) == 0 {
                    kinds[random.below(kinds.len())]
                } else {
                    scalars[random.below(scalars.len())]
                }
            })
            .collect();
        let listed: Vec<String> =
            parameters.iter().enumerate().map(|(i, kind)| format!("{} a{i}", kind.name)).collect();
        let value = |kind: &Kind, k: usize| kind.value.replace('$', &k.to_string());
        // Versions of LLVM differ in the location of a number of 128 bits outside of registers,
        // and of the values behind a nullptr. The location of a vector of 32 bytes depends on
        // flags. The values behind these may be left out.
        let has = |names: &[&str]| parameters.iter().any(|kind| names.contains(&kind.name));
        let word = match () {
            () if has(&["v8int"]) || result.name == "v8int" => "vector",
            () if has(&["__int128", "decltype(nullptr)"]) => "wide",
            () => "call",
        };
        let _ = write!(text, "NO {} f{n}({}) {{ printf(\"{word} f{n}\");", result.name, listed.join(", "));
        let values: Vec<String> = parameters.iter().map(|kind| value(kind, 1 + random.below(99))).collect();
        // The caller prints what the function does not use, and need not have passed.
        for (i, kind) in parameters.iter().enumerate() {
            let print = print(kind, &format!("a{i}"));
            if matches!(kind.shown, Shown::As(_)) && random.below(8) == 0 {
                let print = print.replace('=', "~");
                let _ = writeln!(
                    calls,
                    "{{ {} a{i} = {}; printf(\"also f{n}\"); {print} puts(\"\"); }}",
                    kind.name, values[i]
                );
            } else {
                text += &print;
            }
        }
        let own = if result.shown == Shown::Address { String::new() } else { print(result, "ret") };
        let _ = writeln!(
            text,
            "{} ret = {}; {own} puts(\"\"); return ret; }}",
            result.name,
            value(result, 1 + random.below(99))
        );
        let _ = writeln!(calls, "f{n}({});", values.join(", "));
    }
    let end = if is_cpp { "}" } else { "" };
    format!("{text}{end}\nint main(void) {{\n{calls}}}\n")
}

/// Parses the values of `f1(a0=1, a1='x')  ret=2`, by name.
fn values(call: &str) -> Option<(String, BTreeMap<String, String>)> {
    let (name, rest) = call.split_at(call.find(['(', ' ']).unwrap_or(call.len()));
    let (arguments, result) = rest.split_once(')').unwrap_or(("", rest));
    let arguments = arguments.trim_start_matches('(');
    let all = arguments.split(", ").chain(result.split_whitespace());
    let pairs = all.filter_map(|item| item.trim().split_once('='));
    Some((name.to_owned(), pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// Returns the line of the source with the function of the first wrong value.
fn line_of<'s>(source: &'s str, wrong: &[String]) -> &'s str {
    let function = wrong.first().and_then(|line| line.split(':').next()).unwrap_or_default();
    source.lines().find(|line| line.contains(&format!(" {function}("))).unwrap_or_default()
}

fn check(compiler: &str, flags: &[&str], seed: u64) {
    if !have(compiler) {
        return calltap_e2e::skipped(&format!("no {compiler} here"));
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (count, seed) =
        (number("CALLTAP_PROTOTYPES").unwrap_or(150), number("CALLTAP_SEED").map_or(seed, |own| own as u64));
    let is_cpp = compiler.contains("++");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join(if is_cpp { "calling.cpp" } else { "calling.c" });
    let source = source(count, seed, is_cpp);
    fs::write(&file, &source).expect("written");
    let program = place.path().join("calling").display().to_string();
    let mut command = Command::new(compiler);
    command
        .args(["-g", "-w", "-Wno-psabi", "-fpatchable-function-entry=5", "-o", &program])
        .args(flags)
        .arg(&file);
    let built = command.output().expect("a compiler");
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
    let answer = place.path().join("answer").display().to_string();
    let run: Run = calltap_run(&["watch", "f[0-9]*", "-A", "all", "-R", "-o", &answer, "--", &program]);
    assert!(run.status.success(), "{}", run.stderr);
    let text = fs::read_to_string(&answer).expect("an answer");
    let shown = text.lines().filter_map(|line| {
        line.split("  ").map(str::trim).position(|word| word.starts_with('f')).map(|_| line)
    });
    let mut calls = BTreeMap::new();
    for line in shown {
        let at = line.find(" f").map_or(0, |at| at + 1);
        let end = line.find("  <- ").unwrap_or(line.len());
        calls.extend(values(&line[at..end]));
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    let is_llvm = compiler.contains("clang");
    let mut unused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in run.stdout.lines() {
        let mut words = line.split(' ');
        let word = words.next();
        if word == Some("also") {
            unused.entry(words.next().unwrap_or_default()).or_default().extend(words);
            continue;
        }
        let may_lack = is_llvm && word == Some("wide") || word == Some("vector");
        let name = words.next().unwrap_or_default();
        // Some calls have no value that could be shown.
        let mut shown = calls.remove(name).unwrap_or_default();
        for word in words.chain(unused.remove(name).unwrap_or_default()) {
            let at = word.find(['=', '~', '@']).expect("a value");
            let (own, kind, value) = (&word[..at], &word[at..=at], &word[at + 1..]);
            let found = shown.remove(own);
            compared += usize::from(found.is_some());
            // A result in memory that the caller provides is shown by its address.
            let is_elsewhere = own == "ret" && found.as_ref().is_some_and(|found| found.starts_with("0x7f"));
            // clang does not describe the place of a bool on the stack.
            let may_lack = may_lack || is_llvm && matches!(value, "true" | "false");
            if found.as_deref() != Some(value)
                && !is_elsewhere
                && (kind == "=" && !may_lack || found.is_some())
            {
                wrong.push(format!("{name}: {own} is {value}, shown {found:?}: {line}"));
            }
        }
        shown.retain(|own, value| own != "ret" || !value.starts_with("0x7f"));
        wrong.extend((!shown.is_empty()).then(|| format!("{name}: nothing says {shown:?}")));
    }
    let line = line_of(&source, &wrong);
    assert!(wrong.is_empty(), "{compiler} {flags:?}: {} wrong:\n{}\n{line}", wrong.len(), wrong.join("\n"));
    assert!(compared > count * 3, "{compared} values of {count} functions");
}

#[test]
fn arguments_of_c_functions_are_shown() {
    check("gcc", &["-O2"], 1);
    check("gcc", &["-O0"], 2);
    check("clang-16", &["-O2"], 3);
    check("clang-16", &["-O1", "-mavx2"], 4);
}

#[test]
fn arguments_of_cpp_functions_are_shown() {
    check("g++", &["-O2"], 5);
    check("clang++-16", &["-O2"], 6);
}

#[test]
fn a_function_with_a_part_that_was_moved_away_has_debugging_information() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, program) = (place.path().join("ranges.c"), place.path().join("ranges").display().to_string());
    let body = "#include <stdio.h>\n#include <stdlib.h>\nvoid __attribute__((cold, noinline)) bad(int n) { printf(\"%d\\n\", n); abort(); }\n\
        __attribute__((noinline, noipa)) int split(int first, long second) { if (__builtin_expect(first < 0, 0)) { bad(first); bad(2); } return first + (int)second; }\n\
        int main(void) { return split(3, 39) - 42; }\n";
    fs::write(&file, body).expect("written");
    let built = Command::new("gcc")
        .args(["-O2", "-g", "-freorder-blocks-and-partition", "-o", &program])
        .arg(&file)
        .output();
    assert!(built.expect("gcc").status.success());
    let run = calltap_run(&["watch", "split", "-A", "all", "-R", "--", &program]);
    assert!(run.stdout.contains("split(first=3, second=39)"), "{}{}", run.stdout, run.stderr);
}
