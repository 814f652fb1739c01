//! Tests of the room that each compiler's tracing switches leave in a function, in every kind of
//! binary.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{C, SLED, build, check, check_binary, describe, find, have, with_sled};
use calltap_sites::{Binary, Exit, Function, Reason, Returns, SiteKind};

const COMPILERS: [&str; 2] = ["gcc", "clang-16"];
const KINDS: [&str; 3] = ["-fPIE -pie", "-fno-pie -no-pie", "-fPIC -shared"];

/// Command lines of the installed compilers, for every kind of binary.
fn commands() -> Vec<(&'static str, String)> {
    let compilers = COMPILERS.into_iter().filter(|compiler| have(compiler));
    compilers.flat_map(|c| KINDS.map(|kind| (c, format!("{c} -O2 {kind}")))).collect()
}

const OFF: &str = "off none (no room left by the compiler: build with -fpatchable-function-entry=5 (or -pg))";

#[test]
fn five_nops_at_the_entry() {
    for (compiler, command) in commands() {
        // gcc writes five NOPs, clang one.
        let nops = if compiler == "gcc" { "9090909090" } else { "0f1f440008" };
        let expected = format!(
            "main patchable entry+0 {nops}
             leaf patchable entry+0 {nops}
             mid patchable entry+0 {nops}
             {OFF}"
        );
        check(&format!("{command} -fpatchable-function-entry=5"), "c", C, &expected);
    }
}

#[test]
fn nops_follow_endbr64() {
    for (compiler, command) in commands() {
        let nops = if compiler == "gcc" { "9090909090" } else { "0f1f440008" };
        // leaf is called directly only and needs no endbr64.
        let expected = format!(
            "main patchable entry+4 {nops}
             leaf patchable entry+0 {nops}
             mid patchable entry+4 {nops}
             {OFF}"
        );
        check(&format!("{command} -fpatchable-function-entry=5 -fcf-protection"), "c", C, &expected);
    }
}

#[test]
fn more_nops_than_needed_are_cut_between_instructions() {
    for (compiler, command) in commands() {
        // clang's first NOP alone has 15 bytes.
        let nops = if compiler == "gcc" { "9090909090" } else { "66666666662e660f1f840000020000" };
        let expected = format!("main patchable entry+0 {nops}\n mid patchable entry+0 {nops}\n {OFF}");
        check(&format!("{command} -fpatchable-function-entry=16"), "c", C, &expected);
    }
}

#[test]
fn nops_in_front_do_not_matter_with_five_at_the_entry() {
    for (compiler, command) in commands() {
        let nops = if compiler == "gcc" { "9090909090" } else { "0f1f440008" };
        let expected = format!("main patchable entry+0 {nops}\n leaf patchable entry+0 {nops}\n {OFF}");
        check(&format!("{command} -fpatchable-function-entry=7,2"), "c", C, &expected);
    }
}

#[test]
fn two_nops_at_the_entry_and_five_in_front() {
    for (compiler, command) in commands() {
        let nops = if compiler == "gcc" { "9090" } else { "6690" };
        let flags = "-fpatchable-function-entry=7,5";
        let expected = format!("main patchable prefix-5 9090909090 entry+0 {nops}\n {OFF}");
        check(&format!("{command} {flags}"), "c", C, &expected);
        let expected = format!("main patchable prefix-5 9090909090 entry+4 {nops}\n {OFF}");
        check(&format!("{command} {flags} -fcf-protection"), "c", C, &expected);
    }
}

#[test]
fn insufficient_room_is_reported_with_advice() {
    for (_, command) in commands() {
        let reason = "5 NOP bytes before the function but none at its entry: \
                      compile with -fpatchable-function-entry=5";
        let expected = format!("main patchable ({reason})\n leaf patchable ({reason})\n {OFF}");
        check(&format!("{command} -fpatchable-function-entry=5,5"), "c", C, &expected);
        let reason =
            "only 3 NOP bytes at its entry, a jump needs 5: compile with -fpatchable-function-entry=5";
        let expected = format!("main patchable ({reason})\n {OFF}");
        check(&format!("{command} -fpatchable-function-entry=3"), "c", C, &expected);
    }
    if have("clang-16") {
        let reason = "its 3 NOP bytes at the entry do not begin with 2 of their own for a short jump: \
                      compile with -fpatchable-function-entry=5";
        let expected = format!("main patchable ({reason})");
        check("clang-16 -O2 -fpatchable-function-entry=8,5", "c", C, &expected);
    }
    let reason = "only 4 NOP bytes before the function and 3 at its entry, a jump needs 5: \
                  compile with -fpatchable-function-entry=5";
    check("gcc -O2 -fpatchable-function-entry=7,4", "c", C, &format!("main patchable ({reason})"));
}

