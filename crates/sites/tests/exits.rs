//! Tests of the exits of functions not built for tracing: which are rewritten, and which functions
//! get a return stub.

use crate::support::{build, describe, find};
use crate::unmodified::{check, functions, unwound};
use calltap_sites::{Reason, Returns, find_prologues};

/// Displaced bytes at a function's exits, by their offsets, or why there are none.
fn exits(name: &str, code: &str) -> String {
    exits_among(
        name,
        &[("before", "ret; .skip 15, 0xcc"), (name, code), ("behind", "nop; nop; nop; nop; nop; ret")],
    )
}

fn exits_among(name: &str, all: &[(&str, &str)]) -> String {
    exits_of("gcc -O2 -no-pie", name, all)
}

fn exits_of(compiler: &str, name: &str, all: &[(&str, &str)]) -> String {
    let codes: Vec<String> = all.iter().map(|(_, code)| unwound(code)).collect();
    let all: Vec<(&str, &str)> = all.iter().zip(&codes).map(|((name, _), code)| (*name, &code[..])).collect();
    let built = build(compiler, "c", &functions(&all));
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    let function = find(&binary, name);
    match &function.returns {
        Returns::Stub(reason) => reason.as_ref().map(ToString::to_string).unwrap_or_default(),
        Returns::Exits { at_entry, elsewhere, unrecorded_end } => {
            let mut said = vec![format!("at entry {at_entry:?}")];
            for exit in elsewhere {
                let bytes: String = exit.old.iter().map(|byte| format!("{byte:02x}")).collect();
                said.push(format!("+{} {bytes} {:?}", exit.at.0 - function.address.0, exit.leaves));
            }
            if let Some(Reason::UnseenTailCall { why, .. }) = unrecorded_end {
                said.push(format!("unseen: {why}"));
            }
            said.join("; ")
        }
    }
}

const ENTERS: &str = "push %rbp; mov %rsp, %rbp; push %r15";

// A return stub would not see the return of an asynchronous function of Swift where it expects it.
#[test]
fn a_function_of_swift_that_jumps_to_unknown_code_gets_no_return_stub() {
    const SWIFT: &str = ".pushsection swift5_types, \"a\"; .byte 1; .popsection";
    let jumps =
        ".cfi_startproc; mov (%rdi), %rax; xor %esi, %esi; xor %edx, %edx; jmp *16(%rax); .cfi_endproc";
    let found = exits("jumps", jumps);
    assert!(found.starts_with("it ends with a tail call"), "{found}");
    let found = exits("jumps", &format!("{jumps}; {SWIFT}"));
    assert!(found.contains("unseen: it may end with a jump to an asynchronous function of Swift"), "{found}");
    let ordinary = exits("ordinary", &format!("{ENTERS}; pop %r15; pop %rbp; jmp getenv; {SWIFT}"));
    assert!(ordinary.starts_with("it ends with a tail call"), "{ordinary}");
}

#[test]
fn exit_jump_covers_preceding_instructions_or_padding() {
    let pops = format!("{ENTERS}; inc %edi; pop %r15; pop %rbp; ret");
    assert_eq!(exits("pops", &pops), "at entry []; +6 ffc7415f5dc3 [5]");
    let padded = format!(
        "{ENTERS}; dec %edi; jnz 1f; ret; .skip 4, 0xcc; 1: inc %edi; jz 1b; pop %rbp; pop %r15; ret"
    );
    assert_eq!(exits("padded", &padded), "at entry []; +10 c3cccccccc [0]; +17 74fc5d415fc3 [5]");
    // The exit of a short function is among its first instructions.
    assert_eq!(exits("short", "lea 1(%rdi,%rdi,2), %eax; ret"), "at entry [4]");
    assert_eq!(exits("near", "lea 1(%rdi,%rdi,2), %eax; inc %eax; ret"), "at entry [6]");
}

