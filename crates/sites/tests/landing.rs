//! Tests of indirect jumps and cold parts: jump targets are never overwritten and are no exits, and
//! parts are no functions.

use crate::support::{self, build, describe, find};
use calltap_sites::{Binary, Function, Reason, Returns, find_prologues};

fn read(compiler: &str, source: &str) -> Binary {
    let built = build(compiler, "c", source);
    let data = built.data();
    let mut binary = calltap_sites::read(&data, "fixture").expect("a program");
    find_prologues(&data, &mut binary, false).expect("a program");
    binary
}

/// Describes entry and exits of a function by their offsets, or why it has none.
fn sites(function: &Function) -> String {
    let returns = match &function.returns {
        Returns::Stub(reason) => reason.as_ref().map(ToString::to_string).unwrap_or_default(),
        Returns::Exits { at_entry, elsewhere, .. } => {
            let elsewhere = elsewhere.iter().map(|exit| exit.at.0 - function.address.0);
            format!("exits at entry {at_entry:?}, elsewhere {:?}", elsewhere.collect::<Vec<_>>())
        }
    };
    format!("{}; {returns}", describe(function))
}

/// Checks the function `f` of this assembly, with a function behind it.
fn check(code: &str, expected: &str) {
    let code = code.replace("lea 9b", "lea .Lt").replace("9: ", ".Lt: ").replace("9b", ".Lt");
    let source = format!(
        "__asm__(R\"(.text\n.globl f\n.type f, @function\nf: .cfi_startproc\n{code}\n.cfi_endproc\n.size f, . - f\n\
         .globl g\n.type g, @function\ng: .cfi_startproc\nxor %eax, %eax; nop; nop; nop; nop; ret\n.cfi_endproc\n.size g, . - g)\"); \
         int main(void) {{ return 0; }}"
    );
    for compiler in ["gcc -O2 -pie -fPIE", "gcc -O2 -no-pie"] {
        let binary = read(compiler, &source);
        let found = sites(find(&binary, "f"));
        assert!(found.contains(expected), "{compiler}: {code}: {found}, not {expected}");
    }
}

/// Builds code for `f` that switches over a table of distances from its beginning.
fn switch(table: &str, cases: &str) -> String {
    format!(
        "mov %edi, %edi; lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; add %rdx, %rcx; jmp *%rcx; {cases}; \
         .pushsection .rodata; .balign 4; 9: .long {table}; .popsection"
    )
}

#[test]
fn a_computed_goto_on_a_bare_stack_is_no_exit() {
    let labels = ".pushsection .data.rel.ro, \"aw\"; .balign 8; .quad 1f, 2f; .popsection; ";
    for jump in
        ["jmp *(%rdi)", "mov (%rdi), %rax; jmp *%rax", "mov (%rdi,%rsi,8), %rcx; mov %rcx, %rax; jmp *%rax"]
    {
        let code = format!(
            "{labels} mov $1, %eax; {jump}; 1: inc %eax; nop; nop; nop; ret; 2: dec %eax; nop; nop; nop; ret"
        );
        check(&code, "unresolved indirect jump");
    }
    // A label whose address an instruction takes.
    check(
        "lea 1f(%rip), %rax; mov %rax, (%rsi); jmp *(%rdi); 1: inc %eax; nop; nop; nop; ret",
        "unresolved indirect jump",
    );
    // Without a label, the jump can only leave the function.
    check("mov (%rdi), %rax; xor %esi, %esi; xor %edx, %edx; jmp *%rax", "ends with a tail call");
}

