//! Seccomp filters: whether they let the agent make its system calls.
//!
//! A filter may kill the program for a call that it does not know, so each filter is interpreted
//! here for every call before the agent is loaded. Filters are classic BPF programs: forward jumps
//! only, 32-bit words. The agent's arguments are known in part; if a filter tests an unknown one,
//! both branches are followed.

use std::collections::HashSet;

/// An instruction, in the kernel's layout (`struct sock_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Instruction {
    /// Class, mode, operation.
    pub code: u16,
    /// Jump distance if the condition is true.
    pub jt: u8,
    /// Jump distance if the condition is false.
    pub jf: u8,
    /// Constant.
    pub k: u32,
}

/// A system call that the agent makes, or the C library for it.
#[derive(Clone, Copy, Debug)]
struct Call {
    name: &'static str,
    number: i64,
    /// Known arguments: index, value.
    known: &'static [(usize, u64)],
    /// Whether an error is acceptable, as there is another way.
    may_fail: bool,
}

const fn call(name: &'static str, number: i64) -> Call {
    Call { name, number, known: &[], may_fail: false }
}

const fn with(name: &'static str, number: i64, known: &'static [(usize, u64)]) -> Call {
    Call { name, number, known, may_fail: false }
}

const fn perhaps(name: &'static str, number: i64, known: &'static [(usize, u64)]) -> Call {
    Call { name, number, known, may_fail: true }
}

/// Protection bits, for the third argument of mmap.
const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXEC: u64 = libc::PROT_EXEC as u64;
/// Clone flags of the agent's thread that registers the process.
const THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;

/// Clone flags of an [opener](crate::injection::inject). It leaves the descriptor table afterwards,
/// so that the kernel copies none.
pub(crate) const OPENER_FLAGS: i32 = THREAD as i32 | libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;

/// All calls, from the first of a hijacked thread to the last of detaching.
const CALLS: &[Call] = &[
    with("mmap", libc::SYS_mmap, &[(2, 0)]),
    with("mmap", libc::SYS_mmap, &[(2, READ)]),
    with("mmap", libc::SYS_mmap, &[(2, READ | WRITE)]),
    with("mmap of code", libc::SYS_mmap, &[(2, READ | EXEC)]),
    // The dynamic linker closes the gaps between the segments of a library.
    with("mprotect", libc::SYS_mprotect, &[(2, 0)]),
    with("mprotect", libc::SYS_mprotect, &[(2, READ)]),
    with("mprotect", libc::SYS_mprotect, &[(2, READ | WRITE)]),
    perhaps("brk", libc::SYS_brk, &[]),
    call("munmap", libc::SYS_munmap),
    with("madvise", libc::SYS_madvise, &[(2, libc::MADV_WIPEONFORK as u64)]),
    perhaps("madvise", libc::SYS_madvise, &[(2, libc::MADV_DONTNEED as u64)]),
    call("openat", libc::SYS_openat),
    call("read", libc::SYS_read),
    call("pread64", libc::SYS_pread64),
    call("fstat", libc::SYS_fstat),
    call("newfstatat", libc::SYS_newfstatat),
    call("close", libc::SYS_close),
    call("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    call("rt_sigpending", libc::SYS_rt_sigpending),
    call("sigaltstack", libc::SYS_sigaltstack),
    call("futex", libc::SYS_futex),
    call("getpid", libc::SYS_getpid),
    call("gettid", libc::SYS_gettid),
    call("clock_gettime", libc::SYS_clock_gettime),
    with("prctl", libc::SYS_prctl, &[(0, libc::PR_GET_NAME as u64)]),
    perhaps("clone", libc::SYS_clone, &[(0, THREAD)]),
    perhaps("membarrier", libc::SYS_membarrier, &[]),
    call("exit", libc::SYS_exit),
    // A wait that a stop interrupts continues by this call.
    call("restart_syscall", libc::SYS_restart_syscall),
];

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const LOG: u32 = libc::SECCOMP_RET_LOG;
const ERRNO: u32 = libc::SECCOMP_RET_ERRNO;
const ACTION: u32 = libc::SECCOMP_RET_ACTION_FULL;

/// Made only if the user asks for memory that a pointer leads to.
const READING: Call = perhaps("process_vm_readv", libc::SYS_process_vm_readv, &[]);

/// Made if the filters allow it.
const ASKING: Call = perhaps("prctl", libc::SYS_prctl, &[(0, libc::PR_GET_TSC as u64)]);

/// Made by the first allocation of the GNU C library in a process, for a key.
const ALLOCATING: Call = perhaps("getrandom", libc::SYS_getrandom, &[]);

/// Made by an [opener](crate::injection::inject), or to start one.
const OPENING: [Call; 3] = [
    perhaps("clone", libc::SYS_clone, &[(0, OPENER_FLAGS as u64)]),
    perhaps("close_range", libc::SYS_close_range, &[(0, 0), (2, libc::CLOSE_RANGE_UNSHARE as u64)]),
    perhaps("unshare", libc::SYS_unshare, &[(0, libc::CLONE_FILES as u64)]),
];

/// Returns the name of the first call that one of these filters does not allow.
pub fn forbids(filters: &[Vec<Instruction>]) -> Option<&'static str> {
    CALLS.iter().find(|call| !pass(filters, call)).map(|call| call.name)
}

