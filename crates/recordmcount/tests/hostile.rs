//! Broken and hostile objects give an error or another object, without a panic or a long wait.

use crate::support::{Bench, C, CPP, have};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Objects of both widths, with groups, with and without symbols of sections, with LLVM's table of
/// symbols.
static OBJECTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let bench = Bench::new();
    let builds = [
        ("gcc -O2 -pg -ffunction-sections", "c", C),
        ("gcc -O2 -pg -fno-asynchronous-unwind-tables -fno-pie", "cpp", CPP),
        ("gcc -m32 -O2 -pg -fno-asynchronous-unwind-tables", "cpp", CPP),
        ("clang-16 -O2 -pg -fno-asynchronous-unwind-tables -ffunction-sections", "cpp", CPP),
        ("clang-16 -m32 -O2 -pg", "c", C),
    ];
    let builds = builds.into_iter().filter(|(command, ..)| have(command.split(' ').next().unwrap()));
    let compile =
        |(command, suffix, source)| std::fs::read(bench.compile(command, suffix, source, "object")).unwrap();
    builds.map(compile).collect()
});

fn check(data: &[u8]) {
    let start = Instant::now();
    if let Ok(Some(new)) = calltap_recordmcount::add(data) {
        assert!(new.len() < 4 * data.len() + 4096, "{} of {} bytes", new.len(), data.len());
        // The result is an object again. Its section names may have been anything.
        let _ = calltap_recordmcount::add(&new);
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "took {took:?}");
}

#[test]
fn every_truncation_is_survived() {
    for object in OBJECTS.iter() {
        (0..object.len()).step_by(7).for_each(|length| check(&object[..length]));
    }
}

#[test]
fn every_byte_of_the_headers_is_survived() {
    for object in OBJECTS.iter() {
        let tables = object.len() - 40 * 64.min(object.len() / 40);
        for at in (0..64).chain(tables..object.len()) {
            for byte in [0, 1, 2, 4, 8, 9, 17, 18, 0x7f, 0x80, 0xff] {
                let mut data = object.clone();
                data[at] = byte;
                check(&data);
            }
        }
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) }
}

/// Returns a place in the file or in its last part, the section headers.
fn place() -> impl Strategy<Value = prop::sample::Index> {
    any::<prop::sample::Index>()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn changed_bytes_are_survived(
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<bool>(), place(), any::<u8>()), 1..30),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut data = which.get(&OBJECTS).clone();
        for (in_headers, at, byte) in changes {
            let first = if in_headers { data.len().saturating_sub(2000) } else { 0 };
            let at = first + at.index(data.len() - first);
            data[at] = byte;
        }
        if let Some(cut) = cut {
            data.truncate(cut.index(data.len()));
        }
        check(&data);
    }

    #[test]
    fn extreme_numbers_are_survived(
        which: prop::sample::Index,
        changes in prop::collection::vec(
            (
                any::<bool>(),
                place(),
                prop::sample::select(vec![0, 1, 2, 4, 5, 17, 18, 0x1000, 0xff00, 0xffff, 1 << 31, u64::MAX >> 1, 1 << 63, u64::MAX - 7, u64::MAX]),
                any::<bool>(),
            ),
            1..6,
        ),
    ) {
        let mut data = which.get(&OBJECTS).clone();
        for (in_headers, at, number, wide) in changes {
            let first = if in_headers { data.len().saturating_sub(2000) } else { 0 };
            let at = (first + at.index(data.len() - first - 8)) & !3;
            let length = if wide { 8 } else { 4 };
            data[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
        }
        check(&data);
    }
}
