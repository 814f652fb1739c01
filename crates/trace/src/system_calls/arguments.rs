//! Arguments and results of system calls, as the values of their events.

use super::futex::{SEVERAL, futex};
use super::names::name;
use crate::meta::{Captured, Value, ValueForm};
use crate::values::kind;
use std::sync::Arc;

/// System calls with their arguments. `:p` is an address, `:x` a number in hexadecimal, `:o` in
/// octal, `:u` an unsigned, `:l` a signed one of 64 bits; others are signed numbers of 32 bits.
#[rustfmt::skip]
const ARGUMENTS: &[&str] = &[
    "read fd buf:p count:u",
    "write fd buf:p count:u",
    "open path:p flags:x mode:o",
    "close fd",
    "stat path:p buf:p",
    "fstat fd buf:p",
    "lstat path:p buf:p",
    "poll fds:p count:u timeout",
    "lseek fd offset:l whence",
    "mmap addr:p length:u prot:x flags:x fd offset:x",
    "mprotect addr:p length:u prot:x",
    "munmap addr:p length:u",
    "brk addr:p",
    "rt_sigaction signal new:p old:p size:u",
    "rt_sigprocmask how new:p old:p size:u",
    "rt_sigreturn",
    "ioctl fd request:x argument:x",
    "pread64 fd buf:p count:u offset:l",
    "pwrite64 fd buf:p count:u offset:l",
    "readv fd vectors:p count:u",
    "writev fd vectors:p count:u",
    "access path:p mode:o",
    "pipe fds:p",
    "select count reads:p writes:p exceptions:p timeout:p",
    "sched_yield",
    "mremap old:p old_length:u length:u flags:x addr:p",
    "msync addr:p length:u flags:x",
    "madvise addr:p length:u advice",
    "dup fd",
    "dup2 fd new_fd",
    "pause",
    "nanosleep time:p rest:p",
    "getpid",
    "sendfile out_fd in_fd offset:p count:u",
    "socket domain type:x protocol",
    "connect fd address:p length:u",
    "accept fd address:p length:p",
    "sendto fd buf:p count:u flags:x address:p length:u",
    "recvfrom fd buf:p count:u flags:x address:p length:p",
    "sendmsg fd message:p flags:x",
    "recvmsg fd message:p flags:x",
    "shutdown fd how",
    "bind fd address:p length:u",
    "listen fd backlog",
    "getsockname fd address:p length:p",
    "getpeername fd address:p length:p",
    "socketpair domain type:x protocol fds:p",
    "setsockopt fd level option value:p length:u",
    "getsockopt fd level option value:p length:p",
    "clone flags:x stack:p parent_tid:p child_tid:p tls:p",
    "fork",
    "vfork",
    "execve path:p arguments:p environment:p",
    "wait4 pid status:p options:x usage:p",
    "kill pid signal",
    "uname buf:p",
    "semop id operations:p count:u",
    "fcntl fd command argument:x",
    "flock fd operation:x",
    "fsync fd",
    "fdatasync fd",
    "truncate path:p length:l",
    "ftruncate fd length:l",
    "getcwd buf:p size:u",
    "chdir path:p",
    "fchdir fd",
    "rename old:p new:p",
    "mkdir path:p mode:o",
    "rmdir path:p",
    "link old:p new:p",
    "unlink path:p",
    "symlink target:p path:p",
    "readlink path:p buf:p size:u",
    "chmod path:p mode:o",
    "fchmod fd mode:o",
    "umask mode:o",
    "gettimeofday time:p zone:p",
    "getrlimit resource limit:p",
    "getrusage who usage:p",
    "sysinfo info:p",
    "times buf:p",
    "getuid",
    "getgid",
    "geteuid",
    "getegid",
    "getppid",
    "setsid",
    "sigaltstack new:p old:p",
    "mlock addr:p length:u",
    "munlock addr:p length:u",
    "prctl option arg2:x arg3:x arg4:x arg5:x",
    "arch_prctl code:x addr:p",
    "sync",
    "gettid",
    "tkill tid signal",
    "sched_setaffinity tid length:u mask:p",
    "sched_getaffinity tid length:u mask:p",
    "getdents64 fd buf:p count:u",
    "set_tid_address tid:p",
    "restart_syscall",
    "semtimedop id operations:p count:u timeout:p",
    "clock_gettime clock time:p",
    "clock_getres clock time:p",
    "clock_nanosleep clock flags:x time:p rest:p",
    "epoll_create size",
    "epoll_wait epfd events:p count timeout",
    "epoll_ctl epfd operation fd event:p",
    "tgkill pid tid signal",
    "waitid type id info:p options:x usage:p",
    "inotify_add_watch fd path:p mask:x",
    "openat dirfd path:p flags:x mode:o",
    "mkdirat dirfd path:p mode:o",
    "newfstatat dirfd path:p buf:p flags:x",
    "unlinkat dirfd path:p flags:x",
    "renameat old_dirfd old:p new_dirfd new:p",
    "readlinkat dirfd path:p buf:p size:u",
    "faccessat dirfd path:p mode:o",
    "pselect6 count reads:p writes:p exceptions:p timeout:p mask:p",
    "ppoll fds:p count:u timeout:p mask:p size:u",
    "unshare flags:x",
    "set_robust_list head:p length:u",
    "splice in_fd in_offset:p out_fd out_offset:p count:u flags:x",
    "utimensat dirfd path:p times:p flags:x",
    "epoll_pwait epfd events:p count timeout mask:p size:u",
    "timerfd_create clock flags:x",
    "fallocate fd mode:x offset:l length:l",
    "timerfd_settime fd flags:x new:p old:p",
    "accept4 fd address:p length:p flags:x",
    "eventfd2 value:u flags:x",
    "epoll_create1 flags:x",
    "dup3 fd new_fd flags:x",
    "pipe2 fds:p flags:x",
    "preadv fd vectors:p count:u offset:l",
    "pwritev fd vectors:p count:u offset:l",
    "recvmmsg fd messages:p count:u flags:x timeout:p",
    "prlimit64 pid resource new:p old:p",
    "syncfs fd",
    "sendmmsg fd messages:p count:u flags:x",
    "getcpu cpu:p node:p",
    "process_vm_readv pid local:p local_count:u remote:p remote_count:u flags:x",
    "renameat2 old_dirfd old:p new_dirfd new:p flags:x",
    "getrandom buf:p count:u flags:x",
    "memfd_create name:p flags:x",
    "membarrier command:x flags:x cpu",
    "copy_file_range in_fd in_offset:p out_fd out_offset:p count:u flags:x",
    "statx dirfd path:p flags:x mask:x buf:p",
    "rseq rseq:p length:u flags:x signature:x",
    "pidfd_send_signal fd signal info:p flags:x",
    "io_uring_setup entries:u parameters:p",
    "io_uring_enter fd submit:u complete:u flags:x argument:p size:u",
    "pidfd_open pid flags:x",
    "clone3 arguments:p size:u",
    "close_range first:u last:u flags:x",
    "faccessat2 dirfd path:p mode:o flags:x",
    "epoll_pwait2 epfd events:p count timeout:p mask:p size:u",
];