/// Returns the name of the call that the first allocation in a process makes, if one of these
/// filters does not allow it.
pub fn forbids_allocating(filters: &[Vec<Instruction>]) -> Option<&'static str> {
    Some(ALLOCATING).filter(|call| !pass(filters, call)).map(|call| call.name)
}

/// Whether the filters let the agent have the kernel copy memory of the process.
pub fn allow_reading(filters: &[Vec<Instruction>]) -> bool {
    pass(filters, &READING)
}

/// Whether the filters let the agent ask whether a thread may read the time stamp counter.
pub fn allow_asking(filters: &[Vec<Instruction>]) -> bool {
    pass(filters, &ASKING)
}

/// Whether the filters let a thread start an opener, and let that leave the descriptor table.
pub(crate) fn allow_opener(filters: &[Vec<Instruction>]) -> bool {
    OPENING.iter().all(|call| pass(filters, call))
}

fn pass(filters: &[Vec<Instruction>], call: &Call) -> bool {
    filters.iter().all(|filter| {
        let fine = |result: &u32| match result & ACTION {
            ALLOW | LOG => true,
            // Error 0 looks like success.
            ERRNO => call.may_fail && result & libc::SECCOMP_RET_DATA != 0,
            _ => false,
        };
        results(filter, call).is_some_and(|results| results.iter().all(fine))
    })
}

/// A word of the filter's state. None if it is not known.
type Word = Option<u32>;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Machine {
    at: usize,
    a: Word,
    x: Word,
    memory: [Word; 16],
}

/// Maximum number of distinct states: no filter in use reaches as many.
const STATES: usize = 100_000;
const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// Size of `struct seccomp_data`.
const DATA: u32 = 64;

/// Returns a word of `struct seccomp_data`: number, architecture, instruction pointer, arguments.
fn data(call: &Call, offset: u32) -> Word {
    match offset {
        0 => Some(call.number as u32),
        4 => Some(AUDIT_ARCH_X86_64),
        16..DATA => {
            let known = call.known.iter().find(|(place, _)| *place as u32 == (offset - 16) / 8);
            known.map(|(_, value)| (value >> (offset % 8 * 8)) as u32)
        }
        _ => None,
    }
}

/// Returns all possible results of a filter. None if it is invalid or too complex.
fn results(filter: &[Instruction], call: &Call) -> Option<HashSet<u32>> {
    let start = Machine { a: Some(0), x: Some(0), memory: [Some(0); 16], ..Machine::default() };
    let (mut waiting, mut seen, mut results) = (vec![start], HashSet::new(), HashSet::new());
    while let Some(machine) = waiting.pop() {
        if !seen.insert(machine.clone()) {
            continue;
        }
        match step(filter.get(machine.at)?, machine, call)? {
            Next::Return(value) => drop(results.insert(value)),
            Next::Go(machines) => waiting.extend(machines),
        }
        if seen.len() > STATES {
            return None;
        }
    }
    Some(results)
}

