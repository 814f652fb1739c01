//! An object stays the same apart from its list; and objects that need no list do not change.

use crate::support::{Bench, C, CPP, TWO, have, run};
use object::read::elf::{ElfFile, ElfFile32, ElfFile64, FileHeader};
use object::{
    Endianness, Object, ObjectComdat, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex,
    SymbolIndex,
};
use std::collections::BTreeMap;

/// Returns the meaning of an object's contents, by name and not by number: a line for each fact.
fn facts(bytes: &[u8]) -> Vec<String> {
    if bytes[4] == 1 {
        all_facts(&ElfFile32::<Endianness>::parse(bytes).unwrap())
    } else {
        all_facts(&ElfFile64::<Endianness>::parse(bytes).unwrap())
    }
}

fn all_facts<E: FileHeader<Endian = Endianness>>(file: &ElfFile<'_, E>) -> Vec<String> {
    let section = |index: Option<SectionIndex>| index.map_or(0, |index| index.0);
    let symbol = |index: SymbolIndex| {
        let symbol = file.symbol_by_index(index).unwrap();
        format!("{:?} of {} at {:#x}", symbol.name(), section(symbol.section_index()), symbol.address())
    };
    let mut facts = Vec::new();
    for section in file.sections() {
        let (index, name) = (section.index().0, section.name().unwrap());
        let (kind, flags, align) = (section.kind(), section.flags(), section.align());
        facts.push(format!("section {index} {name}: {kind:?} {flags:?} {align}"));
        // Tables are compared by their meaning.
        let table = [".symtab", ".strtab", ".shstrtab", ".group", ".llvm_addrsig", ".rel"]
            .iter()
            .any(|table| name.starts_with(table));
        if !table {
            facts.push(format!("content of {index}: {:x?}", section.data().unwrap()));
        }
        if name == ".llvm_addrsig" {
            let symbols: Vec<String> =
                section.data().unwrap().iter().map(|number| symbol(SymbolIndex((*number).into()))).collect();
            facts.push(format!("symbols of {index}: {symbols:?}"));
        }
        for (at, relocation) in section.relocations() {
            let RelocationTarget::Symbol(target) = relocation.target() else { panic!("{relocation:?}") };
            let (flags, addend) = (relocation.flags(), relocation.addend());
            facts.push(format!("relocation in {index} at {at:#x}: {flags:?} {addend} to {}", symbol(target)));
        }
    }
    for symbol in file.symbols() {
        let (name, flags, size) = (symbol.name(), symbol.flags(), symbol.size());
        facts.push(format!(
            "symbol {name:?}: {flags:?} {size} {:?} {:#x}",
            symbol.section(),
            symbol.address()
        ));
    }
    for group in file.comdats() {
        let (name, kind, signature) = (group.name(), group.kind(), symbol(group.symbol()));
        for member in group.sections() {
            facts.push(format!("group {name:?} {kind:?} {signature}: {}", member.0));
        }
    }
    facts
}

/// Checks that all facts remain, and that the new ones are of lists, their relocations, their
/// places in groups and the symbols of sections.
fn check(what: &str, old: &[u8]) -> Vec<String> {
    let new = calltap_recordmcount::add(old).unwrap().unwrap_or_else(|| panic!("{what}: no calls"));
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    facts(&new).into_iter().for_each(|fact| *left.entry(fact).or_default() += 1);
    for fact in facts(old) {
        let count = left.get_mut(&fact).unwrap_or_else(|| panic!("{what}: not any more: {fact}"));
        *count -= 1;
    }
    let new: Vec<String> = left.into_iter().filter(|(_, count)| *count > 0).map(|(fact, _)| fact).collect();
    let first = old_count(old);
    let of_list = |fact: &String| {
        let number = |prefix: &str| -> Option<usize> {
            fact.strip_prefix(prefix)?.split([' ', ':']).next()?.parse().ok()
        };
        let in_new =
            ["section ", "content of ", "relocation in "].iter().any(|kind| number(kind) >= Some(first));
        let member =
            fact.starts_with("group ") && fact.rsplit(' ').next().and_then(|n| n.parse().ok()) >= Some(first);
        in_new || member || fact.starts_with("symbol Ok(\"\")") || fact.starts_with("symbol Ok(\".")
    };
    for fact in &new {
        assert!(of_list(fact), "{what}: new: {fact}");
    }
    new
}

/// Returns the number of the last section plus one.
fn old_count(bytes: &[u8]) -> usize {
    let numbers = |fact: String| fact.strip_prefix("section ")?.split(' ').next()?.parse::<usize>().ok();
    facts(bytes).into_iter().filter_map(numbers).max().unwrap_or(0) + 1
}

#[test]
fn all_else_in_an_object_remains() {
    for compiler in ["gcc", "clang-16"].into_iter().filter(|compiler| have(compiler)) {
        for width in ["", "-m32"] {
            for flags in [
                "-O2 -pg",
                "-O2 -pg -g -ffunction-sections",
                "-O2 -pg -fno-asynchronous-unwind-tables -ffunction-sections",
                "-O0 -pg -g -fPIC -fexceptions",
            ] {
                let bench = Bench::new();
                let command = format!("{compiler} {width} {flags}");
                for (suffix, source) in [("c", C), ("c", TWO), ("cpp", CPP)] {
                    let object = bench.compile(&command, suffix, source, "object");
                    let new = check(&format!("{command} {suffix}"), &std::fs::read(object).unwrap());
                    assert!(new.iter().any(|fact| fact.contains("__mcount_loc")), "{command}: {new:#?}");
                }
            }
        }
    }
}

