//! Starts the program with the agent inside, and lets signals and its end pass as if calltap were not there.
//!
//! Unsafe because changing calltap's own environment is: it happens before any other thread exists, so that the program gets its variables in their
//! order, plus LD_PRELOAD (which the agent takes out again). And because what Rust's runtime and `Command` do to SIGPIPE and to blocked signals has
//! to be undone between fork and exec.
#![allow(unsafe_code)]

use crate::error::Error;

use crate::proc;
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{env, fs, io, thread};

const PRELOAD: &str = "LD_PRELOAD";

/// The dispositions calltap was started with, before Rust's runtime changed them: is SIGPIPE ignored, which signals are blocked.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: an initialiser, run by the C library before `main`; it makes two queries and stores two atomics.
#[unsafe(link_section = ".init_array")]
#[used]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    // SAFETY: queries only: no new action, no new set. Zeroed is a valid value of both types.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0 {
            PIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Relaxed);
        }
        let mut blocked = 0u64;
        let set = (&raw mut blocked).cast::<libc::sigset_t>();
        // The kernel's set is 8 bytes; glibc's is longer, so this is the system call itself.
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, std::ptr::null::<libc::sigset_t>(), set, 8);
        BLOCKED.store(blocked, Relaxed);
    }
}

/// Is SIGXFSZ ignored by this process only?
static SIZE_SIGNAL_TAKEN: AtomicBool = AtomicBool::new(false);

/// From now on a write beyond the limit of file sizes fails, and does not kill this process. What it starts has what it had.
pub fn survive_size_limit() {
    // SAFETY: no handler is installed.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_DFL {
        SIZE_SIGNAL_TAKEN.store(true, Relaxed);
    }
}

/// In the child, last thing before exec: the dispositions of [`remember`].
fn restore() -> io::Result<()> {
    let blocked = BLOCKED.load(Relaxed);
    // SAFETY: async-signal-safe system calls, allowed between fork and exec.
    unsafe {
        if PIPE_IGNORED.load(Relaxed) {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        if SIZE_SIGNAL_TAKEN.load(Relaxed) {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        }
        let (set, none) = ((&raw const blocked), std::ptr::null::<u64>());
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, none, 8);
    }
    Ok(())
}

/// In the child: says which process it is, and waits until it is traced. Should the recorder be killed before that, it ends: the last copy of the
/// recorder's end of the socket, number `other`, is closed then.
fn await_tracer(mut recorder: &UnixStream, other: RawFd) -> io::Result<()> {
    // SAFETY: the child's copy of it, which nothing in the child uses.
    unsafe { libc::close(other) };
    let pid = getpid().as_raw_nonzero().get();
    let is_traced = recorder.write_all(&pid.to_ne_bytes()).and_then(|()| recorder.read_exact(&mut [0]));
    if is_traced.is_err() {
        // No process is left to report an error to.
        // SAFETY: async-signal-safe, and nothing of this process is needed any more.
        unsafe { libc::_exit(1) };
    }
    Ok(())
}

/// Starts `command`; `hold` traces it. Its second argument lets the child go on to its execve, once it is traced.
///
/// The recorder attaches (PTRACE_SEIZE). Had the child asked to be traced (PTRACE_TRACEME), its execve would raise SIGTRAP, which ends the program should the
/// recorder be killed just then.
pub fn spawn_held<T>(
    command: &[OsString],
    hold: impl FnOnce(u32, &mut dyn FnMut()) -> T,
) -> Result<(Child, T), Error> {
    let (mut here, there) =
        UnixStream::pair().map_err(|source| Error::System { what: "a socket for the program", source })?;
    let other = here.as_raw_fd();
    thread::scope(|scope| {
        let spawn = || {
            start(command, |command| {
                // SAFETY: async-signal-safe system calls.
                unsafe { command.pre_exec(move || await_tracer(&there, other)) };
            })
        };
        // It returns when the child has become its program, for which that has to be traced.
        let spawning = scope.spawn(spawn);
        let mut pid = [0; 4];
        // Where there is no child, its end of the socket is closed.
        let held = here.read_exact(&mut pid).ok().map(|()| {
            // A child that has ended takes nothing.
            hold(u32::from_ne_bytes(pid), &mut || drop(here.write_all(&[0])))
        });
        // A child that is not traced ends.
        drop(here);
        let child = spawning.join().unwrap_or_else(|_| Err(Error::thread()))?;
        held.map(|held| (child, held)).ok_or_else(Error::thread)
    })
}

