//! The allocators of a process: where their code is, and in which of its functions a thread may
//! hold a lock that injected code would wait for.

use super::linker::is_linker;
use crate::memory::maps::{Region, text_of};
use crate::proc;
use crate::target::{Symbols, is_libc};
use std::collections::BTreeSet;

/// Functions that bound the C library's allocator: all of its code lies between the first and the
/// last.
pub(super) const ALLOCATOR: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallopt",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
];

/// Functions of the allocator. An object that defines one in its dynamic symbol table replaces the
/// C library's.
const REPLACED: &[&str] = &["malloc", "calloc", "realloc", "free"];

/// Beginnings of the names of functions in a program that was linked with another allocator or a
/// sanitizer: `operator new` and `delete`, and what a sanitizer's runtime exports.
const RUNTIMES: &[&str] =
    &["_Zn", "_Zd", "__tsan_", "__asan_", "__msan_", "__sanitizer_", "__interceptor_", "___interceptor_"];
/// Functions that a sanitizer's runtime replaces, and which wait for its locks.
const MUTEXES: &[&str] = &["pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_unlock"];
/// Functions of glibc's allocator to which others jump, in a static program.
const JUMPED_TO: &[&str] =
    &["_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "malloc_consolidate"];

/// Returns the text of objects, other than the C library and the dynamic linker, that define the
/// allocator's functions for all.
pub(super) fn other_allocators(pid: u32, regions: &[Region]) -> Vec<(u64, u64)> {
    let names = names(regions).filter(|name| !is_libc(name) && !is_linker(name));
    let mut found: Vec<_> = names
        .filter(|name| exports(pid, regions, name, |symbol| REPLACED.contains(&symbol)).next().is_some())
        .flat_map(|name| text_of(regions, |other| other == name))
        .collect();
    found.sort();
    found
}

/// Returns the functions, sorted, in which a thread may hold a lock of an allocator, or of a
/// runtime that replaces the thread library's mutexes. The text of an [other
/// allocator](other_allocators) as a whole would be no answer: where the program itself is one, its
/// threads are never outside of its text.
pub(super) fn locking_functions(pid: u32, regions: &[Region], program: &str) -> Vec<(u64, u64)> {
    let is_locking = |name: &str| {
        [ALLOCATOR, MUTEXES, JUMPED_TO].iter().any(|list| list.contains(&name))
            || RUNTIMES.iter().any(|start| name.starts_with(start))
    };
    let mut found = Vec::new();
    for name in names(regions) {
        if is_libc(name) {
            let all: Vec<_> = exports(pid, regions, name, |symbol| ALLOCATOR.contains(&symbol)).collect();
            found.extend(span(&all));
        } else if name == program && proc::has_dynamic_linker(pid) {
            found.extend(exports(pid, regions, name, is_locking));
        } else if name == program {
            let symbols = Symbols::of(pid, regions, |other| other == name, is_locking);
            found.extend(symbols.iter().flat_map(Symbols::ranges));
        } else if exports(pid, regions, name, |symbol| REPLACED.contains(&symbol)).next().is_some() {
            found.extend(exports(pid, regions, name, |_| true));
        }
    }
    found.sort();
    found
}

/// Returns the range from the first of these ranges to the last.
pub(super) fn span(all: &[(u64, u64)]) -> Option<(u64, u64)> {
    all.iter().map(|range| range.0).min().zip(all.iter().map(|range| range.1).max())
}

/// Returns the names of the files with code.
fn names(regions: &[Region]) -> impl Iterator<Item = &str> {
    let of_file = |region: &&Region| region.executable && region.file.1 != 0;
    regions.iter().filter(of_file).map(Region::name).collect::<BTreeSet<&str>>().into_iter()
}

/// Returns the ranges of the wanted symbols that an object exports.
fn exports(
    pid: u32,
    regions: &[Region],
    name: &str,
    wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (u64, u64)> {
    let symbols = Symbols::exported(pid, regions, |other| other == name, wanted);
    symbols.map(|symbols| symbols.ranges().collect::<Vec<_>>()).unwrap_or_default().into_iter()
}
