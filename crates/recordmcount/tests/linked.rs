//! The list of a linked program: it has all calls to mcount, and equals the one of the compiler's
//! own switch.

use crate::support::{self, Bench, C, CPP, TWO, add, calls, have, list};
use std::path::PathBuf;
use std::sync::LazyLock;

const COMPILERS: [&str; 2] = ["gcc", "clang-16"];
/// Linkers of 64-bit programs; each takes `-m elf_i386` for 32-bit ones.
const LINKERS: [&str; 4] = ["ld.bfd", "ld.gold", "ld.lld-16", "mold"];

/// Compilers and linkers that are installed, looked up once.
static INSTALLED: LazyLock<[Vec<&str>; 2]> = LazyLock::new(|| {
    let present = |tools: &[&'static str]| tools.iter().copied().filter(|tool| have(tool)).collect();
    [present(&COMPILERS), present(&LINKERS)]
});

fn compilers() -> impl Iterator<Item = &'static str> {
    INSTALLED[0].iter().copied()
}

const C_UNITS: [(&str, &str, &str); 2] = [("c", C, "one"), ("c", TWO, "two")];
const CPP_UNITS: [(&str, &str, &str); 2] = [("cpp", CPP, "one"), ("cpp", CPP, "two")];

/// Compiles the objects of a program of two units.
fn objects(bench: &Bench, command: &str, units: &[(&str, &str, &str); 2], prefix: &str) -> Vec<PathBuf> {
    let compile = |(suffix, source, name): &(&str, &str, &str)| {
        let main = if *name == "one" && *suffix == "cpp" {
            "-DMAIN -fno-rtti -fno-exceptions"
        } else {
            "-fno-rtti -fno-exceptions"
        };
        let main = if *suffix == "cpp" { main } else { "" };
        bench.compile(&format!("{command} {main}"), suffix, source, &format!("{prefix}{name}"))
    };
    units.iter().map(compile).collect()
}

fn width(command: &str) -> (&'static str, &'static str) {
    if command.contains("-m32") {
        ("-m32", "-m elf_i386")
    } else if command.contains("-mx32") {
        ("-mx32", "-m elf32_x86_64")
    } else {
        ("", "")
    }
}

/// Links the compiled units with every linker. Checks that the list has all the program's calls to
/// mcount, each once, and that it equals the compiler's own, if that exists.
fn check(command: &str, units: &[(&str, &str, &str); 2], linker_flags: &str) {
    let bench = Bench::new();
    let (width, emulation) = width(command);
    let runtime = bench.runtime(width);
    let mut ours = objects(&bench, command, units, "");
    ours.iter().for_each(|object| add(object));
    ours.push(runtime.clone());
    // The compiler's own objects of C++ do not link, or with mold they list discarded functions.
    let recorded = (command.starts_with("gcc") && units[0].0 == "c").then(|| {
        let mut objects = objects(&bench, &format!("{command} -mrecord-mcount"), units, "own-");
        objects.push(runtime);
        objects
    });
    // mold does not support x32.
    for linker in INSTALLED[1].iter().filter(|linker| !(width == "-mx32" && **linker == "mold")) {
        let what = format!("{command}, {linker} {linker_flags}");
        let linker = format!("{linker} {emulation} {linker_flags}");
        let program = bench.link(&linker, &ours, "program").unwrap_or_else(|text| panic!("{what}: {text}"));
        let listed = list(&program);
        assert!(listed.len() > 3, "{what}: {listed:x?}");
        // Calls through the GOT that the linker does not make direct have no name.
        let called = calls(&program);
        assert!(called.is_empty() || listed == called, "{what}: listed {listed:x?}, called {called:x?}");
        let own = recorded.as_ref().and_then(|objects| bench.link(&linker, objects, "own").ok());
        if let Some(own) = &own {
            assert_eq!(
                names(own, &list(own)),
                names(&program, &listed),
                "{what}: the compiler's, and recordmcount's"
            );
        }
        assert!(own.is_some() || !called.is_empty(), "{what}: compared with nothing");
    }
}

/// Converts addresses to functions and offsets: the place of the list may differ, and with it those
/// of functions.
fn names(program: &std::path::Path, addresses: &[u64]) -> Vec<String> {
    let text = support::run(std::process::Command::new("nm").arg("-n").arg(program));
    let mut functions = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [address, "t" | "T" | "w" | "W", name] = words[..] {
            functions.push((u64::from_str_radix(address, 16).unwrap(), name));
        }
    }
    let name = |address: &u64| {
        let (start, name) = functions[functions.partition_point(|(start, _)| start <= address) - 1];
        format!("{name}+{:#x}", address - start)
    };
    addresses.iter().map(name).collect()
}

const PROFILING: [&str; 4] = ["-O2 -pg", "-O0 -pg", "-O2 -pg -mfentry", "-O2 -pg -ffunction-sections"];

fn check_programs(codes: [&str; 2]) {
    for compiler in compilers() {
        for profiling in PROFILING {
            for code in codes {
                check(&format!("{compiler} {profiling} {code}"), &C_UNITS, "");
            }
        }
    }
}

#[test]
fn programs_of_64_bits() {
    check_programs(["-fno-pie", "-fPIC"]);
}

#[test]
fn programs_of_64_bits_that_call_through_pointers_and_with_endbr64() {
    check_programs(["-fPIC -fno-plt", "-fPIE -fcf-protection -g"]);
}