/// Starts `command` with these libraries [preloaded](crate::injection::preload::list). Call before starting threads.
pub fn spawn(command: &[OsString], libraries: &OsStr) -> Result<Child, Error> {
    let before = env::var_os(PRELOAD);
    let mut value = libraries.to_owned();
    // Also if it is set and empty: then that is what the agent leaves.
    if let Some(before) = &before {
        value.push(":");
        value.push(before);
    }
    // SAFETY: no other thread exists yet.
    unsafe { env::set_var(PRELOAD, value) };
    let child = start(command, |_| {});
    match before {
        // SAFETY: as above.
        Some(before) => unsafe { env::set_var(PRELOAD, before) },
        // SAFETY: as above.
        None => unsafe { env::remove_var(PRELOAD) },
    }
    child
}

fn start(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<Child, Error> {
    let (program, arguments) = command.split_first().ok_or_else(|| Error::Program {
        program: String::new(),
        reason: "no program given".into(),
        exit_code: 2,
    })?;
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: `restore` makes async-signal-safe system calls only.
    unsafe { command.pre_exec(restore) };
    prepare(&mut command);
    command.spawn().map_err(|error| Error::Program {
        program: program.to_string_lossy().into_owned(),
        exit_code: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
        reason: error.to_string(),
    })
}

/// Becomes true when calltap is told to end (SIGINT, SIGTERM, SIGHUP) while a process is recorded that another has started.
///
/// A shell without job control has SIGINT ignored for what it starts by `&`: calltap takes it all the same, so that `kill -INT` ends it.
pub fn interruption() -> Result<Arc<AtomicBool>, Error> {
    let told = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    let is_taken = |n: &i32| *n == SIGINT || ignored >> (n - 1) & 1 == 0;
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_taken) {
        signal_hook::flag::register(signal, Arc::clone(&told))
            .map_err(|source| Error::System { what: "signal handlers", source })?;
    }
    Ok(told)
}

/// Becomes true when a snapshot is asked for (SIGUSR1), if that is `wanted`.
pub fn flag_for_snapshots(wanted: bool) -> Result<Arc<AtomicBool>, Error> {
    let sent = Arc::new(AtomicBool::new(false));
    if wanted {
        signal_hook::flag::register(SIGUSR1, Arc::clone(&sent))
            .map_err(|source| Error::System { what: "signal handlers", source })?;
    }
    Ok(sent)
}

/// Has a byte written whenever something happens to a child, or to a traced process.
pub fn ring_for_children(bell: UnixStream) -> io::Result<()> {
    bell.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, bell).map(drop)
}

/// Signals that would end calltap and are the program's business.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// Takes the signals over, but for SIGUSR1 if that is `ours`. Signals that are ignored (nohup) stay so, also in the program.
    pub fn take(ours: bool) -> Result<Signals, Error> {
        let ignored = ignored_signals();
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        let taken = all.into_iter().filter(|n| ignored >> (n - 1) & 1 == 0 && !(ours && *n == SIGUSR1));
        let signals = SignalsInfo::<WithOrigin>::new(taken);
        signals.map(Signals).map_err(|source| Error::System { what: "signal handlers", source })
    }

    /// Passes on, in a thread of its own, what was sent to calltap alone. What the terminal sends reaches the program by itself. When the program has ended
    /// and others are still followed, calltap itself is told to end: `stop`.
    pub fn forward(mut self, child: &Child, ended: Arc<AtomicBool>, stop: Arc<AtomicBool>) {
        let pid = child.id();
        std::thread::spawn(move || {
            for origin in self.0.forever() {
                if ended.load(Relaxed) {
                    stop.store(true, Relaxed);
                    continue;
                }
                let from_process = matches!(origin.cause, Cause::Sent(_));
                let signal =
                    [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2]
                        .into_iter()
                        .find(|signal| signal.as_raw() == origin.signal);
                if let (true, Some(signal), Some(pid)) = (from_process, signal, Pid::from_raw(pid as i32)) {
                    let _ = kill_process(pid, signal);
                }
            }
        });
    }
}

/// Becomes `command` instead of this program, in a process that has ended what it did; returns why not. Signals are those of `remember`, so that a program
/// that it starts has what this one was started with.
pub fn become_command(command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else { return io::ErrorKind::InvalidInput.into() };
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: `restore` makes async-signal-safe system calls only.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// Waits for its end. Not in waitpid: there, this thread would be told of the stops of the child that another thread of calltap's makes, and that thread would wait in vain.
pub fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id() as i32);
    if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {}
    }
    child.wait()
}

fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    proc::signals(&status, "SigIgn").unwrap_or(0)
}

/// User and system time of this process, or of its ended children.
pub fn cpu_ns(who: UsageWho) -> u64 {
    let Ok(usage) = getrusage(who) else { return 0 };
    let ns =
        |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1000;
    ns(usage.user_time()) + ns(usage.system_time())
}

/// Keeps this process from dumping core when it ends by the program's signal: the program has dumped its own.
pub fn no_core_dump() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// `exit 3`, `signal 11 (SIGSEGV)`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("?");
            format!("signal {signal} ({name})")
        }
        _ => "unknown".into(),
    }
}
