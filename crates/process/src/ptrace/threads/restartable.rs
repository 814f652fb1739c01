//! System calls that calltap restarts.

/// System calls that end with EINTR when their thread is held, and that can be made again, as they
/// have had no effect.
pub(super) const RESTARTABLE: &[u64] = &[
    0,   // read (of a socket with a time limit)
    1,   // write
    2,   // open (of a file in a file system that is served by a process)
    19,  // readv
    20,  // writev
    40,  // sendfile
    42,  // connect (with a time limit)
    43,  // accept
    44,  // sendto
    45,  // recvfrom
    46,  // sendmsg
    47,  // recvmsg
    65,  // semop
    83,  // mkdir
    84,  // rmdir
    128, // rt_sigtimedwait
    208, // io_getevents
    220, // semtimedop
    232, // epoll_wait
    257, // openat
    258, // mkdirat
    263, // unlinkat
    275, // splice
    281, // epoll_pwait
    288, // accept4
    299, // recvmmsg
    307, // sendmmsg
    333, // io_pgetevents
    426, // io_uring_enter
    441, // epoll_pwait2
];