#[test]
fn programs_of_32_bits() {
    for compiler in compilers() {
        for profiling in PROFILING {
            for code in ["-fno-pie", "-fPIC", "-fPIC -fno-plt"] {
                // gcc has no -mfentry for position-independent 32-bit code.
                if !(profiling.contains("-mfentry") && code.contains("-fPIC")) {
                    check(&format!("{compiler} -m32 {profiling} {code}"), &C_UNITS, "");
                }
            }
        }
    }
}

#[test]
fn other_models_of_code() {
    check("gcc -mx32 -O2 -pg -fno-pie", &C_UNITS, "");
    check("gcc -O2 -pg -mcmodel=large -fno-pie", &C_UNITS, "");
    check("gcc -O2 -pg -mcmodel=large -fPIC", &C_UNITS, "");
}

#[test]
fn objects_without_symbols_of_sections() {
    for compiler in compilers() {
        for width in ["", "-m32"] {
            let bare = "-fno-asynchronous-unwind-tables -fno-pie";
            check(&format!("{compiler} {width} -O2 -pg -ffunction-sections {bare}"), &C_UNITS, "");
            check(&format!("{compiler} {width} -O2 -pg {bare}"), &CPP_UNITS, "");
        }
    }
}

#[test]
fn functions_that_units_share_are_listed_once() {
    for compiler in compilers() {
        for profiling in PROFILING {
            check(&format!("{compiler} {profiling} -fno-pie"), &CPP_UNITS, "");
            check(&format!("{compiler} {profiling} -fPIC"), &CPP_UNITS, "");
        }
        check(&format!("{compiler} -m32 -O2 -pg -fno-pie"), &CPP_UNITS, "");
    }
}

/// The objects are linked with `ld -r` first.
#[test]
fn objects_that_are_linked_into_one_first() {
    for compiler in compilers() {
        for (units, code) in
            [(&C_UNITS, "-fPIC -ffunction-sections"), (&CPP_UNITS, "-fno-pie"), (&C_UNITS, "-m32 -fno-pie")]
        {
            let bench = Bench::new();
            let (width, emulation) = width(code);
            let runtime = bench.runtime(width);
            let objects = objects(&bench, &format!("{compiler} -O2 -pg {code}"), units, "");
            objects.iter().for_each(|object| add(object));
            for linker in &INSTALLED[1] {
                let what = format!("{compiler} {code}, {linker}");
                let one = bench.link(&format!("{linker} {emulation} -r"), &objects, "both.o").unwrap();
                let program =
                    bench.link(&format!("{linker} {emulation}"), &[one, runtime.clone()], "program");
                let program = program.unwrap_or_else(|text| panic!("{what}: {text}"));
                let called = calls(&program);
                assert!(called.len() > 3, "{what}");
                assert_eq!(list(&program), called, "{what}");
            }
        }
    }
}

/// A program that has the list read keeps it, and with it the listed functions; else the linker
/// drops it. It treats the compiler's list the same way.
#[test]
fn sections_that_nothing_refers_to_are_dropped_as_from_the_compilers_list() {
    let readers = [(false, ""), (true, "-z nostart-stop-gc")];
    for (reader, flags) in readers {
        for linker in &INSTALLED[1] {
            let bench = Bench::new();
            let mut runtime = vec![bench.runtime("")];
            if reader {
                let source = ".globl reader\nreader: .quad __start___mcount_loc, __stop___mcount_loc\n";
                runtime.push(bench.compile("gcc", "s", source, "reader"));
            }
            let root = if reader { "-u reader" } else { "" };
            // gold has no such option, and always does so.
            let flags = if linker.contains("gold") { "" } else { flags };
            let linker = format!("{linker} --gc-sections {root} {flags}");
            let link = |command: &str, prefix: &str, record: bool| {
                let mut all = objects(&bench, command, &C_UNITS, prefix);
                if record {
                    all.iter().for_each(|object| add(object));
                }
                all.extend(runtime.iter().cloned());
                bench.link(&linker, &all, "program").unwrap_or_else(|text| panic!("{linker}: {text}"))
            };
            let command = "gcc -O2 -pg -fno-pie -ffunction-sections";
            let own = link(&format!("{command} -mrecord-mcount"), "own-", false);
            let own = names(&own, &list(&own));
            let program = link(command, "", true);
            let ours = names(&program, &list(&program));
            assert_eq!(own, ours, "{linker}: the compiler's, and recordmcount's");
            let dead = ours.iter().any(|name| name.starts_with("dead"));
            // mold keeps all sections with such names.
            assert!(dead == reader || linker.starts_with("mold"), "{linker}: {ours:?}");
        }
    }
}

#[test]
fn shared_functions_and_sections_that_nothing_refers_to() {
    for compiler in compilers() {
        for linker in &INSTALLED[1] {
            let bench = Bench::new();
            let command = format!("{compiler} -O2 -pg -fno-pie -ffunction-sections");
            let mut all = objects(&bench, &command, &CPP_UNITS, "");
            all.iter().for_each(|object| add(object));
            all.push(bench.runtime(""));
            let program = bench.link(&format!("{linker} --gc-sections"), &all, "program");
            let program = program.unwrap_or_else(|text| panic!("{command}, {linker}: {text}"));
            let called = calls(&program);
            let listed = list(&program);
            assert!(
                listed.iter().all(|call| called.contains(call)),
                "{command}, {linker}: {listed:x?} {called:x?}"
            );
        }
    }
}
