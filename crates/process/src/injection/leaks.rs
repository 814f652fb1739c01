//! LeakSanitizer, which searches a program's memory for pointers when the program ends.
//!
//! The unwinder allocates memory for the frames of a [placed](super::placed) agent, and keeps the
//! pointer to it in the agent's memory. LeakSanitizer knows no such object: it has to be told to
//! search there, or it would report a leak and change the program's exit status. While it searches,
//! it holds its lock.

use super::inferior::program;
use crate::memory::maps::Region;
use crate::target::{Symbols, Target, is_libc};

const REGISTER: &str = "__lsan_register_root_region";
/// Functions that hold LeakSanitizer's lock.
const LOCKING: &[&str] = &[
    REGISTER,
    "__lsan_unregister_root_region",
    "__lsan_ignore_object",
    "__lsan_do_leak_check",
    "__lsan_do_recoverable_leak_check",
];
/// Beginnings of the file names of libraries with LeakSanitizer.
const LIBRARIES: &[&str] = &["libasan.", "liblsan.", "libhwasan.", "libclang_rt."];

/// The LeakSanitizer of a process.
#[derive(Default)]
pub(crate) struct LeakDetector {
    /// Address of the function that has it search a range of memory.
    pub register: Option<u64>,
    /// Code that may hold its lock.
    pub code: Vec<(u64, u64)>,
}

impl LeakDetector {
    /// Finds the LeakSanitizer of a process: in a library, or linked into the program.
    pub(crate) fn of(target: &Target, regions: &[Region]) -> LeakDetector {
        let is_library = |name: &str| LIBRARIES.iter().any(|start| name.starts_with(start));
        let name = program(target, regions).map(Region::name).unwrap_or_default();
        let read = |is_object: &dyn Fn(&str) -> bool| {
            let exported = Symbols::exported(target.pid, regions, is_object, |name| LOCKING.contains(&name))?;
            let register = exported.address(REGISTER)?;
            Some(LeakDetector { register: Some(register), code: exported.ranges().collect() })
        };
        let Some(mut found) = read(&is_library).or_else(|| read(&|other| other == name)) else {
            return LeakDetector::default();
        };
        // The program's end starts the search, without a function that is exported. The call of
        // what runs at the end does not return: the address after it is the end of `exit`.
        let libc = Symbols::exported(target.pid, regions, is_libc, |name| name == "exit");
        found.code.extend(libc.iter().flat_map(Symbols::ranges).map(|(start, end)| (start, end + 1)));
        found
    }
}
