//! The start of a program, before `_start` calls the C library: the dynamic linker loads libraries,
//! gives the first thread its control block, and runs the libraries' initializers. A sanitizer's
//! initializer reads which memory is mapped, and keeps it in mind for as long as the program runs.

use crate::memory::text::ProcessText;
use crate::proc;
use crate::target::Target;
use calltap_patch::{Avma, Text};
use object::elf::{DT_DEBUG, DT_NULL, PT_DYNAMIC, PT_INTERP, PT_PHDR, ProgramType};
use std::time::{Duration, Instant};

/// Time by when execve has mostly mapped the new program.
const EXECVE: Duration = Duration::from_millis(200);
/// Time by when a program has mostly started, without its waits for a processor. The initializer
/// of a library may run for ever.
const START: Duration = Duration::from_secs(2);
/// Upper limit of a program's headers, and of the entries of its dynamic section.
const ENTRIES: u64 = 256;
/// Tags of the dynamic section's last entry, and of the one for debuggers.
const NULL: u64 = DT_NULL.0 as u64;
const DEBUG: u64 = DT_DEBUG.0 as u64;

/// Memory of a process, which reads from an address or returns false.
type Memory<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// Waits until a process has its program, which it lacks in the middle of execve, and the dynamic
/// linker has loaded the program's libraries and run their initializers. A process that was started
/// a moment ago, or executes programs all the time, would be judged by what it does not have yet;
/// and an initializer would find calltap's memory, which it takes for the program's own.
pub fn await_start(target: &Target) {
    let start = Instant::now();
    let waited = || proc::wait_for_processor(target.pid).unwrap_or_default();
    let before = waited();
    let limit = || match proc::program_headers(target.pid) {
        None => EXECVE,
        Some(headers) if is_starting(target.pid, headers) => START + waited().saturating_sub(before),
        Some(_) => Duration::ZERO,
    };
    while start.elapsed() < limit() && target.lives() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the dynamic linker of a program with these headers has not finished. False for a program
/// without a dynamic linker, and for one that cannot be read.
fn is_starting(pid: u32, (headers, count): (u64, u64)) -> bool {
    let Ok(mut text) = ProcessText::open(pid) else { return false };
    let mut read = |at: u64, bytes: &mut [u8]| text.read(Avma(at), bytes).is_ok();
    match is_loading(headers, count, &mut read) {
        None => false,
        Some(true) => true,
        Some(false) => {
            let entry = proc::program_entry(pid);
            entry
                .zip(proc::first_stack(pid))
                .is_some_and(|(entry, stack)| has_called(entry, stack, &mut read) == Some(false))
        }
    }
}

/// Whether a program's `_start` has called the C library, which never returns: then the address to
/// return to is the last that was pushed, below the arguments of `stack`. Unknown if the entry is
/// not the one of glibc's `crt1.o`, whose call is followed by `hlt`.
fn has_called(entry: u64, stack: u64, read: &mut Memory<'_>) -> Option<bool> {
    let mut code = [0; 64];
    read(entry, &mut code).then_some(())?;
    let is_call = |end: usize| code[end - 5] == 0xe8 || code[end - 6..].starts_with(&[0xff, 0x15]);
    let after = (6..code.len()).find(|end| code[*end] == 0xf4 && is_call(*end))?;
    let mut pushed = [0; 64];
    read(stack.wrapping_sub(64), &mut pushed).then_some(())?;
    let address = entry.wrapping_add(after as u64).to_le_bytes();
    Some(pushed.chunks_exact(8).any(|word| word == address))
}

/// Whether the dynamic linker of a program with these headers is loading libraries, by `struct
/// r_debug` of <link.h>. None if the program has no dynamic linker, or cannot be read.
fn is_loading(headers: u64, count: u64, read: &mut Memory<'_>) -> Option<bool> {
    let mut word = |at: u64| {
        let mut bytes = [0; 8];
        read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let header = |index: u64| headers.wrapping_add(index * 56);
    let mut address_of = |kind: ProgramType| {
        let found = (0..count.min(ENTRIES))
            .map(header)
            .find(|at| word(*at).is_some_and(|value| value as u32 == kind.0));
        found.and_then(|at| word(at.wrapping_add(16)))
    };
    let (own, dynamic) = (address_of(PT_PHDR)?, address_of(PT_DYNAMIC)?);
    address_of(PT_INTERP)?;
    let dynamic = headers.wrapping_sub(own).wrapping_add(dynamic);
    let mut entries = (0..ENTRIES).map(|index| dynamic.wrapping_add(index * 16));
    let entry = entries.find(|at| word(*at).is_none_or(|tag| [NULL, DEBUG].contains(&tag)))?;
    match (word(entry)?, word(entry.wrapping_add(8))?) {
        // The dynamic linker has not come to it.
        (DEBUG, 0) => Some(true),
        // No list of objects yet, or one that is being changed.
        (DEBUG, debug) => Some(
            word(debug.wrapping_add(8)) == Some(0)
                || word(debug.wrapping_add(24)).is_some_and(|state| state as u32 != 0),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the memory of a program at 0x1000 with these headers and `r_debug`.
    fn memory(headers: &[(ProgramType, u64)], debug: Option<(u64, u32)>) -> Vec<u8> {
        let mut memory = vec![0; 0x400];
        let mut put = |at: usize, value: u64| memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        for (index, (kind, address)) in headers.iter().enumerate() {
            put(0x40 + index * 56, u64::from(kind.0));
            put(0x40 + index * 56 + 16, *address);
        }
        put(0x200, 1);
        put(0x210, DEBUG);
        if let Some((objects, state)) = debug {
            put(0x218, 0x1300);
            put(0x308, objects);
            put(0x318, u64::from(state));
        }
        memory
    }

    /// Returns a reader of memory at 0x1000.
    fn reader(memory: &[u8]) -> impl FnMut(u64, &mut [u8]) -> bool {
        |at, bytes| {
            let from = at.checked_sub(0x1000).map(|at| at as usize);
            let found = from.and_then(|from| memory.get(from..from + bytes.len()));
            found.is_some_and(|found| {
                bytes.copy_from_slice(found);
                true
            })
        }
    }

    /// Tests a program with these headers.
    fn check(headers: &[(ProgramType, u64)], debug: Option<(u64, u32)>, expected: Option<bool>) {
        let memory = memory(headers, debug);
        let found = is_loading(0x1040, headers.len() as u64, &mut reader(&memory));
        assert_eq!(found, expected, "{headers:?} {debug:?}");
    }

    /// Tests a program with this code at its entry and these words below its arguments.
    fn check_entry(code: &[u8], pushed: &[u64], expected: Option<bool>) {
        let mut memory = vec![0; 0x400];
        memory[0x100..0x100 + code.len()].copy_from_slice(code);
        for (index, word) in pushed.iter().enumerate() {
            memory[0x300 - 8 * (index + 1)..][..8].copy_from_slice(&word.to_le_bytes());
        }
        assert_eq!(has_called(0x1100, 0x1300, &mut reader(&memory)), expected, "{code:x?} {pushed:x?}");
    }

    #[test]
    fn program_starts_until_its_entry_has_called_the_c_library() {
        let direct = b"\x31\xed\x5e\xe8\x00\x01\x00\x00\xf4";
        check_entry(direct, &[], Some(false));
        check_entry(direct, &[0x7f00_0000_1234, 0x7ffc_0000_0000], Some(false));
        check_entry(direct, &[0x7f00_0000_1234, 0x7ffc_0000_0000, 0x1108], Some(true));
        let indirect = b"\xf3\x0f\x1e\xfa\x31\xed\xff\x15\x00\x01\x00\x00\xf4";
        check_entry(indirect, &[0x1108], Some(false));
        check_entry(indirect, &[0, 0, 0x110c], Some(true));
    }

    #[test]
    fn entry_that_does_not_call_the_c_library_is_not_waited_for() {
        check_entry(b"\xe9\x00\x01\x00\x00", &[], None);
        check_entry(b"\xf4", &[], None);
        check_entry(b"\x48\x31\xed\xe8\x00\x01\x00\x00\x90", &[], None);
        assert_eq!(has_called(0x9000, 0x1300, &mut reader(&[0; 0x400])), None);
    }

    const DYNAMIC: [(ProgramType, u64); 3] = [(PT_PHDR, 0x40), (PT_INTERP, 0x30), (PT_DYNAMIC, 0x200)];

    #[test]
    fn program_starts_until_the_list_of_objects_is_whole() {
        check(&DYNAMIC, None, Some(true));
        check(&DYNAMIC, Some((0, 0)), Some(true));
        check(&DYNAMIC, Some((0x7f00_0000_0000, 1)), Some(true));
        check(&DYNAMIC, Some((0x7f00_0000_0000, 0)), Some(false));
    }

    #[test]
    fn program_without_dynamic_linker_does_not_wait_for_one() {
        check(&[(PT_PHDR, 0x40), (PT_DYNAMIC, 0x200)], None, None);
        check(&[(PT_PHDR, 0x40)], None, None);
        check(&[], None, None);
    }

    #[test]
    fn unreadable_memory_is_not_waited_for() {
        check(&[(PT_PHDR, 0x40), (PT_INTERP, 0x30), (PT_DYNAMIC, 0x9000)], None, None);
    }
}