#[test]
fn a_function_that_ends_with_a_tail_call_gets_a_return_stub() {
    let early = format!("{ENTERS}; pop %r15; pop %rbp; jmp before");
    let perhaps = format!("{ENTERS}; test %edi, %edi; je behind; xor %eax, %eax; pop %r15; pop %rbp; ret");
    let pointer =
        ".cfi_startproc; mov (%rdi), %rax; xor %esi, %esi; xor %edx, %edx; jmp *16(%rax); .cfi_endproc";
    let imported = format!("{ENTERS}; pop %r15; pop %rbp; jmp getenv");
    for code in [&early[..], &perhaps, pointer, &imported] {
        let found = exits("tail", code);
        assert!(found.starts_with("it ends with a tail call (at "), "{code}: {found}");
    }
}

// The called functions would find the return stub: the jump stays, and only a call that returns has
// an end.
#[test]
fn a_tail_call_of_a_function_without_a_return_stub_stays() {
    let both = |jump: &str| {
        format!("{ENTERS}; pop %r15; pop %rbp; inc %edi; jz 1f; {jump}; 1: inc %edi; nop; nop; ret")
    };
    let leaves = |jump: &str| {
        let all = [("leaves", &both(jump)[..]), ("asks", "mov (%rsp), %rax; mov %rax, (%rdi); ret")];
        exits_of("gcc -O2 -no-pie -Wl,--no-as-needed -ldl", "leaves", &all)
    };
    let looked_at = "unseen: it reads its own return address";
    for name in ["asks", "dlsym", "dlopen", "_setjmp"] {
        let found = leaves(&format!("jmp {name}"));
        assert!(found.contains("ffc79090c3 [4]") && found.contains(looked_at), "{name}: {found}");
    }
    assert!(leaves("jmp getenv").starts_with("it ends with a tail call"), "{}", leaves("jmp getenv"));
}

#[test]
fn exits_with_branch_targets_inside_are_not_rewritten() {
    let between = format!("{ENTERS}; dec %edi; jnz 1f; inc %edi; 1: pop %r15; pop %rbp; ret");
    assert!(exits("between", &between).contains("no room for a jump"), "{}", exits("between", &between));
    // The label's address is stored in data, or taken by an instruction.
    let stored = format!(
        "{ENTERS}; .pushsection .data; .balign 8; .quad 1f; .popsection; inc %edi; 1: pop %r15; pop %rbp; ret"
    );
    let taken = format!("{ENTERS}; inc %edi; 1: pop %r15; pop %rbp; ret; lea 1b(%rip), %rax; ret");
    for compiler in
        ["gcc -O2 -no-pie", "gcc -O2 -pie -fPIE", "gcc -O2 -pie -fPIE -Wl,-z,pack-relative-relocs"]
    {
        for code in [&stored, &taken] {
            let found = exits_of(compiler, "holds", &[("holds", code), ("behind", "nop; ret")]);
            assert!(found.contains("no room for a jump"), "{compiler}: {code}: {found}");
        }
    }
    // Older linkers put constants into one segment with the code.
    let constant = stored.replace(".data", ".rodata");
    for layout in ["separate-code", "noseparate-code"] {
        let compiler = format!("gcc -O2 -no-pie -Wl,-z,{layout}");
        let found = exits_of(&compiler, "holds", &[("holds", &constant), ("behind", "nop; ret")]);
        assert!(found.contains("no room for a jump"), "{compiler}: {found}");
    }
    // The depth of the stack shows that this jump stays in the function.
    let stays = "lea -64(%rsp), %rsp; .cfi_adjust_cfa_offset 64; mov %rsi, %rax; push %r12; .cfi_adjust_cfa_offset 8; jmp *(%rax,%rdi,8)";
    let unknown = format!(".cfi_startproc; {stays}; inc %eax; pop %r12; pop %rbx; ret; .cfi_endproc");
    assert!(exits("unknown", &unknown).contains("no room for a jump"), "{}", exits("unknown", &unknown));
    let padded =
        format!(".cfi_startproc; {stays}; inc %eax; pop %r12; pop %rbx; ret; .skip 4, 0xcc; .cfi_endproc");
    assert_eq!(exits("padded", &padded), "at entry []; +18 c3cccccccc [0]");
    // Only a first instruction with room for the whole jump may be displaced.
    let late = unknown.replacen("lea -64(%rsp), %rsp", "push %rbx; nop; nop; nop; nop", 1);
    check("late", &late, "may lead behind its first instruction");
}