#[test]
fn holes_do_not_end_a_table() {
    // Case 2 falls into case 1, behind an exit that needs the bytes of both.
    let cases = "1: mov $100, %eax; nop; ret; 3: inc %eax; 2: add $1, %eax; ret";
    for hole in [".Lend", "g", "f - 0x1000", "9b"] {
        let table = format!("1b - 9b, {hole} - 9b, 2b - 9b, 3b - 9b");
        let cases = format!("{cases}; .Lend:");
        check(
            &switch(&table.replace("f - 0x1000 - 9b", "f - 9b - 0x1000"), &cases),
            "no room for a jump at its exit",
        );
    }
    let all = switch("1b - 9b, 2b - 9b", "1: mov $100, %eax; nop; ret; 2: mov $200, %eax; nop; ret");
    check(&all, "exits at entry []");
}

#[test]
fn jump_tables_are_found_in_every_access_form() {
    const EARLY: &str = "xor %eax, %eax; 1: inc %eax; nop; nop; nop; nop; ";
    const BEHIND: &str = "2: nop; nop; nop; nop; ret; ";
    let data = "; .pushsection .rodata; .balign 4; 9: .long 1b - 9b, 2b - 9b; .popsection";
    let entered = "targets its byte 2";
    for read in [
        // Variants: loaded behind the base, added the other way round, moved to another register,
        // unoptimized.
        "lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; add %rcx, %rdx; jmp *%rdx; ",
        "lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; lea (%rdx,%rcx), %rcx; jmp *%rcx; ",
        "lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; add %rdx, %rcx; mov %rcx, %rax; jmp *%rax; ",
        "lea 0(,%rdi,4), %rdx; lea 9b(%rip), %rax; mov (%rdx,%rax), %eax; cltq; lea 9b(%rip), %rdx; add %rdx, %rax; jmp *%rax; ",
    ] {
        check(&format!("{EARLY}{read}{BEHIND}{data}"), entered);
    }
    // In front of a loop, in .text, and counted from a label.
    let far = "lea 9b(%rip), %rdx; test %edi, %edi; jz 3f; call g; 3: movslq (%rdx,%rdi,4), %rcx; add %rdx, %rcx; jmp *%rcx; ";
    check(&format!("{EARLY}{far}{BEHIND}{data}"), entered);
    let own = "lea 9b(%rip), %rdx; movslq (%rdx,%rdi,4), %rcx; add %rdx, %rcx; jmp *%rcx; 9: .long 1b - 9b, 2f - 9b; ";
    check(&format!("{EARLY}{own}{BEHIND}"), entered);
    let label =
        "lea 9b(%rip), %rsi; lea 2f(%rip), %rdx; movslq (%rsi,%rdi,4), %rcx; add %rdx, %rcx; jmp *%rcx; ";
    check(
        &format!(
            "{EARLY}{label}{BEHIND}; .pushsection .rodata; .balign 4; 9: .long 1b - 2b, 2b - 2b; .popsection"
        ),
        entered,
    );
}

// Distances of 8 and 16 bits, counted from a label or from the table, added or subtracted: no place
// to which they could lead is overwritten.
#[test]
fn unresolved_jump_limits_site_to_first_instruction() {
    const BASES: &str = "lea 9b(%rip), %rsi; lea 2f(%rip), %rdx; ";
    const ENDS: &str = "; jmp *%rdx; 1: inc %eax; 2: nop; nop; nop; nop; ret; ";
    let reads = [
        ("movswq (%rsi,%rdi,2), %rcx; add %rcx, %rdx", ".short 1b - 2b, 0"),
        ("movzwl (%rsi,%rdi,2), %ecx; lea (%rdx,%rcx), %rdx", ".short 0, 1"),
        ("movsbq (%rsi,%rdi), %rcx; add %rcx, %rdx", ".byte 1b - 2b, 0"),
        ("movzbl (%rsi,%rdi), %ecx; lea (%rdx,%rcx,2), %rdx", ".byte 0, 1"),
        ("movzbl (%rsi,%rdi), %ecx; shl $1, %ecx; movslq %ecx, %rcx; add %rcx, %rdx", ".byte 0, 1"),
        ("movzbl (%rsi,%rdi), %ecx; sub %rcx, %rdx", ".byte 0, 2b - 1b"),
        ("movzbl (%rsi,%rdi), %ecx; test %edi, %edi; jz 3f; neg %rcx; 3: add %rcx, %rdx", ".byte 0, 1"),
        ("xor %ecx, %ecx; mov (%rsi,%rdi), %cl; add %rcx, %rdx", ".byte 0, 1"),
    ];
    for (read, table) in reads {
        let data = format!(".pushsection .rodata; 9: {table}; .popsection");
        let narrow = format!("{BASES}{read}{ENDS}{data}");
        check(&format!("xor %eax, %eax; {narrow}"), "may lead behind its first instruction");
        check(&format!("mov $0, %eax; {narrow}"), "prologue+0 b800000000; unresolved indirect jump");
    }
    // In .text, with distances from the table itself.
    let own = "lea 9b(%rip), %rdx; movzbl (%rdx,%rdi), %ecx; sub %rcx, %rdx; jmp *%rdx; 1: inc %eax; 2: nop; nop; nop; nop; ret; 9: .byte 9b - 1b, 9b - 2b; ";
    check(&format!("xor %eax, %eax; {own}"), "may lead behind its first instruction");
}

