//! Tests of functions not built for tracing: which prologues may be overwritten, and which not.

use crate::support::{build, describe, find};
use calltap_sites::{SiteForm, SiteKind, find_prologues, inlined};

/// Adds unwinding information as a compiler would: behind the first instruction, the return address
/// is far away.
pub fn unwound(code: &str) -> String {
    if code.contains(".cfi_startproc") || code.starts_with('.') {
        return code.to_owned();
    }
    let (first, rest) = code.split_once("; ").unwrap_or((code, ""));
    format!(".cfi_startproc; {first}; .cfi_def_cfa_offset 512; {rest}; .cfi_endproc")
}

/// Builds functions of these instructions, one directly behind the other.
pub fn functions(all: &[(&str, &str)]) -> String {
    let function = |(name, code): &(&str, &str)| {
        format!(".globl {name}\n.type {name}, @function\n{name}: {code}\n.size {name}, . - {name}\n")
    };
    let code: String = all.iter().map(function).collect();
    format!("__asm__(R\"(.text\n{code})\"); int main(void) {{ return 0; }}")
}

pub fn check(name: &str, code: &str, expected: &str) {
    check_allowing(false, name, code, expected);
}

fn check_allowing(int3: bool, name: &str, code: &str, expected: &str) {
    let source =
        functions(&[("before", "ret"), (name, &unwound(code)), ("behind", "nop; nop; nop; nop; nop; ret")]);
    let built = build("gcc -O2 -no-pie", "c", &source);
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, int3).expect("a program");
    let found = describe(find(&binary, name));
    assert!(found.contains(expected), "{name}: {found}, not {expected}");
}

#[test]
fn jump_covers_whole_instructions() {
    check("pushes", "push %rbp; mov %rsp, %rbp; push %r15; ret", "prologue+0 554889e54157");
    check("marked", "endbr64; push %rbp; mov %rsp, %rbp; push %r15; ret", "prologue+4 554889e54157");
    check("short", "xor %eax, %eax; ret; .skip 8, 0xcc", "prologue+0 31c0c3cccc");
    check("calls", "push %rax; call before; pop %rax; ret", "prologue+0 50e8");
}

// Functions jump to such labels, and return from their frames there.
#[test]
fn label_behind_pushed_frame_is_no_function() {
    let source = functions(&[
        ("outer", ".cfi_startproc; .cfi_def_cfa %r10, 8; mov 8(%rsi), %rbx"),
        ("restores", "mov 16(%rsi), %rdi; mov 24(%rsi), %rsi; mov %r10, %rsp; .cfi_def_cfa %rsp, 8; ret"),
        ("another", "mov %rdi, %rax; add %rsi, %rax; ret; .cfi_endproc"),
    ]);
    let built = build("gcc -O2 -no-pie", "c", &source);
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    let found = ["restores", "another"].map(|name| describe(find(&binary, name)));
    assert!(found[0].contains("not a return address at entry"), "{found:?}");
    assert!(found[1].contains("prologue+0"), "{found:?}");
}

// Assembly gives shared ends of functions symbols of their own; leaf functions jump there with data
// below the stack.
#[test]
fn code_that_reads_the_red_zone_of_others_is_no_function() {
    let reads = "mov -8(%rsp), %rax; sub -16(%rsp), %rax; xor -120(%rsp), %rax; ret";
    check("shared_end", reads, "at 0x");
    check("shared_end", reads, "reads below the stack what the function has not written");
    check("own_data", "mov %rdi, -8(%rsp); mov -8(%rsp), %rax; nop; ret", "prologue+0");
    check("frame", "sub $24, %rsp; mov 8(%rsp), %rax; add $24, %rsp; ret", "prologue+0");
}

// A hook at the end of the stack would not be taken for OCaml code by its runtime.
#[test]
fn code_of_ocaml_is_left_alone() {
    check("camlFoo__bar_12", "push %rax; mov %rdi, %rax; pop %rdx; nop; ret", "OCaml code");
    check("caml_alloc_12", "push %rax; mov %rdi, %rax; pop %rdx; nop; ret", "prologue+0");
}