enum Next {
    Return(u32),
    Go(Vec<Machine>),
}

/// Executes one instruction.
fn step(instruction: &Instruction, mut now: Machine, call: &Call) -> Option<Next> {
    let Instruction { code, jt, jf, k } = *instruction;
    let place = k as usize;
    now.at += 1;
    match code {
        // ld, ldx: data, constant, memory, length
        0x20 => now.a = data(call, k),
        0x00 => now.a = Some(k),
        0x60 => now.a = *now.memory.get(place)?,
        0x80 => now.a = Some(DATA),
        0x01 => now.x = Some(k),
        0x61 => now.x = *now.memory.get(place)?,
        0x81 => now.x = Some(DATA),
        // st, stx
        0x02 => *now.memory.get_mut(place)? = now.a,
        0x03 => *now.memory.get_mut(place)? = now.x,
        // tax, txa
        0x07 => now.x = now.a,
        0x87 => now.a = now.x,
        // ret k, ret a
        0x06 => return Some(Next::Return(k)),
        0x16 => return now.a.map(Next::Return),
        // ja
        0x05 => now.at += place,
        // jumps; alu
        _ if code & 7 == 5 => return jump(code, jt, jf, operand(code, k, now.x), now),
        _ if code & 7 == 4 => now.a = compute(code & 0xF0, now.a, operand(code, k, now.x))?,
        _ => return None,
    }
    Some(Next::Go(vec![now]))
}

/// Returns the constant or X, as the instruction selects.
fn operand(code: u16, k: u32, x: Word) -> Word {
    if code & 8 == 0 { Some(k) } else { x }
}

fn jump(code: u16, jt: u8, jf: u8, with: Word, now: Machine) -> Option<Next> {
    let holds = match (code & 0xF0, now.a.zip(with)) {
        (0x10..=0x40, None) => None,
        (0x10, Some((a, b))) => Some(a == b),
        (0x20, Some((a, b))) => Some(a > b),
        (0x30, Some((a, b))) => Some(a >= b),
        (0x40, Some((a, b))) => Some(a & b != 0),
        _ => return None,
    };
    let to = |distance: u8| Machine { at: now.at + usize::from(distance), ..now.clone() };
    Some(Next::Go(match holds {
        Some(true) => vec![to(jt)],
        Some(false) => vec![to(jf)],
        None => vec![to(jt), to(jf)],
    }))
}