// clang without optimization keeps the target of every computed `goto` on the stack, and one jump
// takes all of them from there.
#[test]
fn jump_to_computed_target_in_memory_is_unresolved() {
    const LABEL: &str =
        "push %rbp; mov %rsp, %rbp; movswq (%rdi,%rsi,2), %rcx; lea 1f(%rip), %rax; add %rcx, %rax; ";
    const ENDS: &str = "jmp *%rdx; 1: inc %eax; nop; nop; nop; pop %rbp; ret; ";
    let expected = "may lead behind its first instruction";
    for kept in ["-8(%rbp)", "-16(%rsp)", "(%rdi)", "8(%r12)"] {
        check(&format!("{LABEL}mov %rax, {kept}; jmp 3f; 3: mov {kept}, %rdx; {ENDS}"), expected);
        check(
            &format!("{LABEL}mov %rax, {kept}; jmp 3f; 3: mov {kept}, %rax; mov %rax, %rdx; {ENDS}"),
            expected,
        );
    }
    // Code that only stores and compares the address does not compute another one from it.
    check(
        "mov %rsp, %rbp; lea 1f(%rip), %rax; mov %rax, -8(%rsp); cmp %rax, -16(%rsp); xor %eax, %eax; mov -8(%rsp), %rdx; \
         jmp *%rdx; 1: inc %eax; nop; nop; nop; ret",
        "prologue+0",
    );
    // Without a frame pointer, rbp leads to an object: its method is another function.
    check("mov %rdi, %rbp; lea f(%rip), %rdi; call g; mov 0(%rbp), %rax; jmp *%rax", "ends with a tail call");
    // Without a label there is no base for a target in the function: the jump can only leave.
    check("mov %rdi, -8(%rsp); xor %eax, %eax; mov -8(%rsp), %rdx; jmp *%rdx", "ends with a tail call");
}

#[test]
fn function_with_stack_arguments_gets_no_return_stub() {
    check(
        "mov 8(%rsp), %rax; test %edi, %edi; jz 1f; inc %eax; 1: ret $8",
        "takes its arguments from the stack",
    );
    check("mov 8(%rsp), %rax; mov $1, %ecx; ret $8", "exits at entry []");
}

const COLD: &str = r#"
    #include <stdio.h>
    __attribute__((cold, noinline)) void bad(int x) { fprintf(stderr, "bad %d\n", x); }
    volatile int g;
    __attribute__((noinline)) int f(int x) { g = x; if (__builtin_expect(x == 3, 0)) { bad(x); bad(x + 1); g = 9; return -1; } return x * 2; }
    __attribute__((noinline)) int h(int x) { if (__builtin_expect(x == 3, 0)) { bad(x); g = 7; return f(x + 1); } g = x; return x; }
    int main(void) { int r = 0; for (int i = 0; i < 5; i++) r += f(i) + h(i); printf("%d\n", r); }
