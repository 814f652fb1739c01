//! Starts the program with the agent inside, and passes signals and the exit status on as if
//! calltap were not there.
//!
//! Unsafe for two reasons, both between fork and exec. The child gets an environment in which the
//! variables keep their order, plus LD_PRELOAD, from which the agent removes itself. And the child
//! restores what Rust's runtime, `Command` and calltap change: signals, descriptors, the OOM score.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::free_memory;
use crate::proc::{self, Ended};
use crate::status::Status;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::{env, fs, io, thread};

const PRELOAD: &str = "LD_PRELOAD";

/// State at calltap's start, before Rust's runtime and calltap change it: whether SIGINT, SIGPIPE
/// and SIGCHLD were ignored, the mask of blocked signals, and the standard descriptors that were
/// closed, a bit each.
static INT_IGNORED: AtomicBool = AtomicBool::new(false);
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

// SAFETY: an initialiser, run by the C library before `main`; it makes system calls without
// pointers to anything but its own variables, and stores atomics.
#[unsafe(link_section = ".init_array")]
#[used]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    // SAFETY: queries, and a default action: no handler is installed. Zeroed is a valid value of
    // both types.
    unsafe {
        let is_ignored = |signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        };
        INT_IGNORED.store(is_ignored(libc::SIGINT), Relaxed);
        PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
        if is_ignored(libc::SIGCHLD) {
            // The kernel would reap children by itself, with their statuses.
            CHILD_IGNORED.store(true, Relaxed);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
        let is_closed = |descriptor: &i32| libc::fcntl(*descriptor, libc::F_GETFD) < 0;
        CLOSED.store((0..3).filter(is_closed).map(|descriptor| 1 << descriptor).sum(), Relaxed);
        let mut blocked = 0u64;
        let set = (&raw mut blocked).cast::<libc::sigset_t>();
        // The kernel's set is 8 bytes; glibc's is longer, so this is the system call itself.
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, std::ptr::null::<libc::sigset_t>(), set, 8);
        BLOCKED.store(blocked, Relaxed);
    }
}

/// Whether SIGXFSZ is ignored by this process only, not by the programs that it starts.
static SIZE_SIGNAL_TAKEN: AtomicBool = AtomicBool::new(false);

/// Prepares this process for recording. Fails if its limits leave it too little memory.
pub fn prepare_to_record() -> Result<(), Error> {
    survive_size_limit();
    check_address_space()?;
    free_memory::check()
}

/// Makes a write beyond the file size limit fail instead of killing this process. Programs that it
/// starts keep the former disposition.
fn survive_size_limit() {
    // SAFETY: no handler is installed.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_DFL {
        SIZE_SIGNAL_TAKEN.store(true, Relaxed);
    }
}

/// `oom_score_adj` of this process before [`raise_oom_score`]; [`UNRAISED`] if calltap has not
/// changed it.
static OOM_SCORE_ADJ: AtomicI32 = AtomicI32::new(UNRAISED);
const UNRAISED: i32 = i32::MIN;
const OOM_SCORE_FILE: &CStr = c"/proc/self/oom_score_adj";
const MAX_OOM_SCORE: i32 = 1000;

/// Makes the kernel end this process, and not the program that is traced, if memory runs out in
/// their control group or on the machine. Programs that it starts have the former score.
pub fn raise_oom_score() {
    let file = OsStr::from_bytes(OOM_SCORE_FILE.to_bytes());
    let before = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    // Each process may raise its own score.
    if let (Some(before), Ok(())) = (before, fs::write(file, MAX_OOM_SCORE.to_string())) {
        OOM_SCORE_ADJ.store(before, Relaxed);
    }
}

