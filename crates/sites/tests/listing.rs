//! Tests of the listed functions, their names, and the properties of a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Command;

use crate::support::{Built, C, build, check, check_binary, describe, find, have};
use calltap_sites::{
    Function, Reason, SiteKind, file_may_have_sites, find_prologues, load, may_have_sites, read,
};

const FIVE: &str = "-O2 -fpatchable-function-entry=5";

#[test]
fn cold_parts_are_listed_and_never_traced() {
    let source = r#"
        __attribute__((cold, noreturn)) void fail(int);
        int other(int);
        int risky(int a) { int b = other(a); if (b < 0) fail(a); return a * b; }
        void fail(int a) { for (;;) *(volatile int *)0 = a; }
        int other(int a) { return a - 3; }
    "#;
    let binary = check(
        &format!("gcc {FIVE} -fPIC -shared"),
        "c",
        source,
        "risky patchable entry+0 9090909090
         risky.cold none (cold part of risky, not a function)",
    );
    assert_eq!(find(&binary, "risky.cold").kind(), SiteKind::None);
    // Without symbols, a frame that is already set up identifies a part. A part entered before that
    // looks like a function.
    let built = build(&format!("gcc {FIVE} -fPIC -shared"), "c", source);
    let cold = find(&built.read(), "risky.cold").address;
    let stripped = built.tool("strip").read();
    let part = stripped.functions.iter().find(|function| function.address == cold).unwrap();
    assert_eq!(describe(part), "none (cold part of a function, not a function)");
}