/// How a profiling function is called: gcc calls through the GOT in position-independent code, and
/// all others through a stub.
fn call(compiler: &str, command: &str) -> &'static str {
    if compiler == "gcc" && !command.contains("-no-pie") { "call-got" } else { "call" }
}

#[test]
fn calls_to_mcount_after_the_prologue() {
    for (compiler, command) in commands() {
        let call = call(compiler, &command);
        let expected =
            ["main", "leaf", "mid", "off"].map(|name| format!("{name} mcount after-prologue {call}"));
        check(&format!("{command} -pg"), "c", C, &expected.join("\n"));
        check(&format!("{command} -pg -fcf-protection"), "c", C, &expected.join("\n"));
        let stubs = "-pg -fcf-protection -Wl,-z,ibtplt -Wl,-z,lazy";
        check(&format!("{command} {stubs}"), "c", C, &expected.join("\n"));
    }
}

#[test]
fn calls_to_fentry_before_the_prologue() {
    for (compiler, command) in commands() {
        let call = call(compiler, &command);
        let expected = ["main", "leaf", "mid", "off"].map(|name| format!("{name} fentry entry+0 {call}"));
        check(&format!("{command} -pg -mfentry"), "c", C, &expected.join("\n"));
        let expected =
            [("main", 4), ("leaf", 0)].map(|(name, at)| format!("{name} fentry entry+{at} {call}"));
        check(&format!("{command} -pg -mfentry -fcf-protection"), "c", C, &expected.join("\n"));
    }
}

#[test]
fn profiling_in_static_programs() {
    for compiler in COMPILERS.into_iter().filter(|compiler| have(compiler)) {
        // The linker relaxes gcc's calls, as it knows mcount's address.
        let call = if compiler == "gcc" { "addr32-call" } else { "call" };
        for kind in ["-static", "-fPIE -static-pie"] {
            let command = format!("{compiler} -O2 {kind} -pg");
            let expected = format!("main mcount after-prologue {call}\n off mcount after-prologue {call}");
            let binary = check(&command, "c", C, &expected);
            assert_eq!((binary.interpreter, binary.is_program), (None, true), "{command}");
            let expected = format!("main fentry entry+0 {call}\n off fentry entry+0 {call}");
            check(&format!("{command} -mfentry"), "c", C, &expected);
        }
        if compiler == "gcc" {
            let expected = "main mcount after-prologue call-got";
            check("gcc -O2 -static -pg -Wl,--no-relax", "c", C, expected);
            check("gcc -O2 -fPIE -static-pie -pg -Wl,--no-relax", "c", C, expected);
        }
    }
}

#[test]
fn calls_that_the_linker_fills_up_with_a_nop() {
    // mold fills calls up like this, and ld on request.
    for static_ in ["-static", "-static-pie"] {
        let command = format!("gcc -O2 -fPIE {static_} -pg -Wl,-z,call-nop=prefix-0x90");
        check(&command, "c", C, "main mcount after-prologue call\n leaf mcount after-prologue call");
        check(&format!("{command} -mfentry"), "c", C, "main fentry entry+1 call\n leaf fentry entry+1 call");
    }
    let command = "gcc -O2 -fPIE -static -pg -Wl,-z,call-nop=prefix-0x90 -mrecord-mcount";
    check(command, "c", C, "main mcount_loc after-prologue call\n leaf mcount_loc after-prologue call");
    check(
        &format!("{command} -mfentry"),
        "c",
        C,
        "main mcount_loc entry+1 call\n leaf mcount_loc entry+1 call",
    );
}

