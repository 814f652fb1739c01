//! System calls as text: the arguments that tell what a thread waits for.

use calltap_trace::{SEVERAL_FUTEXES as SEVERAL, futex, system_call_name as name};

/// System calls whose first argument is a file descriptor.
const OF_DESCRIPTORS: [&str; 24] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "recvmmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "fsync",
    "fdatasync",
    "ioctl",
    "flock",
    "fcntl",
    "epoll_wait",
    "epoll_pwait",
];

/// Formats a system call: `read(7)`, `clock_nanosleep()`; `place` names the address of a futex.
pub(crate) fn text(number: u32, arguments: Option<&[u64; 6]>, place: &dyn Fn(u64) -> String) -> String {
    let Some(name) = name(number) else { return format!("system call {number}") };
    let Some(arguments) = arguments else { return format!("{name}(?)") };
    if let Some(futex) = futex(number, arguments) {
        return match futex.address {
            SEVERAL => format!("{name}(several futexes)"),
            address => format!("{name}({}, {})", place(address), futex.operation),
        };
    }
    match name {
        _ if OF_DESCRIPTORS.contains(&name) => format!("{name}({})", arguments[0] as i32),
        "wait4" | "waitid" => format!("{name}({})", arguments[usize::from(name == "waitid")] as i32),
        _ => format!("{name}()"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_described_with_awaited_objects() {
        let place = |address: u64| format!("at{address}");
        let descriptions = |number, arguments: &[u64; 6]| text(number, Some(arguments), &place);
        assert_eq!(descriptions(202, &[5, 128, 2, 0, 0, 0]), "futex(at5, FUTEX_WAIT)");
        assert_eq!(descriptions(202, &[5, 393, 2, 0, 0, 0]), "futex(at5, FUTEX_WAIT_BITSET)");
        assert_eq!(descriptions(455, &[5, 1, 2, 2, 0, 0]), "futex_wait(at5, FUTEX2_WAIT)");
        assert_eq!(descriptions(454, &[5, 1, 2, 2, 0, 0]), "futex_wake(at5, FUTEX2_WAKE)");
        assert_eq!(descriptions(449, &[5, 2, 0, 0, 0, 0]), "futex_waitv(several futexes)");
        assert_eq!(descriptions(0, &[7, 1, 2, 0, 0, 0]), "read(7)");
        assert_eq!(descriptions(230, &[0; 6]), "clock_nanosleep()");
        assert_eq!(
            (descriptions(9999, &[0; 6]), text(0, None, &place)),
            ("system call 9999".into(), "read(?)".into())
        );
    }
}