/// Names of errors by number, from 1 on; the empty ones are not used.
#[rustfmt::skip]
const ERRORS: &[&str] = &[
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD", "EAGAIN", "ENOMEM",
    "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR", "EISDIR", "EINVAL", "ENFILE",
    "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE",
    "EDEADLK", "ENAMETOOLONG", "ENOLCK", "ENOSYS", "ENOTEMPTY", "ELOOP", "", "ENOMSG", "EIDRM", "ECHRNG", "EL2NSYNC",
    "EL3HLT", "EL3RST", "ELNRNG", "EUNATCH", "ENOCSI", "EL2HLT", "EBADE", "EBADR", "EXFULL", "ENOANO", "EBADRQC",
    "EBADSLT", "", "EBFONT", "ENOSTR", "ENODATA", "ETIME", "ENOSR", "ENONET", "ENOPKG", "EREMOTE", "ENOLINK", "EADV",
    "ESRMNT", "ECOMM", "EPROTO", "EMULTIHOP", "EDOTDOT", "EBADMSG", "EOVERFLOW", "ENOTUNIQ", "EBADFD", "EREMCHG",
    "ELIBACC", "ELIBBAD", "ELIBSCN", "ELIBMAX", "ELIBEXEC", "EILSEQ", "ERESTART", "ESTRPIPE", "EUSERS", "ENOTSOCK",
    "EDESTADDRREQ", "EMSGSIZE", "EPROTOTYPE", "ENOPROTOOPT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EOPNOTSUPP",
    "EPFNOSUPPORT", "EAFNOSUPPORT", "EADDRINUSE", "EADDRNOTAVAIL", "ENETDOWN", "ENETUNREACH", "ENETRESET",
    "ECONNABORTED", "ECONNRESET", "ENOBUFS", "EISCONN", "ENOTCONN", "ESHUTDOWN", "ETOOMANYREFS", "ETIMEDOUT",
    "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "EALREADY", "EINPROGRESS", "ESTALE", "EUCLEAN", "ENOTNAM",
    "ENAVAIL", "EISNAM", "EREMOTEIO", "EDQUOT", "ENOMEDIUM", "EMEDIUMTYPE", "ECANCELED", "ENOKEY", "EKEYEXPIRED",
    "EKEYREVOKED", "EKEYREJECTED", "EOWNERDEAD", "ENOTRECOVERABLE", "ERFKILL", "",
];

