//! The start of a program, as its dynamic linker shows it to debuggers: before it ends, the process
//! lacks libraries, and its threads have no control block.

use crate::memory::text::ProcessText;
use crate::proc;
use crate::target::Target;
use calltap_patch::{Avma, Text};
use object::elf::{DT_DEBUG, DT_NULL, PT_DYNAMIC, PT_INTERP, PT_PHDR, ProgramType};
use std::time::{Duration, Instant};

/// Time by when execve has mostly mapped the new program.
const EXECVE: Duration = Duration::from_millis(200);
/// Time by when a dynamic linker has mostly loaded a program's libraries, on a busy machine, too.
const START: Duration = Duration::from_secs(2);
/// Upper limit of a program's headers, and of the entries of its dynamic section.
const ENTRIES: u64 = 256;
/// Tags of the dynamic section's last entry, and of the one for debuggers.
const NULL: u64 = DT_NULL.0 as u64;
const DEBUG: u64 = DT_DEBUG.0 as u64;

/// Waits until a process has its program, which it lacks in the middle of execve, and the dynamic
/// linker has loaded the program's libraries. A process that was started a moment ago, or executes
/// programs all the time, would be judged by what it does not have yet.
pub fn await_libraries(target: &Target) {
    let start = Instant::now();
    let limit = || match proc::program_headers(target.pid) {
        None => EXECVE,
        Some(headers) if is_starting(target.pid, headers) => START,
        Some(_) => Duration::ZERO,
    };
    while start.elapsed() < limit() && target.lives() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the dynamic linker of a program with these headers is loading libraries. False for a
/// program without a dynamic linker, and for one that cannot be read.
fn is_starting(pid: u32, (headers, count): (u64, u64)) -> bool {
    let Ok(mut text) = ProcessText::open(pid) else { return false };
    is_loading(headers, count, &mut |at, bytes| text.read(Avma(at), bytes).is_ok())
}

/// Whether the dynamic linker of a program with these headers is loading libraries, by `struct
/// r_debug` of <link.h>.
fn is_loading(headers: u64, count: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> bool {
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
    let (Some(own), Some(dynamic), Some(_)) =
        (address_of(PT_PHDR), address_of(PT_DYNAMIC), address_of(PT_INTERP))
    else {
        return false;
    };
    let dynamic = headers.wrapping_sub(own).wrapping_add(dynamic);
    let mut entries = (0..ENTRIES).map(|index| dynamic.wrapping_add(index * 16));
    let Some(entry) = entries.find(|at| word(*at).is_none_or(|tag| [NULL, DEBUG].contains(&tag))) else {
        return false;
    };
    match (word(entry), word(entry.wrapping_add(8))) {
        // The dynamic linker has not come to it.
        (Some(DEBUG), Some(0)) => true,
        (Some(DEBUG), Some(debug)) => {
            // No list of objects yet, or one that is being changed.
            word(debug.wrapping_add(8)) == Some(0)
                || word(debug.wrapping_add(24)).is_some_and(|state| state as u32 != 0)
        }
        _ => false,
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

    /// Tests a program with these headers.
    fn check(headers: &[(ProgramType, u64)], debug: Option<(u64, u32)>, expected: bool) {
        let memory = memory(headers, debug);
        let mut read = |at: u64, bytes: &mut [u8]| {
            let from = at.checked_sub(0x1000).map(|at| at as usize);
            let found = from.and_then(|from| memory.get(from..from + bytes.len()));
            found.is_some_and(|found| {
                bytes.copy_from_slice(found);
                true
            })
        };
        assert_eq!(is_loading(0x1040, headers.len() as u64, &mut read), expected, "{headers:?} {debug:?}");
    }

    const DYNAMIC: [(ProgramType, u64); 3] = [(PT_PHDR, 0x40), (PT_INTERP, 0x30), (PT_DYNAMIC, 0x200)];

    #[test]
    fn program_starts_until_the_list_of_objects_is_whole() {
        check(&DYNAMIC, None, true);
        check(&DYNAMIC, Some((0, 0)), true);
        check(&DYNAMIC, Some((0x7f00_0000_0000, 1)), true);
        check(&DYNAMIC, Some((0x7f00_0000_0000, 0)), false);
    }

    #[test]
    fn program_without_dynamic_linker_does_not_wait_for_one() {
        check(&[(PT_PHDR, 0x40), (PT_DYNAMIC, 0x200)], None, false);
        check(&[(PT_PHDR, 0x40)], None, false);
        check(&[], None, false);
    }

    #[test]
    fn unreadable_memory_is_not_waited_for() {
        check(&[(PT_PHDR, 0x40), (PT_INTERP, 0x30), (PT_DYNAMIC, 0x9000)], None, false);
    }
}