#[test]
fn a_rust_object() {
    if !have("rustc") {
        return;
    }
    let bench = Bench::new();
    let (source, object) = (bench.path("unit.rs"), bench.path("unit.o"));
    std::fs::write(&source, "pub fn work(words: &[String]) -> String { words.concat() }").unwrap();
    let mut compiler = std::process::Command::new("rustc");
    compiler.env("RUSTC_BOOTSTRAP", "1").args([
        "-Zinstrument-mcount",
        "-O",
        "-g",
        "--crate-type=lib",
        "--emit=obj",
        "-o",
    ]);
    run(compiler.arg(&object).arg(&source));
    check("rustc", &std::fs::read(object).unwrap());
}

#[test]
fn llvms_counts_of_calls() {
    if !have("clang-16") {
        return;
    }
    let function = |name| format!(".section .text.{name},\"ax\"\n.globl {name}\n{name}: call mcount\n");
    let profile = ".cg_profile a, b, 10\n.addrsig\n.addrsig_sym a\n.addrsig_sym b\n";
    let source = [function("a"), function("b"), profile.to_owned()].concat();
    let bench = Bench::new();
    let new = check("profile", &std::fs::read(bench.compile("clang-16", "s", &source, "object")).unwrap());
    assert_eq!(new.iter().filter(|fact| fact.starts_with("symbol")).count(), 2, "{new:#?}");
}

/// More sections than fit the file's header, and than fit a symbol.
#[test]
fn very_many_sections() {
    let function =
        |number| format!(".section .text.f{number},\"ax\"\n.globl f{number}\nf{number}: call mcount\n");
    for (count, width) in [(32_636, ""), (66_000, ""), (66_000, "--32")] {
        let bench = Bench::new();
        let source: String = (0..count).map(function).collect();
        let (file, object) = (bench.path("many.s"), bench.path("many.o"));
        std::fs::write(&file, source).unwrap();
        let mut assembler = std::process::Command::new("as");
        run(assembler.args(width.split_whitespace()).arg("-o").arg(&object).arg(&file));
        let new = check(&format!("{count} {width}"), &std::fs::read(object).unwrap());
        let relocations = new.iter().filter(|fact| fact.starts_with("relocation"));
        assert_eq!(relocations.count(), count, "{count} {width}");
    }
}

#[track_caller]
fn unchanged(object: &[u8]) {
    assert_eq!(calltap_recordmcount::add(object), Ok(None));
}

#[test]
fn objects_that_need_no_list() {
    let bench = Bench::new();
    let object = |command: &str| std::fs::read(bench.compile(command, "c", C, "object")).unwrap();
    unchanged(&object("gcc -O2"));
    unchanged(&object("gcc -O2 -pg -mrecord-mcount"));
    unchanged(&object("gcc -O2 -fno-pie -pg -mfentry -mrecord-mcount -mnop-mcount"));
    unchanged(&object("gcc -m32 -O2 -fpatchable-function-entry=5"));
    // Code that the linker is still to compile has no calls yet.
    unchanged(&object("gcc -O2 -pg -flto"));
    check("fat", &object("gcc -O2 -pg -flto -ffat-lto-objects"));
    // Data that refers to mcount, and code that refers to it without a call.
    let source = ".data\n.quad mcount\n.text\nlea mcount(%rip), %rax\njmp mcount\nmov $mcount, %eax\n";
    unchanged(&std::fs::read(bench.compile("gcc", "s", source, "object")).unwrap());
}

#[test]
fn files_that_can_have_no_list_say_why() {
    let bench = Bench::new();
    let object = std::fs::read(bench.compile("gcc -O2 -pg", "c", C, "object")).unwrap();
    let says = |data: &[u8], expected: &str| {
        assert_eq!(calltap_recordmcount::add(data).unwrap_err().to_string(), expected);
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut data = object.clone();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        data
    };
    says(b"", "not an ELF file");
    says(b"int main;\n", "not an ELF file");
    says(b"!<arch>\n", "an archive: its members must have their calls recorded before they are put into it");
    says(b"BC\xc0\xde", "LLVM bitcode, not an object file: it has no calls yet");
    says(b"\x7fELF", "truncated or corrupt object file: the file header");
    let other = |number| {
        format!(
            "an object file for machine {number}: only those for x86-64 and i386 can have their calls recorded"
        )
    };
    says(&with(18, &[183, 0]), &other(183));
    says(&with(5, &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 21]), &other(21));
    says(&with(16, &[2]), "an executable, not a relocatable object file");
    says(&with(16, &[3]), "an executable or shared object, not a relocatable object file");
    says(&object[..object.len() - 1], "truncated or corrupt object file: the section headers");
    says(&object[..1000], "truncated or corrupt object file: the section headers");
    says(&object[..60], "truncated or corrupt object file: the section headers");
}