#[test]
fn recorded_calls_and_nops() {
    check(
        "gcc -O2 -fno-pie -no-pie -pg -mfentry -mnop-mcount -mrecord-mcount",
        "c",
        C,
        "main mcount_loc entry+0 0f1f440000
         leaf mcount_loc entry+0 0f1f440000
         off mcount_loc entry+0 0f1f440000",
    );
    check(
        "gcc -O2 -fno-pie -no-pie -pg -mfentry -mnop-mcount -mrecord-mcount -fcf-protection",
        "c",
        C,
        "main mcount_loc entry+4 0f1f440000\n leaf mcount_loc entry+0 0f1f440000",
    );
    let entry = "main mcount_loc entry+0 call-got\n leaf mcount_loc entry+0 call-got";
    check("gcc -O2 -fPIE -pie -pg -mfentry -mrecord-mcount", "c", C, entry);
    check("gcc -O2 -fPIC -shared -pg -mfentry -mrecord-mcount", "c", C, entry);
    let after = "main mcount_loc after-prologue call-got\n leaf mcount_loc after-prologue call-got";
    check("gcc -O2 -fPIE -pie -pg -mrecord-mcount", "c", C, after);
    check(
        "gcc -O2 -fno-pie -no-pie -pg -mnop-mcount -mrecord-mcount",
        "c",
        C,
        "main mcount_loc after-prologue 0f1f440000",
    );
}

#[test]
fn a_copy_of_the_return_address_is_no_return_address() {
    // With stack arguments and an aligned local, gcc realigns the stack first and pushes a copy
    // above the frame.
    let source = r#"
        #include <alloca.h>
        void use(void *, void *);
        int aligned(int a, int b, int c, int d, int e, int f, int g, int h) {
            int array[64] __attribute__((aligned(64)));
            use(array, alloca(g));
            return h + array[1];
        }
        int plain(int a) { char array[64]; use(array, array); return array[a]; }
        void use(void *a, void *b) {}
    "#;
    let binary = check(
        "gcc -O2 -fPIC -shared -pg",
        "c",
        source,
        "aligned mcount (the prologue before its call to mcount sets up no frame pointer that leads to the return \
         address: compile with -fpatchable-function-entry=5 or -pg -mfentry)
         plain mcount after-prologue call-got",
    );
    assert_eq!(find(&binary, "aligned").form(), None);
    check("gcc -O2 -fPIC -shared -pg -mfentry", "c", source, "aligned fentry entry+0 call-got");
}

/// Displaced bytes at a function's exits, with their offsets.
fn exits(function: &Function) -> String {
    let (at_entry, elsewhere) = match &function.returns {
        Returns::Exits { at_entry, elsewhere, .. } => (at_entry, elsewhere),
        Returns::Stub(reason) => return reason.as_ref().map(Reason::to_string).unwrap_or_default(),
    };
    assert!(at_entry.is_empty() && elsewhere.iter().all(|exit| exit.is_sled && exit.leaves == [0]));
    let exit = |exit: &Exit| {
        assert_eq!((exit.old[0], exit.old.len()), (0xC3, 11));
        format!("+{} ret", exit.at.0 - function.address.0)
    };
    elsewhere.iter().map(exit).collect::<Vec<_>>().join(", ")
}

const XRAY: &str = "-fxray-instrument -fxray-instruction-threshold=1 -fnoxray-link-deps";

/// Compares the sleds with those that LLVM's own reader finds.
fn compare_sleds(path: &Path, binary: &Binary) {
    if !have("llvm-xray-16") {
        return;
    }
    let output = Command::new("llvm-xray-16").arg("extract").arg(path).output().expect("just found");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |line: &str, name: &str| {
        line.split_once(name)
            .and_then(|(_, rest)| rest.split([',', ' ']).next())
            .unwrap_or_default()
            .to_owned()
    };
    let number = |line: &str, name| u64::from_str_radix(field(line, name).trim_start_matches("0x"), 16);
    let sled = |line: &str| {
        let is_entry = field(line, "kind: ") == "function-enter";
        Some((number(line, "function: ").ok()?, number(line, "address: ").ok()?, is_entry))
    };
    let (mut found, mut stubs) = (Vec::new(), BTreeSet::new());
    for function in binary.functions.iter().filter(|function| function.kind() == SiteKind::Xray) {
        // A function that ends with a tail call has a return stub, so only its entry is compared.
        let elsewhere = match &function.returns {
            Returns::Exits { elsewhere, .. } => &elsewhere[..],
            Returns::Stub(reason) => {
                assert!(
                    matches!(reason, Some(Reason::TailCall { .. } | Reason::SledTailCall { .. })),
                    "{function:?}"
                );
                stubs.insert(function.address.0);
                &[]
            }
        };
        let entry = function.form().into_iter().map(|form| (form.address().0, true));
        let all = entry.chain(elsewhere.iter().map(|exit| (exit.at.0, false)));
        found.extend(all.map(|(at, is_entry)| (function.address.0, at, is_entry)));
    }
    let is_wanted = |(function, _, is_entry): &(u64, u64, bool)| *is_entry || !stubs.contains(function);
    let mut expected: Vec<_> = text.lines().filter_map(sled).filter(is_wanted).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{}", path.display());
    assert!(!found.is_empty());
}