#[test]
fn return_stub_is_used_where_control_leaves_by_jump_or_fall_through() {
    let into = format!("{ENTERS}; jmp middle");
    let all =
        [("into", &into[..]), ("other", "push %rax; nop; nop; nop; nop; middle: pop %r15; pop %rbp; ret")];
    assert!(exits_among("into", &all).contains("jumps into another function"));
    let on = format!("{ENTERS}; inc %edi");
    assert!(
        exits_among("on", &[("on", &on), ("behind", "pop %r15; pop %rbp; ret")]).contains("falls through")
    );
}

// These functions would find a return stub instead of their return address; rewritten exits leave
// it in place.
#[test]
fn function_reading_its_return_address_keeps_the_original() {
    assert_eq!(exits("keeps", "mov (%rsp), %rax; mov %rax, (%rdi); ret"), "at entry [7]");
    assert_eq!(exits("takes", "pop %rdx; mov %rdi, %rax; push %rdx; nop; ret"), "at entry [6]");
    let told = ".cfi_startproc; push %rbx; .cfi_adjust_cfa_offset 8; mov %rdi, %rbx; mov 8(%rsp), %rax; dec %edi; jz 1f; inc %edi; 1: \
                pop %rbx; .cfi_adjust_cfa_offset -8; ret; .cfi_endproc";
    check("asks", told, "return address");
    let source =
        functions(&[("keeps", told), ("leads", "xor %esi, %esi; nop; nop; nop; js 1f; jmp keeps; 1: ret")]);
    let built = build("gcc -O2 -no-pie", "c", &source);
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    for name in ["keeps", "leads"] {
        assert!(
            matches!(
                find(&binary, name).reason(),
                Some(Reason::ReadsReturnAddress { .. } | Reason::MovesReturnAddress { .. })
            ),
            "{name}: {:?}",
            find(&binary, name).reason()
        );
    }
}

