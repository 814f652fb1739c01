//! Tests of functions with room for tracing that pass their return address on to code that reads
//! it: only their entries are traced.

use crate::support::{build, find, have};
use calltap_sites::{Returns, find_prologues};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>
#define TRACED __attribute__((noinline, noipa))
ucontext_t a, b;
long keep[2];
void asks(long *p);
__asm__(".text; .globl asks; .type asks,@function; asks: mov (%rsp),%rax; mov %rax,(%rdi); ret; .size asks,.-asks");
void pushes(long *p);
__asm__(".text; .globl pushes; .type pushes,@function; pushes: push %rax; mov (%rsp),%rax; pop %rax; ret; .size pushes,.-pushes");
TRACED int swaps(void) { keep[0]++; return swapcontext(&a, &b); }
TRACED int perhaps(long n) { return n ? swapcontext(&a, &b) : 0; }
TRACED int between(void) { keep[0]++; return swaps(); }
TRACED int far_off(void) { keep[1]++; return between(); }
TRACED void *next(const char *name) { return dlsym(RTLD_NEXT, name); }
TRACED void own(long *p) { p++; asks(p); }
TRACED void *next_own(const char *name) { keep[1] = 0; return next(name); }
TRACED void *library(const char *name) { return malloc(*name); }
TRACED int calls(void) { int n = swapcontext(&a, &b); keep[0] = 0; return n + 1; }
TRACED void no_matter(long *p) { p++; pushes(p); }
int main(int argc, char **argv) {
    if (argc > 9) { swaps(); perhaps(argc); far_off(); own(keep); calls(); no_matter(keep); return !next("x") + !next_own("x") + !library("y"); }
    return 0;
}
"#;

/// The reason why the ends of a function's calls are not seen; empty if a return stub sees them.
fn unrecorded_end(returns: &Returns) -> String {
    match returns {
        Returns::Exits { unrecorded_end, .. } => {
            unrecorded_end.as_ref().map(ToString::to_string).unwrap_or_default()
        }
        Returns::Stub(_) => String::new(),
    }
}

fn check(compiler: &str, flags: &str) {
    let command = format!("{compiler} -O2 {flags}");
    let binary = build(&command, "c", SOURCE).read();
    for (name, is_seen) in [
        ("swaps", false),
        ("perhaps", false),
        ("between", false),
        ("far_off", false),
        ("next", false),
        ("next_own", false),
        ("own", false),
        ("library", true),
        ("calls", true),
        ("no_matter", true),
    ] {
        let function = find(&binary, name);
        assert!(function.is_traceable(), "{command}: {name} has room: {:?}", function.reason());
        let found = unrecorded_end(&function.returns);
        assert_eq!(found.is_empty(), is_seen, "{command}: {name}: {found}");
        assert!(is_seen || found.ends_with("the return address is read there"), "{command}: {name}: {found}");
    }
}

#[test]
fn function_passing_its_return_address_has_no_return_stub() {
    for compiler in ["gcc", "clang-16"].into_iter().filter(|compiler| have(compiler)) {
        // In a library, calls of exported functions go through stubs of the linker's.
        for linked in
            ["", "-fno-plt", "-fno-pie -no-pie", "-static", "-shared -fPIC", "-shared -fPIC -fno-plt"]
        {
            check(compiler, &format!("-fpatchable-function-entry=5 {linked}"));
        }
    }
    for profiled in ["-pg", "-pg -mfentry"] {
        check("gcc", profiled);
    }
}

#[test]
fn unmodified_function_passing_its_return_address_has_no_return_stub() {
    for flags in ["", "-fcf-protection", "-fcf-protection -static", "-shared -fPIC", "-shared -fPIC -fno-plt"]
    {
        let built = build(&format!("gcc -O2 {flags}"), "c", SOURCE);
        let mut binary = built.read();
        find_prologues(&built.data(), &mut binary, false).expect("a program");
        for name in ["swaps", "perhaps", "between", "far_off", "next", "next_own", "own"] {
            let function = find(&binary, name);
            assert!(function.is_traceable(), "{flags}: {name} is traced: {:?}", function.reason());
            assert_ne!(unrecorded_end(&function.returns), "", "{flags}: {name}: {:?}", function.returns);
        }
    }
}

const RETPOLINES: &str = r#"
#define N __attribute__((noinline))
typedef long (*F)(long);
N long a(long x) { return x * 3 + 1; }
N long b(long x) { return x ^ 0x55; }
F table[2] = {a, b};
N long tail(long x) { return table[x & 1](x); }
N long tail_with_frame(long x, F f) { long r[2] = {x, x + 1}; for (int i = 0; i < 2; i++) r[i] += tail(r[i]); return f(r[0] ^ r[1]); }
int main(int argc, char **argv) { return (int)(tail(argc) + tail_with_frame(argc, a)); }
"#;

/// A `ret` to an address that the function itself has stored is a jump through a pointer: the
/// function's call lasts until its callee returns.
#[test]
fn retpoline_at_the_end_of_a_function_is_a_tail_call() {
    for form in ["thunk-inline", "thunk"] {
        let command = format!("gcc -O2 -fcf-protection=none -mindirect-branch={form}");
        let built = build(&command, "c", RETPOLINES);
        let mut binary = built.read();
        find_prologues(&built.data(), &mut binary, false).expect("a program");
        for name in ["tail", "tail_with_frame"] {
            let function = find(&binary, name);
            assert!(function.is_traceable(), "{command}: {name}: {:?}", function.reason());
            let is_stub = matches!(function.returns, Returns::Stub(_));
            assert!(is_stub, "{command}: {name}: {:?}", function.returns);
        }
    }
}