#[test]
fn sleds_of_xray_at_entries_and_exits() {
    let source = r#"
        extern int printf(const char *, ...);
        __attribute__((noinline)) int leaf(int a) { if (a & 1) return a * 3; printf("%d", a); return a + 1; }
        __attribute__((noinline)) int leads(int a) { if (a > 2) return leaf(a); return 3; }
        __attribute__((noinline, xray_never_instrument)) int off(int a) { return leaf(a) - 1; }
        __attribute__((noinline)) void never(int a) { for (;;) printf("%d", a); }
        int main(int argc, char **argv) { if (argc > 9) never(off(3)); return leaf(argc) + leads(argc); }
    "#;
    if !have("clang-16") {
        return;
    }
    let sled = "eb09660f1f840000020000";
    for kind in
        KINDS.into_iter().chain(["-static", "-fPIE -pie -fuse-ld=lld -Wl,--gc-sections -ffunction-sections"])
    {
        for (flags, at) in [("", 0), ("-fcf-protection", 4)] {
            let command = format!("clang-16 -O2 {kind} {flags} {XRAY}");
            let expected = format!("main xray entry+{at} {sled}\n leaf xray entry+{at} {sled}\n {OFF}");
            let built = build(&command, "c", source);
            let binary = built.read();
            check_binary(&command, &binary, &expected);
            compare_sleds(&built.path, &binary);
            let found = |name| exits(find(&binary, name)).replace(|c: char| c.is_numeric() || c == '+', "");
            assert!(found("leaf").trim_start_matches(" ret,") == " ret", "{command}: {}", found("leaf"));
            assert!(found("leads").contains("it ends with a tail call"), "{command}: {}", found("leads"));
            assert_eq!(found("never"), "", "{command}");
        }
    }
    // Functions may have odd addresses; sleds have even ones.
    let small_code = source.replace("if (a > 2) return leaf(a); return 3;", "return leaf(a) + 3;");
    for flags in ["", "-fcf-protection"] {
        let built = build(&format!("clang-16 -Os {flags} {XRAY}"), "c", &small_code);
        let binary = built.read();
        let behind = |function: &Function| function.form().map(|form| form.address().0 & 1);
        let odd = binary.functions.iter().filter(|f| f.kind() == SiteKind::Xray && f.address.0 & 1 == 1);
        assert!(odd.clone().count() > 0 && odd.clone().all(|function| behind(function) == Some(0)));
        compare_sleds(&built.path, &binary);
    }
    // Small functions have no sleds, unless a flag requests them.
    let small = "-fxray-instrument -fnoxray-link-deps";
    check(&format!("clang-16 -O2 {small}"), "c", C, OFF);
}

#[test]
fn invalid_xray_exits_are_ignored() {
    let read = |exit: &str, kind: u8, version: u8| {
        let source = format!("{} int main(void) {{ return 0; }}", with_sled(exit, kind, version));
        let binary = build("gcc -O2 -no-pie", "c", &source).read();
        assert_eq!(describe(find(&binary, "perhaps")), "xray entry+0 eb09660f1f840000020000");
        (exits(find(&binary, "perhaps")), binary.complaints)
    };
    // Some versions of LLVM put the sled of a tail call in front of a conditional jump.
    for jump in ["jmp main", "jmp *%rsi", "je main"] {
        let (found, complaints) = read(&format!("{SLED}; {jump}"), 2, 2);
        assert!(found.contains("it ends with a tail call") && complaints.is_empty(), "{jump}: {found}");
    }
    let (short, _) = read(".byte 0xeb,3,0x66,0x0f,0x1f", 2, 2);
    assert!(short.contains("expected XRay's sled"), "{short}");
    let (bare, _) = read("ret", 1, 2);
    assert!(bare.contains("expected a return and a NOP"), "{bare}");
    // The program's own events, and addresses as older compilers wrote them.
    assert_eq!(read("nop", 4, 2), (String::new(), vec![]));
    let (_, complaints) = read("nop", 1, 1);
    assert_eq!(complaints, ["records of xray_instr_map in another version than 2: 1"]);
}