// Without unwinding information, a return stub is used only if on every path through a function
// only the return uses its return address.
#[test]
fn without_unwinding_information_the_return_address_is_followed() {
    const PROVEN: &[&str] = &[
        "push %rbp; mov %rsp, %rbp; sub $32, %rsp; mov %rdi, -8(%rbp); jz 1f; call behind; 1: leave; ret",
        "push %rbx; lea -24(%rsp), %rsp; mov %rdi, (%rsp); jz 1f; inc %edi; 1: lea 24(%rsp), %rsp; pop %rbx; ret",
        "push %rbp; mov %rsp, %rbp; push %rbx; push %r12; jz 1f; inc %edi; 1: lea -16(%rbp), %rsp; pop %r12; pop %rbx; pop %rbp; ret",
        "push %rbp; mov %rsp, %rbp; sub $64, %rsp; 1: dec %edi; jnz 1b; mov %rbp, %rsp; pop %rbp; jmp 2f; nop; 2: ret",
        "inc %edi; inc %edi; inc %edi; jz behind; jnz 1f; hlt; 1: ret",
        "push %rax; inc %edi; inc %edi; jz 1f; pop %rdx; ret; 1: call behind",
        "inc %edi; inc %edi; inc %edi; jz 1f; jmp *there(%rip); 1: ret",
    ];
    const MOVED: &[&str] = &[
        // Builtin functions of virtual machines do this, to put arguments in between.
        "xor %eax, %eax; inc %eax; jmp 2f; 1: pop %rcx; push %rsi; push %rcx; jmp *%rdi; 2: inc %edi; jmp 1b",
        "push %rbp; mov %rsp, %rbp; sub $32, %rsp; jz 1f; mov 8(%rbp), %rax; 1: leave; ret",
        "push %rbx; inc %edi; inc %edi; inc %edi; jz 1f; mov %rdi, 8(%rsp); 1: pop %rbx; ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; lea (%rsp), %rdi; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; mov %rsp, (%rdi); 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; push %rsp; pop %rdi; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; mov %rdi, %rsp; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; xchg %rdi, %rsp; 1: ret",
        "push %rbp; mov %rsp, %rbp; and $-16, %rsp; jz 1f; push %rax; 1: pop %rdx; pop %rbp; ret",
        "push %rbp; mov %rsp, %rbp; sub $64, %rsp; jz 1f; inc %ebp; 1: leave; ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; push %rax; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; call 2f; 2: pop %rax; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz 1f; add $8, %rsp; 1: ret",
        "push %rax; inc %edi; inc %edi; jz behind; pop %rax; inc %eax; jz 1f; 1: ret",
        // The called function may have more arguments on the stack than this one.
        "inc %edi; inc %edi; inc %edi; jz 1f; jmp *%rax; 1: ret",
        "inc %edi; inc %edi; inc %edi; jz moves; jz 1f; inc %edi; 1: ret",
    ];
    for (codes, is_proven) in [(PROVEN, true), (MOVED, false)] {
        for code in codes {
            // An immediate exit has no room for a jump.
            let code = format!("test %edi, %edi; js 9f; {code}; 9: ret");
            let all = [("asked", &code[..]), ("behind", "nop; ret"), ("moves", MOVED[0])];
            let source = format!("{} __asm__(\".data; there: .quad behind; .text\");", functions(&all));
            let built = build("gcc -O2 -no-pie", "c", &source);
            let mut binary = built.read();
            find_prologues(&built.data(), &mut binary, true).expect("a program");
            let function = find(&binary, "asked");
            let text = describe(function);
            match is_proven {
                true => assert!(matches!(function.returns, Returns::Stub(_)), "{code}: {text}"),
                false => assert!(text.contains("return address"), "{code}: {text}"),
            }
        }
    }
    // Rewritten exits leave the return address alone.
    let leaves = ".p2align 0; xor %eax, %eax; inc %eax; jmp 2f; 1: ret; .skip 4, 0xcc; 2: pop %rcx; push %rcx; xor %eax, %eax; ret";
    assert_eq!(
        exits_among("leaves", &[("leaves", leaves)]),
        "at entry []; +6 c3cccccccc [0]; +11 595131c0c3 [4]"
    );
    // All functions of OpenGL are called like this.
    let hands = ".p2align 0; mov %rdi, %rax; mov (%rax), %rax; jmp *64(%rax); nop; nop; nop; nop";
    let found = exits_among("hands", &[("hands", hands)]);
    assert!(found.starts_with("at entry []; unseen: it may move its return address"), "{found}");
}

// In node, chromium, java and .NET, generated code calls such functions. Older linkers put their
// data into one segment with the code.
#[test]
fn virtual_machines_find_no_return_address_but_their_own() {
    for (text, reason) in [
        ("\"CEntry_Return1_ArgvOnStack\"", "V8 may look up its return address"),
        ("\"gHotSpotVMStructs\"", "HotSpot may look up its return address"),
        ("\"\"; int coreclr_initialize", ".NET may look up its return address"),
        ("\"coreclr_initialize\"", "prologue+0"),
        ("\"CEntry\"", "prologue+0"),
    ] {
        let left = unwound("xor %eax, %eax; inc %eax; jz 1f; inc %eax; 1: ret");
        let whole = unwound("xor %eax, %eax; inc %eax; inc %eax; ret");
        let functions = functions(&[("left", &left), ("whole", &whole), ("behind", "nop; ret")]);
        for layout in ["separate-code", "noseparate-code"] {
            let built = build(
                &format!("gcc -O2 -no-pie -s -rdynamic -Wl,-z,{layout}"),
                "c",
                &format!("const char *mark = {text}; {functions}"),
            );
            let mut binary = built.read();
            find_prologues(&built.data(), &mut binary, false).expect("a program");
            let found = describe(find(&binary, "left"));
            assert!(found.contains(reason), "{text}, {layout}: {found}");
            assert!(describe(find(&binary, "whole")).contains("prologue+0"), "{text}, {layout}");
        }
    }
}