#[test]
fn branch_targets_in_prologue_are_refused() {
    check("loops", "xor %eax, %eax; 1: inc %eax; cmp %edi, %eax; jne 1b; ret", "targets its byte 2");
    check("turns", "1: dec %edi; jnz 1b; nop; ret", "jumps back to its own beginning");
    let table = ".pushsection .rodata; 9: .long 1f - 9b, 2f - 9b; .popsection; xor %eax, %eax; \
                 1: lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; add %rdx, %rcx; jmp *%rcx; 2: ret";
    check("switches", table, "targets its byte 2");
    let addresses =
        ".pushsection .rodata; 9: .quad 1f, 2f; .popsection; xor %eax, %eax; 1: jmp *9b(,%rdi,8); 2: ret";
    check("switches_far", addresses, "targets its byte 2");
}

// Breakpoints are only used on request; otherwise the reason names them.
#[test]
fn int3_replaces_first_byte_without_room_for_jump() {
    for (name, code, trap, reason) in [
        ("returns", "ret", "trap+0 c3", "it has 1"),
        ("joined", "mov %rdi, %rax; ret", "trap+0 4889f8c3", "it has 4"),
        ("leaves", "jmp before", "trap+0 eb", "it has 2"),
        ("marked", "endbr64; ret", "trap+4 c3", "it has 1"),
        ("loops", "xor %eax, %eax; 1: inc %eax; cmp %edi, %eax; jne 1b; ret", "trap+0 31c0", "byte 2"),
        ("early", "call *%rdi; nop; nop; nop; ret", "trap+0 ffd7", "a call returns to its byte 2"),
        ("later", "xor %eax, %eax; syscall; ret", "trap+0 31c0", "a system call"),
    ] {
        check_allowing(true, name, code, trap);
        check(name, code, reason);
        check(name, code, "; --allow-int3 would trace it");
    }
    for (name, code, reason) in [
        ("turns", "1: dec %edi; jnz 1b; ret", "jumps back to its own beginning"),
        ("waits", "syscall; ret", "a system call"),
        ("cut", ".byte 0x48", "not instructions"),
    ] {
        check_allowing(true, name, code, reason);
        check(name, code, reason);
    }
}

// Other code enters behind the first instruction, as in the C library's memcpy.
#[test]
fn padding_in_front_takes_the_jump_where_the_beginning_has_no_room() {
    let joined = "mov %rdi, %rax; 1: cmp $32, %rdx; ja 1b; ret";
    let near = |name: &str, gap: &str, code: &str| {
        let code = unwound(code);
        let function =
            format!("ret; .skip {gap}; .type {name}, @function; {name}: {code}; .size {name}, . - {name}");
        let mut lines = functions(&[("early", &function), ("behind", "nop; nop; nop; nop; nop; ret")]);
        lines = lines.replace(".size early, . - early", ".size early, 1");
        let built = build("gcc -O2 -no-pie", "c", &lines);
        let mut binary = built.read();
        find_prologues(&built.data(), &mut binary, false).expect("a program");
        describe(find(&binary, name))
    };
    assert_eq!(near("joined", "15, 0xcc", joined), "prologue beside-5 cccccccccc entry+0 4889f8");
    assert_eq!(near("short", "15, 0x90", "xor %eax, %eax; ret"), "prologue beside-5 9090909090 entry+0 31c0");
    let marked = format!("endbr64; {joined}");
    assert_eq!(near("marked", "15, 0xcc", &marked), "prologue beside-5 ccccccccccf30f1efa entry+4 4889f8");
    // The function in front falls through the padding.
    let unwound = unwound(joined);
    let run_on = |padding: &str| {
        let function = format!(
            "cmp %rdx, %rcx; jb early; 2: {padding}; .type falls, @function; falls: {unwound}; .size falls, . - falls"
        );
        let lines =
            functions(&[("early", &function)]).replace(".size early, . - early", ".size early, 2b - early");
        let built = build("gcc -O2 -no-pie", "c", &lines);
        let mut binary = built.read();
        find_prologues(&built.data(), &mut binary, false).expect("a program");
        describe(find(&binary, "falls"))
    };
    assert_eq!(
        run_on(".byte 0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0"),
        "prologue beside-5 0000000000 entry+0 4889f8"
    );
    let farther = ".byte 0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0; .byte 0x66,0x0f,0x1f,0x44,0,0";
    assert_eq!(run_on(farther), "prologue beside-11 0000000000660f1f440000 entry+0 4889f8");
    assert!(run_on("nopl 0x0(%rax); nopl 0x0(%rax)").contains("targets its byte 3"));
    // The function in front is too near, and its own jump may need the bytes; the bytes are no
    // padding; the first instruction has one byte.
    assert!(near("close", "6, 0xcc", joined).contains("targets its byte 3"));
    assert!(near("data", "15, 0x41", joined).contains("targets its byte 3"));
    assert!(
        near("single", "15, 0xcc", "push %rbx; 1: dec %edi; jnz 1b; pop %rbx; ret")
            .contains("targets its byte 1")
    );
}