/// Restores the score saved by [`raise_oom_score`], in a child.
fn restore_oom_score() {
    let score = OOM_SCORE_ADJ.load(Relaxed);
    if score == UNRAISED {
        return;
    }
    const LENGTH: usize = 12;
    let mut text = [0; LENGTH];
    let mut rest = &mut text[..];
    let _ = write!(rest, "{score}");
    let length = LENGTH - rest.len();
    // SAFETY: async-signal-safe system calls; the text is `length` bytes long, and the file's name
    // is a string.
    unsafe {
        let file = libc::open(OOM_SCORE_FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, text.as_ptr().cast(), length);
            libc::close(file);
        }
    }
}

/// Makes a child begin as this process did, without what calltap has changed in itself.
pub fn as_started(command: &mut Command) -> &mut Command {
    // SAFETY: `restore` makes async-signal-safe system calls only.
    unsafe { command.pre_exec(restore) }
}

/// Address space that the recorder takes, with its threads and the files that it decodes.
const ADDRESS_SPACE: u64 = 1 << 30;

/// Fails if this process may not map the memory that recording takes. Running out of it later would
/// end calltap with the program waiting.
fn check_address_space() -> Result<(), Error> {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit < ADDRESS_SPACE => {
            let why = format!(
                "the limit of address space (ulimit -v) is {} kB, and calltap needs {} kB",
                limit >> 10,
                ADDRESS_SPACE >> 10
            );
            Err(Error::System { what: "recording", source: io::Error::other(why) })
        }
        _ => Ok(()),
    }
}