const RUST: &str = r#"
    #[unsafe(no_mangle)] #[inline(never)] pub extern "C" fn leaf(a: u64) -> u64 { a.wrapping_mul(3) }
    #[unsafe(no_mangle)] #[inline(never)]
    pub extern "C" fn many(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
        leaf(a) ^ leaf(b) ^ leaf(c) ^ leaf(d) ^ leaf(e) ^ leaf(f)
    }
    fn main() { println!("{}", many(1, 2, 3, 4, 5, std::env::args().count() as u64)); }
"#;

#[test]
fn rust_programs() {
    if !have("rustc") {
        return;
    }
    let expected = "leaf patchable entry+0 0f1f440008\n many patchable entry+0 0f1f440008";
    // The default linker is lld.
    let gnu_ld = "-O -Clink-self-contained=-linker -Zunstable-options -Clink-arg=-fuse-ld=bfd";
    for options in ["-O", "-Copt-level=0", "-O -Crelocation-model=static", gnu_ld] {
        check(&format!("rustc {options} -Zpatchable-function-entry=5"), "rs", RUST, expected);
    }
    let expected = "leaf patchable prefix-5 9090909090 entry+0 6690";
    check("rustc -O -Zpatchable-function-entry=7,5", "rs", RUST, expected);
    let sled = "eb09660f1f840000020000";
    let expected = format!("leaf xray entry+0 {sled}\n many xray entry+0 {sled}");
    for options in ["-O", "-Copt-level=0", gnu_ld] {
        let built = build(&format!("rustc {options} -Zinstrument-xray=always"), "rs", RUST);
        check_binary(options, &built.read(), &expected);
        compare_sleds(&built.path, &built.read());
    }
    let expected = "leaf mcount after-prologue call\n many mcount after-prologue call";
    for opt in ["-O", "-Copt-level=0"] {
        let command = format!("rustc {opt} -Zinstrument-mcount");
        let binary = check(&command, "rs", RUST, expected);
        let instrumented = binary.functions.iter().filter(|function| function.kind() == SiteKind::Mcount);
        for function in instrumented {
            assert_eq!(describe(function), "mcount after-prologue call", "{function:?}");
        }
    }
}

#[test]
fn cpp_templates_in_several_sections() {
    let source = r#"
        #include <map>
        #include <string>
        template <typename T> __attribute__((noinline)) T twice(T a) { return a + a; }
        int main(int argc, char **) {
            std::map<std::string, int> map;
            map["a"] = twice(argc);
            return map.at(twice(std::string("b")));
        }
    "#;
    for (compiler, nops) in [("g++", "9090909090"), ("clang++-16", "0f1f440008")] {
        if !have(compiler) {
            continue;
        }
        let command =
            format!("{compiler} -O2 -ffunction-sections -fpatchable-function-entry=5 -Wl,--gc-sections");
        let expected = format!("_Z5twiceIiET_S0_ patchable entry+0 {nops}\n main patchable entry+0 {nops}");
        let binary = check(&command, "cc", source, &expected);
        let patchable = binary.functions.iter().filter(|f| f.kind() == SiteKind::Patchable).count();
        assert!(patchable > 5, "only {patchable} functions of the templates were found");
    }
}

#[test]
fn several_record_sections_count_together() {
    let source = r#"
        __attribute__((naked, patchable_function_entry(0))) void by_hand(void) {
            __asm__("1: nop; nop; nop; nop; nop; ret\n"
                    ".pushsection by_hand_records,\"a\"; .quad 1b, 0; .popsection");
        }
        int main(void) { by_hand(); return 0; }
    "#;
    let command = "gcc -O2 -fno-pie -no-pie -fpatchable-function-entry=5";
    let built = build(command, "c", source);
    let expected = "main patchable entry+0 9090909090
        by_hand none (no room left by the compiler: build with -fpatchable-function-entry=5 (or -pg))";
    check_binary(command, &built.read(), expected);
    let renamed = built.tool("objcopy --rename-section by_hand_records=__patchable_function_entries");
    let expected = "main patchable entry+0 9090909090\n by_hand patchable entry+0 9090909090";
    check_binary("two sections", &renamed.read(), expected);
}