#[test]
fn non_relocatable_prologue_is_refused() {
    check("early", "call *%rdi; nop; nop; nop; ret", "a call returns to its byte 2");
    check("system", "mov %rdi, %rax; syscall; ret", "a system call");
    check("tiny", "ret", "it has 1");
}

#[test]
fn functions_without_room_are_on_demand_beside_patchable_ones() {
    let source = "int other(int a) { return a * 3; } __attribute__((patchable_function_entry(0))) int bare(int a) { \
                  return other(a) + 1; } int main(void) { return bare(2); }";
    let built = build("gcc -O1 -fpatchable-function-entry=5", "c", source);
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    assert_eq!(find(&binary, "other").kind(), SiteKind::Patchable);
    let bare = find(&binary, "bare");
    assert!(
        matches!(bare.form(), Some(SiteForm::Prologue { .. })) && bare.is_on_demand(),
        "{}",
        describe(bare)
    );
    assert!(!find(&binary, "other").is_on_demand());
}

// The symbol has the resolver's address; a filter means the functions that it chooses.
#[test]
fn ifunc_name_selects_all_implementations() {
    let source = r#"
        __attribute__((noinline)) static int fast(int a) { return a * 7 + 2; }
        __attribute__((noinline)) static int slow(int a) { return a / 7 + 2; }
        extern char **environ;
        static int (*resolve(void))(int) { return environ ? fast : slow; }
        int picked(int) __attribute__((ifunc("resolve")));
        int also(int) __attribute__((ifunc("resolve")));
        int main(int argc, char **argv) { return picked(argc) + also(argc); }
    "#;
    for flags in ["-O2 -fPIE -pie", "-O2 -no-pie -fno-pie", "-O0", "-O2 -fPIC -shared", "-O2 -static"] {
        let built = build(&format!("gcc {flags}"), "c", source);
        // A static C library has more resolvers, in tables whose address is not taken.
        let binary = calltap_sites::read(&built.data(), "fixture").expect("a program");
        for name in ["fast", "slow"] {
            assert_eq!(find(&binary, name).aliases, ["also", "picked"], "{flags}");
        }
        assert_eq!(find(&binary, "resolve").aliases, [""; 0], "{flags}");
    }
    let built = build("gcc -O2 -fPIC -shared -s", "c", source);
    let binary = calltap_sites::read(&built.data(), "fixture").expect("a library");
    let resolver = find(&binary, "also.resolver");
    assert!(
        binary.resolvers.iter().any(|known| known.address == resolver.address && known.choices.len() == 2)
    );
    assert_eq!(binary.functions.iter().filter(|function| function.aliases == ["also", "picked"]).count(), 2);
}

#[test]
fn inlined_functions_are_listed() {
    let source = r#"
        static inline __attribute__((always_inline)) int nowhere(int a) { return a * 3 + 1; }
        __attribute__((noinline)) int never(int a) { return nowhere(a) - 1; }
        inline __attribute__((always_inline)) int partly(int a) { return a ^ 0x55; }
        int (*pointer)(int) = partly;
        extern int partly(int);
        int main(int argc, char **argv) { return nowhere(argc) + partly(argc) + never(argc) + pointer(argc); }
    "#;
    for flags in ["-g", "-g -gz=zlib", "-gdwarf-4", "-g -fno-pie -no-pie"] {
        let built = build(&format!("gcc -O2 {flags}"), "c", source);
        let found = inlined(&built.data()).expect("debugging information");
        let told: Vec<_> =
            found.iter().map(|found| (found.name.as_str(), found.places, found.remains)).collect();
        assert_eq!(told, [("nowhere", 2, false), ("partly", 1, true)], "{flags}");
    }
    assert_eq!(inlined(&build("gcc -O2", "c", source).data()), None);
}