"#;

#[test]
fn outlined_code_without_a_name_is_a_part() {
    for compiler in ["gcc -O2", "gcc -O2 -no-pie", "gcc -O3 -fcf-protection"] {
        let named = read(compiler, COLD);
        let parts: Vec<u64> =
            named.functions.iter().filter(|function| function.is_part()).map(|part| part.address.0).collect();
        assert!(parts.len() >= 2, "{compiler}: {:?}", named.functions);
        let stripped = read(&format!("{compiler} -s"), COLD);
        for function in &stripped.functions {
            let is_part = parts.contains(&function.address.0);
            assert_eq!(function.is_part(), is_part, "{compiler}: {}: {}", function.name, sites(function));
            let is_listed = function.is_part()
                && !function.is_traceable()
                && matches!(function.reason(), Some(Reason::ColdPart | Reason::ColdPartOf { .. }));
            assert!(!is_part || is_listed, "{compiler}: {}", sites(function));
        }
    }
    // Blocks with sections of their own: their symbols are not functions.
    if support::have("clang-16") {
        let binary = read("clang-16 -O2 -fbasic-block-sections=all", COLD);
        for function in &binary.functions {
            let is_own = !function.name.starts_with("fixture+");
            assert!(
                is_own || function.is_part() || !function.is_traceable(),
                "{}: {}",
                function.name,
                sites(function)
            );
        }
    }
}

// A label may begin a block with a section and unwinding information of its own: its address looks
// like a function's.
#[test]
fn a_label_at_the_beginning_of_an_outlined_block_is_no_function() {
    if !support::have("clang-16") {
        return;
    }
    let source = "#include <stdio.h>
        __attribute__((noinline)) int f(unsigned u) { static void *const op[] = {&&inc, &&triple, &&end}; void *code[6], **ip = code;
        for (int i = 0; i < 5; i++, u /= 2) code[i] = op[u % 2]; code[5] = op[2]; int s = 0; goto **ip++;
        inc: s += 1; goto **ip++; triple: s *= 3; goto **ip++; end: return s; }
        int main(void) { int r = 0; for (int i = 0; i < 4; i++) r += f(i * 7); printf(\"%d\\n\", r); }";
    for flags in ["", " -s", " -no-pie -fno-pie -s"] {
        let binary = read(&format!("clang-16 -O2 -fbasic-block-sections=all -rdynamic{flags}"), source);
        let f = find(&binary, "f");
        assert!(sites(f).contains("unresolved indirect jump"), "{flags}: {}", sites(f));
        let end = find(&binary, "main").address.0;
        let between = |function: &&Function| (f.address.0 + 1..end).contains(&function.address.0);
        for block in binary.functions.iter().filter(between) {
            assert!(!block.is_traceable(), "{flags}: {}: {}", block.name, sites(block));
        }
    }
}

// Code to which others only jump is a function if it has a name; without one, it may be a part that
// they share.
#[test]
fn shared_jump_target_is_not_an_unnamed_function() {
    let source = "volatile int v; __attribute__((noinline)) static int shared(int x) { v = x; v += x; v *= 3; return x * 7; } \
                  __attribute__((noinline)) int a(int x) { v = 1; return shared(x + 1); } \
                  __attribute__((noinline)) int b(int x) { v = 2; return shared(x + 2); } \
                  int main(int c, char **v) { return a(c) + b(c); }";
    let named = read("gcc -O2 -fno-ipa-cp -rdynamic", source);
    let shared = find(&named, "shared");
    assert!(shared.is_traceable(), "{}", sites(shared));
    let stripped = read("gcc -O2 -fno-ipa-cp -rdynamic -s", source);
    let found =
        stripped.functions.iter().find(|function| function.address == shared.address).expect("a function");
    assert!(!found.is_part() && found.reason() == Some(&Reason::SharedPart), "{}", sites(found));
}