#[test]
fn non_functions_are_not_listed() {
    // A data symbol in the code's segment, and a signal trampoline, whose frame begins one byte
    // early.
    let source = r#"
        __asm__(".section .rodata; .type data, @function; data: .quad 0; .size data, 8; .previous");
        __asm__(".text; .cfi_startproc; .cfi_signal_frame; nop; trampoline: ret; .cfi_endproc");
        int main(void) { return 0; }
    "#;
    let command = format!("gcc {FIVE} -fno-pie -no-pie -Wl,-z,noseparate-code");
    let binary = check(&command, "c", source, "main patchable entry+0 9090909090");
    assert!(binary.functions.iter().all(|function| function.name != "data"));
    let unnamed: Vec<_> = binary.functions.iter().filter(|f| f.name.starts_with("fixture+0x")).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn the_beginning_of_a_stack_is_no_function() {
    // As behind the system call of glibc's clone3: without a return address, and without a symbol.
    let source = r#"
        __asm__(".text; .cfi_startproc; .cfi_undefined rip; xor %ebp, %ebp; and $-16, %rsp; mov %r8, %rdi; call *%rdx; hlt; .cfi_endproc");
        int main(void) { return 0; }
    "#;
    let built = build("gcc -O2", "c", source).tool("strip");
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    let sites: Vec<String> = binary.functions.iter().map(describe).collect();
    assert!(sites.iter().all(|site| !site.contains("31ed4883e4f0")), "{sites:?}");
    assert!(sites.iter().any(|site| site.contains("not a function")), "{sites:?}");
}

#[test]
fn aliases_weak_names_versions_and_resolvers() {
    let source = r#"
        __asm__(".symver versioned_1, versioned@@V1");
        int versioned_1(int a) { return a + 7; }
        int strong(int a) { return a + 1; }
        int weak(int) __attribute__((weak, alias("strong")));
        static int local(int) __attribute__((alias("strong"), used));
        static int fast(int a) { return a + 2; }
        static int (*resolve(void))(int) { return fast; }
        int picked(int) __attribute__((ifunc("resolve")));
    "#;
    let directory = tempfile::tempdir().unwrap();
    let map = directory.path().join("map");
    std::fs::write(&map, "V1 { global: *; };").unwrap();
    let command = format!("gcc {FIVE} -fPIC -shared -Wl,--version-script={}", map.display());
    let binary = check(
        &command,
        "c",
        source,
        "strong patchable entry+0 9090909090
         resolve patchable entry+0 9090909090
         versioned patchable entry+0 9090909090",
    );
    assert_eq!(find(&binary, "strong").aliases, ["local", "weak"]);
    assert_eq!(find(&binary, "resolve").aliases, [""; 0]);
    assert_eq!(find(&binary, "fast").aliases, ["picked"]);
}

#[test]
fn addresses_in_packed_relocations() {
    for (compiler, flags) in [
        ("gcc", "-fPIE -pie -Wl,-z,pack-relative-relocs"),
        ("clang-16", "-fPIE -pie -fuse-ld=lld -Wl,--pack-dyn-relocs=relr"),
    ] {
        if !have(compiler) || (flags.contains("lld") && !have("ld.lld-16")) {
            continue;
        }
        let built = build(&format!("{compiler} {FIVE} {flags}"), "c", C);
        let packed = Command::new("readelf").arg("-SW").arg(&built.path).output().unwrap();
        assert!(String::from_utf8_lossy(&packed.stdout).contains(".relr.dyn"), "{flags}");
        let binary = built.read();
        for name in ["main", "leaf", "mid"] {
            assert_eq!(find(&binary, name).kind(), SiteKind::Patchable, "{compiler} {name}");
        }
        check_binary(compiler, &binary, "");
    }
}

#[test]
fn addresses_only_in_relocations() {
    // GNU ld stores the address in place as well, lld leaves zeros.
    if have("clang-16") && have("ld.lld-16") {
        let expected = "main patchable entry+0 0f1f440008\n leaf patchable entry+0 0f1f440008";
        check(&format!("clang-16 {FIVE} -fPIE -pie -fuse-ld=lld"), "c", C, expected);
        check(&format!("clang-16 {FIVE} -fPIC -shared -fuse-ld=lld"), "c", C, expected);
    }
}

/// Sites of the functions that are not parts, by address.
fn sites(functions: &[Function]) -> BTreeMap<u64, String> {
    let whole = functions.iter().filter(|function| !function.is_part());
    whole.map(|function| (function.address.0, describe(function))).collect()
}

#[test]
fn stripped_files_keep_their_sites() {
    for kind in ["-fPIE -pie", "-fno-pie -no-pie", "-fPIC -shared"] {
        let flags = ["-fpatchable-function-entry=5", "-fpatchable-function-entry=7,5", "-pg", "-pg -mfentry"];
        for flag in flags {
            let built = build(&format!("gcc -O2 {kind} {flag}"), "c", C);
            let before = sites(&built.read().functions);
            let stripped = built.tool("strip").read();
            let after = sites(&stripped.functions);
            let traced: Vec<_> = before.iter().filter(|(_, site)| !site.starts_with("none")).collect();
            assert!(traced.len() >= 3, "{before:?}");
            for (address, site) in traced {
                assert_eq!(after.get(address), Some(site), "{kind} {flag} {address:#x}");
            }
            assert!(stripped.functions.iter().any(|f| f.name == format!("fixture+{:#x}", f.address.0)));
            for function in &stripped.functions {
                assert!(before.contains_key(&function.address.0), "{function:?} was no function before");
            }
        }
    }
}

#[test]
fn local_functions_without_symbols_come_from_unwinding_information() {
    let built = build(&format!("gcc {FIVE}"), "c", C);
    let before = sites(&built.read().functions);
    let after = built.tool("strip --discard-all").read();
    assert_eq!(find(&after, "main").kind(), SiteKind::Patchable);
    assert!(
        before
            .iter()
            .filter(|(_, site)| site.starts_with("patchable"))
            .all(|(address, site)| { sites(&after.functions).get(address) == Some(site) })
    );
}

/// Cuts the section headers off, as sstrip does.
fn without_sections(built: &Built) -> Vec<u8> {
    let mut data = built.data();
    let at = u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize;
    data.truncate(at);
    data[40..48].fill(0);
    data[60..64].fill(0);
    data
}

#[test]
fn without_section_headers_functions_are_still_found() {
    for (compiler, kind) in [
        ("gcc", "-fPIE -pie"),
        ("gcc", "-fno-pie -no-pie"),
        ("gcc", "-fPIC -shared"),
        ("gcc", "-fPIC -shared -Wl,--hash-style=sysv"),
        ("clang-16", "-fPIC -shared -fcf-protection -fuse-ld=lld"),
    ] {
        if !have(compiler) || (kind.contains("lld") && !have("ld.lld-16")) {
            continue;
        }
        let built = build(&format!("{compiler} {FIVE} {kind}"), "c", C);
        let whole = built.read();
        let bytes = without_sections(&built);
        assert!(may_have_sites(&bytes), "{compiler} {kind}: only reading it all can tell");
        let cut = read(&bytes, "fixture").unwrap();
        assert_eq!(
            cut.complaints,
            ["no section headers: only what the loader needs can be found, no trace sites"]
        );
        let addresses = |functions: &[Function]| -> Vec<u64> {
            let own =
                functions.iter().filter(|f| f.kind() == SiteKind::Patchable || f.kind() == SiteKind::None);
            own.filter(|f| matches!(f.reason(), None | Some(Reason::NoRoom))).map(|f| f.address.0).collect()
        };
        let (all, found) = (addresses(&whole.functions), addresses(&cut.functions));
        for name in ["main", "leaf", "mid", "off"] {
            assert!(found.contains(&find(&whole, name).address.0), "{kind} {name}");
        }
        assert!(found.iter().all(|address| all.contains(address)), "{kind}: {:#?}", cut.functions);
        if kind.contains("-shared") {
            assert_eq!(
                describe(find(&cut, "mid")),
                describe(find(&cut, "off")),
                "the export table has names"
            );
        }
        assert_eq!((cut.build_id, cut.needed), (whole.build_id, whole.needed));
    }
}

#[test]
fn a_quick_look_sees_which_files_have_none() {
    for flags in ["", "-s", "-g -static", "-fPIC -shared", "-O0 -fcf-protection"] {
        let built = build(&format!("gcc {flags}"), "c", C);
        assert!(built.read().functions.iter().all(|function| !function.is_traceable()));
        assert!(!may_have_sites(&built.data()), "{flags}");
    }
    // The C library defines mcount for other files.
    let libc = Command::new("gcc").arg("-print-file-name=libc.so.6").output().unwrap();
    let libc = String::from_utf8(libc.stdout).unwrap();
    assert!(!file_may_have_sites(&File::open(libc.trim()).unwrap()));
}

#[test]
fn debugging_information_is_not_loaded() {
    let built = build(&format!("gcc {FIVE} -g"), "c", C);
    let loaded = load(&File::open(&built.path).unwrap()).unwrap();
    let zeros = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 0).count();
    assert!(zeros(&loaded) > zeros(&built.data()) + 100);
    assert_eq!(loaded.len(), built.data().len());
    assert_eq!(read(&loaded, "fixture"), Ok(built.read()));
}