/// Restores the state saved by [`remember`]. Runs before exec.
fn restore() -> io::Result<()> {
    restore_oom_score();
    let (blocked, closed) = (BLOCKED.load(Relaxed), CLOSED.load(Relaxed));
    // SAFETY: async-signal-safe system calls, allowed between fork and exec.
    unsafe {
        if INT_IGNORED.load(Relaxed) {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
        }
        if PIPE_IGNORED.load(Relaxed) {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        if CHILD_IGNORED.load(Relaxed) {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        // Rust's runtime has opened /dev/null there.
        for descriptor in (0..3).filter(|descriptor| closed & (1 << descriptor) != 0) {
            libc::close(descriptor);
        }
        if SIZE_SIGNAL_TAKEN.load(Relaxed) {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        }
        let (set, none) = ((&raw const blocked), std::ptr::null::<u64>());
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, none, 8);
    }
    Ok(())
}

/// Runs in the child: sends its process id, and waits until it is traced.
///
/// `other` is the child's copy of the recorder's end of the socket: with it closed, the read fails
/// if the recorder is killed meanwhile, and the child exits.
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

/// Starts `command` and has `hold` trace the child. The second argument of `hold` lets the traced
/// child go on to its execve.
///
/// The recorder attaches with PTRACE_SEIZE. With PTRACE_TRACEME, execve would raise SIGTRAP, which
/// ends the program if the recorder is killed just then.
pub fn spawn_held<T>(
    command: &[OsString],
    hold: impl FnOnce(u32, &mut dyn FnMut()) -> T,
) -> Result<(Child, T), Error> {
    let (mut own_end, child_end) =
        UnixStream::pair().map_err(|source| Error::System { what: "a socket for the program", source })?;
    let other = own_end.as_raw_fd();
    thread::scope(|scope| {
        let spawn = || {
            start(command, |command| {
                // SAFETY: async-signal-safe system calls.
                unsafe { command.pre_exec(move || await_tracer(&child_end, other)) };
            })
        };
        // `spawn` returns only after the child's execve, for which the child has to be traced
        // first.
        let spawning = scope.spawn(spawn);
        let mut pid = [0; 4];
        // If no child was made, its end of the socket is closed, and the read fails.
        let held = own_end.read_exact(&mut pid).ok().map(|()| {
            // Writing to a child that has ended fails, which does not matter.
            hold(u32::from_ne_bytes(pid), &mut || drop(own_end.write_all(&[0])))
        });
        // Closing the socket ends a child that is not traced.
        drop(own_end);
        let child = spawning.join().unwrap_or_else(|_| Err(Error::thread()))?;
        held.map(|held| (child, held)).ok_or_else(Error::thread)
    })
}

/// Starts `command` with these libraries [preloaded](crate::injection::preload::list).
pub fn spawn(command: &[OsString], libraries: &OsStr) -> Result<Child, Error> {
    let environment = Environment::preloading(libraries)?;
    start(command, |command| {
        // SAFETY: a store to a variable that the child alone has.
        unsafe { command.pre_exec(move || environment.install()) };
    })
}

unsafe extern "C" {
    /// The C library's environment, which ends with a null pointer.
    static mut environ: *const *const c_char;
}

/// An environment for a child: this process's variables in their order. `Command` would sort them.
struct Environment {
    /// Variables, and a null pointer behind them.
    variables: Vec<*const c_char>,
    /// The one variable that calltap adds.
    _own: CString,
}

// SAFETY: the variables are read only, and calltap never changes its environment.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl Environment {
    /// Adds libraries in front of those that LD_PRELOAD names. A variable that is set and empty
    /// gets a colon, too: the agent then leaves an empty one.
    fn preloading(libraries: &OsStr) -> Result<Environment, Error> {
        let mut value = [PRELOAD.as_bytes(), b"=", libraries.as_bytes()].concat();
        if let Some(before) = env::var_os(PRELOAD) {
            value.extend([b":", before.as_bytes()].concat());
        }
        let nul = |_| Error::System {
            what: "LD_PRELOAD of the program",
            source: io::ErrorKind::InvalidInput.into(),
        };
        let own = CString::new(value).map_err(nul)?;
        let (mut variables, mut is_new) = (Vec::new(), true);
        // SAFETY: the C library's array of strings, which calltap never changes.
        let mut next = unsafe { environ };
        // SAFETY: `next` is null, or points into that array, at its end or in front of it.
        while let Some(variable) = unsafe { next.as_ref() }.copied().filter(|variable| !variable.is_null()) {
            // SAFETY: a variable is a string.
            let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
            let is_replaced =
                is_new && text.strip_prefix(PRELOAD.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
            is_new &= !is_replaced;
            variables.push(if is_replaced { own.as_ptr() } else { variable });
            // SAFETY: this was not the last pointer of the array.
            next = unsafe { next.add(1) };
        }
        variables.extend(is_new.then_some(own.as_ptr()));
        variables.push(std::ptr::null());
        Ok(Environment { variables, _own: own })
    }

    /// Makes it the environment of this process. Runs in the child, before exec.
    fn install(&self) -> io::Result<()> {
        // SAFETY: the child has one thread, and this array lives until exec.
        unsafe { environ = self.variables.as_ptr() };
        Ok(())
    }
}

fn start(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<Child, Error> {
    let (program, arguments) = command.split_first().ok_or_else(|| Error::Program {
        program: String::new(),
        reason: "no program given".into(),
        exit_code: 1,
    })?;
    let mut command = Command::new(program);
    as_started(&mut command).args(arguments);
    prepare(&mut command);
    command.spawn().map_err(|error| Error::Program {
        program: program.to_string_lossy().into_owned(),
        exit_code: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
        reason: error.to_string(),
    })
}

/// Returns a flag that becomes true when calltap gets SIGINT, SIGTERM or SIGHUP while it records a
/// process that it did not start.
///
/// A shell without job control lets the commands that it starts by `&` ignore SIGINT: calltap takes
/// it all the same, so that `kill -INT` ends it.
pub fn interruption() -> Result<Arc<AtomicBool>, Error> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    let is_taken = |n: &i32| *n == SIGINT || ignored >> (n - 1) & 1 == 0;
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_taken) {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))
            .map_err(|source| Error::System { what: "signal handlers", source })?;
    }
    Ok(is_interrupted)
}

/// Returns a flag that becomes true when SIGUSR1 requests a snapshot, if such requests are
/// `wanted`.
pub fn flag_for_snapshots(wanted: bool) -> Result<Arc<AtomicBool>, Error> {
    let sent = Arc::new(AtomicBool::new(false));
    if wanted {
        signal_hook::flag::register(SIGUSR1, Arc::clone(&sent))
            .map_err(|source| Error::System { what: "signal handlers", source })?;
    }
    Ok(sent)
}

