//! Tests that decoding only what a few functions need gives them the same sites as decoding the
//! whole file.

use crate::support::build;
use calltap_sites::{
    Binary, Function, Returns, find_prologues, find_prologues_of, is_unnamed, load, open, read,
};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// All decisions about a function.
fn decided(function: &Function) -> impl PartialEq + std::fmt::Debug + '_ {
    (&function.verdict, &function.returns)
}

/// Checks `rounds` selections of up to `most` functions each. Returns how many did not need the
/// whole file.
fn check(path: &Path, rounds: usize, most: usize) -> usize {
    let data = open(path).and_then(|file| load(&file)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let listed = read(&data, "file").unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut whole = listed.clone();
    find_prologues(&data, &mut whole, true).unwrap();
    let named: Vec<usize> =
        (0..listed.functions.len()).filter(|n| !is_unnamed(&listed.functions[*n])).collect();
    let (mut numbers, mut less) = (Numbers(0x9E37_79B9_7F4A_7C15), 0);
    for _ in 0..rounds {
        let count = 1 + numbers.below(most);
        let chosen: BTreeSet<usize> = (0..count).map(|_| named[numbers.below(named.len())]).collect();
        less += usize::from(check_one(path, &data, (&listed, &whole), &chosen, true));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{}: {less} of {rounds} selections without decoding all of {} functions",
        path.display(),
        listed.functions.len()
    );
    less
}

fn check_one(
    path: &Path,
    data: &[u8],
    (listed, whole): (&Binary, &Binary),
    chosen: &BTreeSet<usize>,
    int3: bool,
) -> bool {
    let addresses: BTreeSet<u64> = chosen.iter().map(|n| listed.functions[*n].address.0).collect();
    let mut few = listed.clone();
    let all =
        find_prologues_of(data, &mut few, int3, &|function| addresses.contains(&function.address.0)).unwrap();
    for n in chosen {
        let (found, expected) = (&few.functions[*n], &whole.functions[*n]);
        assert_eq!(decided(found), decided(expected), "{path:?}: {} of {chosen:?}", expected.name);
    }
    if !all {
        let others = (0..few.functions.len()).filter(|n| !chosen.contains(n));
        let is_left = |n: usize| few.functions[n].form() == listed.functions[n].form();
        assert!(others.into_iter().all(is_left), "{path:?}, {chosen:?}: a site that is not wanted");
    }
    !all
}

/// Checks that one function alone gets the same site as in the whole file. Returns it, and whether
/// less than the whole file was decoded.
fn check_alone(command: &str, source: &str, name: &str) -> (Function, bool) {
    let built = build(command, "s", source);
    let data = built.data();
    let listed = read(&data, "file").unwrap();
    let mut whole = listed.clone();
    find_prologues(&data, &mut whole, false).unwrap();
    let n = listed.functions.iter().position(|function| function.name == name).unwrap();
    let is_less = check_one(&built.path, &data, (&listed, &whole), &BTreeSet::from([n]), false);
    (whole.functions[n].clone(), is_less)
}

/// Checks that an exit takes the padding behind a function only if the next function's jump is not
/// there.
#[test]
fn a_function_does_not_take_the_padding_of_the_next_one() {
    let source = |next: &str| {
        format!(
            ".text
            .p2align 4
            .globl front, next
            .type front, @function
            front: push %r12; push %rbp; mov %rdi, %rbp; test %rsi, %rsi; jne 1f; pop %rbp; pop %r12; ret
            .p2align 4
            1: lea (%rdi,%rsi), %rax; pop %rbp; pop %r12; ret
            .size front, . - front
            .byte 0x0f, 0x1f, 0x44, 0, 0
            .type next, @function
            next: sub $8, %rsp
            1: nop; nop; nop; call *%rdi; add $8, %rsp; {next}
            .size next, . - next
            .section .note.GNU-stack"
        )
    };
    let exits = |next: &str| {
        let (front, is_less) = check_alone("gcc -shared -nostdlib", &source(next), "front");
        assert!(is_less, "the whole file was decoded");
        match front.returns {
            Returns::Exits { elsewhere, .. } => elsewhere.last().unwrap().old.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_ne!(exits("ret"), exits("jmp 1b"), "the padding is used alike");
}

/// Checks labels whose words follow a table of another function's jump, and may be taken for its
/// entries; then they do not count as labels. No compiler makes such a jump in position-independent
/// code: the table has a constant address.
#[test]
fn labels_behind_a_table_of_another_function_are_decided_about_as_in_the_whole_file() {
    let source = ".text
        .globl jumps, other
        .type jumps, @function
        jumps: .cfi_startproc
        mov (%rdi), %rax; nop; nop; jmp *%rax
        1: mov $1, %eax; ret
        2: mov $2, %eax; ret
        .cfi_endproc
        .size jumps, . - jumps
        .p2align 4
        .type other, @function
        other: .cfi_startproc
        .byte 0xff, 0x24, 0xfd; .long 0x10000
        3: mov $3, %eax; ret
        4: mov $4, %eax; ret
        .cfi_endproc
        .size other, . - other
        .section .data.rel.ro, \"aw\"
        .quad 3b, 4b, 1b, 2b
        .section .note.GNU-stack";
    // With packed relocations, the words of tables are in the file itself.
    let place = "-Wl,--section-start=.data.rel.ro=0x10000";
    let command = format!("gcc -shared -nostdlib -Wl,-z,pack-relative-relocs {place}");
    check_alone(&command, source, "jumps");
    check_alone(&command, source, "other");
}

/// The files of a list that exist.
fn present<'a>(files: &'a [&'a str]) -> impl Iterator<Item = &'a Path> {
    files.iter().map(Path::new).filter(|path| {
        let is_there = path.exists();
        if !is_there {
            let _ = writeln!(std::io::stderr(), "SKIPPED: no {}", path.display());
        }
        is_there
    })
}

#[test]
fn a_few_functions_of_real_files_are_decided_about_as_in_the_whole_file() {
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/bash",
        "/usr/bin/redis-server",
        "/usr/sbin/nginx",
    ];
    let less: usize = present(&files).map(|path| check(path, 40, 12)).sum();
    assert!(less >= 40, "nearly all selections needed the whole file");
}

/// Uses the test's own program, which has symbols, Rust code, and parts.
#[test]
fn a_few_functions_of_a_program_with_symbols_are_decided_about_as_in_the_whole_file() {
    let own = std::env::current_exe().unwrap();
    assert!(check(&own, 40, 12) > 0);
}

#[test]
#[ignore = "decodes files of hundreds of megabytes: minutes of processor time"]
fn a_few_functions_of_large_files_are_decided_about_as_in_the_whole_file() {
    let files = [
        "/usr/lib/x86_64-linux-gnu/libLLVM-16.so.1",
        "/usr/lib/x86_64-linux-gnu/libclang-cpp.so.16",
        "/usr/lib/chromium/chromium",
        "/usr/bin/node",
        "/usr/bin/python3.11",
        "/usr/sbin/nginx",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/postgresql/15/bin/postgres",
    ];
    for path in present(&files) {
        check(path, 60, 6);
    }
}