/// Computes an operation on A. The outer None: the kernel has no such operation, or the filter
/// divides by zero.
fn compute(operation: u16, a: Word, b: Word) -> Option<Word> {
    let both = a.zip(b);
    let result = match operation {
        0x00 => both.map(|(a, b)| a.wrapping_add(b)),
        0x10 => both.map(|(a, b)| a.wrapping_sub(b)),
        0x20 => both.map(|(a, b)| a.wrapping_mul(b)),
        // Division by 0 ends the filter with result 0, which is to kill.
        0x30 if b == Some(0) => return None,
        0x30 => both.and_then(|(a, b)| a.checked_div(b)),
        0x40 => both.map(|(a, b)| a | b),
        0x50 => both.map(|(a, b)| a & b),
        0x60 => both.and_then(|(a, b)| a.checked_shl(b)),
        0x70 => both.and_then(|(a, b)| a.checked_shr(b)),
        0x80 => a.map(u32::wrapping_neg),
        0xA0 => both.map(|(a, b)| a ^ b),
        _ => return None,
    };
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

    fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    /// A filter that returns `then` for one system call, and `other` for all others.
    fn only(number: i64, then: u32, other: u32) -> Vec<Instruction> {
        vec![i(0x20, 0, 0, 0), i(0x15, 0, 1, number as u32), i(0x06, 0, 0, then), i(0x06, 0, 0, other)]
    }

    fn check(filters: &[Vec<Instruction>], forbidden: Option<&str>) {
        assert_eq!(forbids(filters), forbidden, "{filters:?}");
    }

    #[test]
    fn permissive_filter_forbids_nothing() {
        check(&[], None);
        check(&[vec![i(0x06, 0, 0, ALLOW)], vec![i(0x06, 0, 0, LOG)]], None);
    }

    #[test]
    fn one_filter_of_several_is_enough_to_forbid() {
        check(&[vec![i(0x06, 0, 0, ALLOW)], only(libc::SYS_openat, KILL, ALLOW)], Some("openat"));
        check(&[only(libc::SYS_read, ALLOW, KILL)], Some("mmap"));
        check(&[only(libc::SYS_futex, ERRNO | 1, ALLOW)], Some("futex"));
        check(&[only(libc::SYS_ptrace, KILL, ALLOW)], None);
    }

    #[test]
    fn memory_is_read_where_that_does_not_kill() {
        assert!(allow_reading(&[only(libc::SYS_process_vm_readv, ERRNO | 1, ALLOW)]));
        let filter = only(libc::SYS_process_vm_readv, KILL, ALLOW);
        assert!(!allow_reading(std::slice::from_ref(&filter)));
        check(&[filter], None);
    }

    #[test]
    fn optional_system_calls_may_fail_but_not_kill() {
        check(&[only(libc::SYS_membarrier, ERRNO | 38, ALLOW)], None);
        check(&[only(libc::SYS_membarrier, KILL, ALLOW)], Some("membarrier"));
        check(&[only(libc::SYS_membarrier, ERRNO, ALLOW)], Some("membarrier"));
        check(&[only(libc::SYS_clone, libc::SECCOMP_RET_TRAP, ALLOW)], Some("clone"));
    }

    /// A filter that kills for a call with one bit set in an argument.
    fn by_argument(number: i64, argument: u32, bit: u32) -> Vec<Instruction> {
        vec![
            i(0x20, 0, 0, 0),
            i(0x15, 0, 3, number as u32),
            i(0x20, 0, 0, 16 + 8 * argument),
            i(0x45, 0, 1, bit),
            i(0x06, 0, 0, KILL),
            i(0x06, 0, 0, ALLOW),
        ]
    }

    #[test]
    fn known_arguments_decide_and_unknown_ones_go_both_ways() {
        check(&[by_argument(libc::SYS_clone, 0, libc::CLONE_NEWUSER as u32)], None);
        check(&[by_argument(libc::SYS_mmap, 2, libc::PROT_EXEC as u32)], Some("mmap of code"));
        check(&[by_argument(libc::SYS_openat, 2, libc::O_CREAT as u32)], Some("openat"));
    }

    #[test]
    fn bpf_arithmetic_and_memory_equal_the_kernels() {
        // A = (nr + 2) * 3 - nr; stored, loaded, compared with X = 2 nr + 6 of the call to forbid.
        let twice = 2 * libc::SYS_close as u32 + 6;
        let filter = vec![
            i(0x20, 0, 0, 0),
            i(0x07, 0, 0, 0),
            i(0x04, 0, 0, 2),
            i(0x24, 0, 0, 3),
            i(0x1C, 0, 0, 0),
            i(0x02, 0, 0, 5),
            i(0x01, 0, 0, twice),
            i(0x60, 0, 0, 5),
            i(0x1D, 0, 1, 0),
            i(0x06, 0, 0, KILL),
            i(0x06, 0, 0, ALLOW),
        ];
        check(&[filter], Some("close"));
    }

    #[test]
    fn nonsense_is_not_trusted() {
        check(&[vec![]], Some("mmap"));
        check(&[vec![i(0x20, 0, 0, 0)]], Some("mmap"));
        check(&[vec![i(0xFFFF, 0, 0, 0)]], Some("mmap"));
        check(&[vec![i(0x60, 0, 0, 99), i(0x06, 0, 0, ALLOW)]], Some("mmap"));
        check(&[vec![i(0x05, 0, 0, u32::MAX), i(0x06, 0, 0, ALLOW)]], Some("mmap"));
    }
}