/// Errors that only the kernel and tracers see, for calls that a signal interrupted, by number.
const RESTARTS: [(u64, &str); 4] =
    [(512, "ERESTARTSYS"), (513, "ERESTARTNOINTR"), (514, "ERESTARTNOHAND"), (516, "ERESTART_RESTARTBLOCK")];

/// Results of these calls are addresses.
const ADDRESSES: [&str; 4] = ["mmap", "mremap", "brk", "shmat"];
/// Stands for the working directory where a descriptor is expected.
const AT_FDCWD: i32 = -100;

/// Returns the names of a call's arguments with their forms. Those of calls without a description
/// are six numbers.
fn arguments(number: u32) -> Vec<(&'static str, char)> {
    let futex = [("uaddr", 'f'), ("operation", 'f'), ("value", 'u')];
    let several = [("waiters", 'p'), ("count", 'u'), ("flags", 'x'), ("timeout", 'p'), ("clock", 'd')];
    let name = name(number).unwrap_or_default();
    match name {
        "futex" => return futex.to_vec(),
        "futex_wait" | "futex_wake" => return [futex[0]].to_vec(),
        "futex_waitv" => return several.to_vec(),
        "exit" | "exit_group" => return [("status", 'd')].to_vec(),
        _ => {}
    }
    let described = ARGUMENTS.iter().find_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(name)).then_some(words)
    });
    let Some(words) = described else {
        return ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"].map(|name| (name, 'x')).to_vec();
    };
    words
        .map(|word| {
            let (name, form) = word.split_once(':').unwrap_or((word, "d"));
            (name, form.chars().next().unwrap_or('d'))
        })
        .collect()
}

/// Returns the meaning of the values of a system call's events.
pub(super) fn captured(number: u32) -> Arc<Captured> {
    let value = |name: &str| Value { name: name.to_owned(), form: ValueForm::Object };
    let arguments = arguments(number).into_iter().map(|(name, _)| value(name)).collect();
    Arc::new(Captured { arguments, results: vec![value("retval")], future: None })
}

fn put_integer(number: i64, out: &mut Vec<u8>) {
    out.push(kind::INTEGER);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_word(word: &str, out: &mut Vec<u8>) {
    const MAX_WORD_LEN: usize = 0x7f;
    let kept = &word.as_bytes()[..word.len().min(MAX_WORD_LEN)];
    let is_cut = kept.len() < word.len();
    out.extend_from_slice(&[kind::WORD, kept.len() as u8 | u8::from(is_cut) << 7]);
    out.extend_from_slice(kept);
}

/// Writes the arguments of a call; `place` names the address of a futex.
pub(super) fn put_arguments(
    number: u32,
    values: &[u64; 6],
    place: &dyn Fn(u64) -> Option<String>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&[0, 0]);
    let futex = futex(number, values).filter(|futex| futex.address != SEVERAL);
    for ((name, form), value) in arguments(number).into_iter().zip(values) {
        match (form, &futex) {
            ('f', Some(futex)) if name == "operation" => put_word(futex.operation, out),
            ('f', Some(futex)) => {
                let place = place(futex.address).unwrap_or_else(|| format!("{value:#x}"));
                put_word(&place, out);
            }
            ('p', _) if *value == 0 => put_word("NULL", out),
            ('p' | 'x' | 'f', _) => put_word(&format!("{value:#x}"), out),
            ('o', _) => put_word(&format!("{:#o}", *value as u32), out),
            ('u' | 'l', _) => put_integer(*value as i64, out),
            _ if *value as i32 == AT_FDCWD && name.ends_with("dirfd") => put_word("AT_FDCWD", out),
            _ => put_integer(i64::from(*value as i32), out),
        }
    }
}

