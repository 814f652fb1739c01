//! What is found of a few functions is what is found of them where all of the file is decoded.

use calltap_sites::{Binary, Function, find_prologues, find_prologues_of, is_unnamed, load, open, read};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// All that is decided about a function.
fn decided(function: &Function) -> impl PartialEq + std::fmt::Debug + '_ {
    let Function { kind, form, returns, reason, on_demand, .. } = function;
    (kind, form, returns, reason, on_demand)
}

/// Of so many selections, of up to `most` functions each, how many needed less than all of the file.
fn check(path: &Path, rounds: usize, most: usize) -> usize {
    let data = open(path).and_then(|file| load(&file)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let listed = read(&data, "file").unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut whole = listed.clone();
    find_prologues(&data, &mut whole, true).unwrap();
    let named: Vec<usize> =
        (0..listed.functions.len()).filter(|n| !is_unnamed(&listed.functions[*n])).collect();
    let (mut numbers, mut less) = (Numbers(0x9E37_79B9_7F4A_7C15), 0);
    for round in 0..rounds {
        let count = 1 + numbers.below(most);
        let chosen: BTreeSet<usize> = (0..count).map(|_| named[numbers.below(named.len())]).collect();
        less += usize::from(check_one(path, &data, (&listed, &whole), &chosen, round));
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
    round: usize,
) -> bool {
    let addresses: BTreeSet<u64> = chosen.iter().map(|n| listed.functions[*n].address.0).collect();
    let mut few = listed.clone();
    let all =
        find_prologues_of(data, &mut few, true, &|function| addresses.contains(&function.address.0)).unwrap();
    for n in chosen {
        let (found, expected) = (&few.functions[*n], &whole.functions[*n]);
        assert_eq!(decided(found), decided(expected), "{path:?}, round {round}: {}", expected.name);
    }
    if !all {
        let others = (0..few.functions.len()).filter(|n| !chosen.contains(n));
        let is_left = |n: usize| few.functions[n].form == listed.functions[n].form;
        assert!(others.into_iter().all(is_left), "{path:?}, round {round}: a site that is not wanted");
    }
    !all
}

/// Those of these files that there are.
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
    ];
    let less: usize = present(&files).map(|path| check(path, 40, 12)).sum();
    assert!(less >= 40, "nearly all selections needed the whole file");
}

/// The test's own program has symbols, code of Rust, and parts.
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