/// Makes each SIGCHLD write a byte to `bell`: an event of a child or of a traced process.
pub fn ring_for_children(bell: UnixStream) -> io::Result<()> {
    bell.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, bell).map(drop)
}

/// Signals that would end calltap and are meant for the program.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// Takes the signals over, except for SIGUSR1 if it is `ours`. Ignored signals (nohup) stay
    /// ignored, in the program as well; SIGINT only there, for a message to the user.
    pub fn take(ours: bool) -> Result<Signals, Error> {
        let ignored = ignored_signals();
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        let is_ignored = |signal: i32| signal != SIGINT && ignored >> (signal - 1) & 1 != 0;
        let taken = all.into_iter().filter(|signal| !(is_ignored(*signal) || ours && *signal == SIGUSR1));
        let signals = SignalsInfo::<WithOrigin>::new(taken);
        signals.map(Signals).map_err(|source| Error::System { what: "signal handlers", source })
    }

    /// Forwards signals that were sent to calltap alone, in a thread of its own. Signals of the
    /// terminal reach the program by themselves. If the program has ended and other processes are
    /// still followed, a signal sets `stop`. `tell` reports a SIGINT that the program ignores.
    ///
    /// A program that a script has started by `&`, with calltap, ignores SIGINT because calltap
    /// does: it gets SIGTERM, so that `kill -INT` of calltap ends both there, too.
    pub fn forward(mut self, child: &Child, ended: Arc<AtomicBool>, stop: Arc<AtomicBool>, tell: fn(&str)) {
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
                if let (true, Some(signal), Some(to)) = (from_process, signal, Pid::from_raw(pid as i32)) {
                    let is_ignored = signal == Signal::INT && is_ignored(pid, signal);
                    let is_inherited = is_ignored && INT_IGNORED.load(Relaxed);
                    let _ = kill_process(to, if is_inherited { Signal::TERM } else { signal });
                    if is_ignored && !is_inherited {
                        tell(IGNORED);
                    }
                }
            }
        });
    }
}

/// Message about a SIGINT without effect.
const IGNORED: &str = "the program ignores SIGINT, and runs on: SIGTERM ends both";

/// Whether a process ignores a signal. False if that cannot be read.
fn is_ignored(pid: u32, signal: Signal) -> bool {
    let ignored = Status::of(pid).ok().and_then(|status| status.signals("SigIgn")).unwrap_or(0);
    ignored & 1 << (signal.as_raw() - 1) != 0
}

/// Replaces this process with `command`; returns the error if that fails. The signal state is that
/// saved by `remember`, so that the new program has the one that calltap was started with.
pub fn become_command(command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else { return io::ErrorKind::InvalidInput.into() };
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: `restore` makes async-signal-safe system calls only.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// Waits for the end of the child.
///
/// waitpid is not used before the end: it would report the child's ptrace stops to this thread, and
/// another thread of calltap would wait for them in vain.
pub fn wait(child: &mut Child) -> io::Result<(ExitStatus, Option<Ended>)> {
    let pid = Pid::from_raw(child.id() as i32);
    let mut ended = None;
    if let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {}
        ended = proc::ended(child.id());
    }
    Ok((child.wait()?, ended))
}

fn ignored_signals() -> u64 {
    Status::own().ok().and_then(|status| status.signals("SigIgn")).unwrap_or(0)
}

/// Returns the user and system time of this process, or of its ended children.
pub fn cpu_ns(who: UsageWho) -> u64 {
    let Ok(usage) = getrusage(who) else { return 0 };
    let ns =
        |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1000;
    ns(usage.user_time()) + ns(usage.system_time())
}

/// Keeps this process from dumping core when it ends by the program's signal: the program has
/// dumped its own.
pub fn no_core_dump() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Renders an exit status: `exit 3`, `signal 11 (SIGSEGV)`.
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