#[test]
fn file_metadata_is_read() {
    let binary = build("gcc -O2 -fPIE -pie -Wl,--build-id=0x0123abcd", "c", C).read();
    assert_eq!(binary.build_id.as_deref(), Some("0123abcd"));
    assert_eq!(binary.interpreter.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
    assert_eq!(binary.needed, ["libc.so.6"]);
    assert!(binary.position_independent && binary.is_program);
    assert_eq!(binary.entry, find(&binary, "_start").address);
    assert_eq!(binary.segments.iter().filter(|segment| segment.executable).count(), 1);
    assert!(binary.segments.iter().all(|segment| !(segment.executable && segment.writable)));

    let binary = build("gcc -O2 -fno-pie -no-pie -Wl,--build-id=none", "c", C).read();
    assert_eq!((binary.build_id, binary.position_independent, binary.is_program), (None, false, true));

    let binary = build("gcc -O2 -fPIC -shared -Wl,-soname,libx.so.1", "c", C).read();
    assert_eq!((binary.interpreter.as_deref(), binary.is_program), (None, false));
    assert_eq!(binary.soname.as_deref(), Some("libx.so.1"));
}

#[test]
fn bytes_that_are_not_as_recorded_are_refused() {
    let built = build(&format!("gcc {FIVE} -fno-pie -no-pie"), "c", C);
    let before = built.read();
    let mut data = built.data();
    let leaf = find(&before, "leaf").address.0;
    let segment = before.segments.iter().find(|segment| segment.executable).unwrap();
    let at = (leaf - segment.address.0 + segment.file_offset) as usize;
    data[at..at + 5].copy_from_slice(&[0xe9, 1, 2, 3, 4]);
    let after = read(&data, "fixture").unwrap();
    let expected = format!("patchable (expected NOPs at {leaf:#x}, found e9 01 02 03 04)");
    assert_eq!(describe(find(&after, "leaf")), expected);

    let built = build("gcc -O2 -fno-pie -no-pie -pg -mfentry -mrecord-mcount -mnop-mcount", "c", C);
    let before = built.read();
    let mut data = built.data();
    let leaf = find(&before, "leaf").address.0;
    let segment = before.segments.iter().find(|segment| segment.executable).unwrap();
    data[(leaf - segment.address.0 + segment.file_offset) as usize] = 0xcc;
    let after = read(&data, "fixture").unwrap();
    let expected =
        format!("mcount_loc (expected a 5- or 6-byte call or NOP at {leaf:#x}, found cc 1f 44 00 00 8d)");
    assert_eq!(describe(find(&after, "leaf")), expected);
}

#[test]
fn a_record_in_front_of_other_code_is_no_function_s() {
    // The record is near enough to main, but a return lies between them.
    let source = r#"
        __asm__(".section .text.startup; stray: nop; ret; .previous\n"
                ".pushsection __patchable_function_entries,\"awo\",@progbits,.text.startup; .quad stray; .popsection");
        int main(void) { return 0; }
    "#;
    let binary = build(&format!("gcc {FIVE} -fno-pie -no-pie"), "c", source).read();
    assert_eq!(describe(find(&binary, "main")), "patchable entry+0 9090909090");
    let [complaint] = &binary.complaints[..] else { panic!("{:?}", binary.complaints) };
    let expected = "records of __patchable_function_entries for no known function: 1, first 0x";
    assert!(complaint.starts_with(expected), "{complaint}");
}

#[test]
fn a_frame_pointer_used_for_other_things_leads_nowhere() {
    let source = r#"
        #define BY_HAND(name, code) __attribute__((naked, no_instrument_function)) void name(void) { __asm__(code); }
        BY_HAND(good, "push %rbp; mov %rsp, %rbp; push %rbx; sub $8, %rsp; call mcount@PLT; leave; ret")
        __asm__("mcount_stub: bnd jmp *mcount@GOTPCREL(%rip)");
        BY_HAND(bound, "push %rbp; mov %rsp, %rbp; call mcount_stub; leave; ret")
        BY_HAND(reused, "push %rbp; mov %rsp, %rbp; xor %ebp, %ebp; call mcount@PLT; pop %rbp; ret")
        BY_HAND(frameless, "sub $8, %rsp; call mcount@PLT; add $8, %rsp; ret")
        BY_HAND(late, "push %rbp; mov %rsp, %rbp; call good; call mcount@PLT; leave; ret")
    "#;
    let reason = "(the prologue before its call to mcount sets up no frame pointer that leads to the return \
                  address: compile with -fpatchable-function-entry=5 or -pg -mfentry)";
    let expected = format!(
        "good mcount after-prologue call
         bound mcount after-prologue call
         reused mcount {reason}
         frameless mcount {reason}
         late none (no room left by the compiler: build with -fpatchable-function-entry=5 (or -pg))"
    );
    check("gcc -O2 -fPIC -shared", "c", source, &expected);
}