/// Writes the result of a call.
pub(super) fn put_result(number: u32, result: i64, out: &mut Vec<u8>) {
    const ERRORS_END: u64 = 4096;
    out.extend_from_slice(&[0, 0]);
    let error = result.unsigned_abs();
    let of_error = || {
        let name = ERRORS.get((error as usize).wrapping_sub(1)).copied().filter(|name| !name.is_empty());
        let restart = RESTARTS.iter().find(|(number, _)| *number == error).map(|(_, name)| *name);
        name.or(restart)
    };
    let is_error = result < 0 && error < ERRORS_END;
    match of_error().filter(|_| is_error) {
        Some(name) => put_word(&format!("-{name}"), out),
        None if !is_error && name(number).is_some_and(|name| ADDRESSES.contains(&name)) => {
            put_word(&format!("{result:#x}"), out);
        }
        None => put_integer(result, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(returns: bool, number: u32, bytes: &[u8]) -> String {
        let captured = captured(number);
        let all = captured.read(returns, bytes).map(|(name, datum)| format!("{name}={datum}"));
        all.collect::<Vec<_>>().join(" ")
    }

    fn arguments_of(number: u32, values: [u64; 6]) -> String {
        let mut bytes = Vec::new();
        let place = |address: u64| (address == 5).then(|| "lock".to_owned());
        put_arguments(number, &values, &place, &mut bytes);
        shown(false, number, &bytes)
    }

    fn result_of(number: u32, result: i64) -> String {
        let mut bytes = Vec::new();
        put_result(number, result, &mut bytes);
        shown(true, number, &bytes)
    }

    #[test]
    fn arguments_have_names_and_forms() {
        assert_eq!(arguments_of(0, [3, 0x7f00, 9, 0, 0, 0]), "fd=3 buf=0x7f00 count=9");
        assert_eq!(
            arguments_of(257, [-100_i64 as u64, 0, 0x241, 0o644, 0, 0]),
            "dirfd=AT_FDCWD path=NULL flags=0x241 mode=0o644"
        );
        assert_eq!(arguments_of(202, [5, 128, 2, 0, 0, 0]), "uaddr=lock operation=FUTEX_WAIT value=2");
        assert_eq!(arguments_of(202, [6, 129, 1, 0, 0, 0]), "uaddr=0x6 operation=FUTEX_WAKE value=1");
        assert_eq!(arguments_of(39, [1; 6]), "");
        assert_eq!(arguments_of(9999, [1; 6]), "arg1=0x1 arg2=0x1 arg3=0x1 arg4=0x1 arg5=0x1 arg6=0x1");
    }

    #[test]
    fn results_are_numbers_addresses_or_errors() {
        let results = [result_of(0, 7), result_of(0, -11), result_of(9, 0x7000), result_of(35, -516)];
        let expected = ["retval=7", "retval=-EAGAIN", "retval=0x7000", "retval=-ERESTART_RESTARTBLOCK"];
        assert_eq!(results, expected);
        assert_eq!([result_of(9, -12), result_of(0, -4000)], ["retval=-ENOMEM", "retval=-4000"]);
    }

    #[test]
    fn described_calls_exist() {
        let has = |name: &str| (0..512).any(|number| super::name(number) == Some(name));
        for line in ARGUMENTS {
            assert!(line.split(' ').next().is_some_and(has), "{line}");
            assert!(line.split(' ').skip(1).count() <= 6, "{line}");
        }
    }
}
