//! `calltap tracefs mount`, `run`, `exec`: the control directory of a process, as a file system.
//!
//! `calltap tracefs mount` starts another calltap that serves the directory, and returns once it
//! does. In the serving process, one thread is the controller: it watches the traced process, and
//! `feed` passes its events to the directory. The requests of FUSE arrive in `filesystem`.
//! Operations that need the traced process are done by `worker`, in the order of their arrival;
//! requests without an answer yet are kept in `waiting`.

mod asked;
mod directories;
mod exec;
mod feed;
mod filesystem;
mod guard;
mod process_set;
mod server;
mod waiting;
mod worker;

pub use exec::run as exec;

use crate::command_line::arguments::Arguments;
use crate::command_line::values;
use crate::session_commands::say;
use anyhow::{Context, Result, anyhow, bail};
use calltap_process::launch::interruption;
use calltap_selection::{ParsedSelection, Selection, TracerSelection};
use calltap_session::{Options, PatchMode, PlanOptions, RingOptions, SessionOutcome, Subject, Watch, watch};
use feed::Feed;
use filesystem::Files;
use fuser::{Config, MountOption, SessionACL};
use process_set::ProcessSet;
use server::Server;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread;
use std::time::{Duration, Instant};

/// Time after which events become visible, if no request asks for them earlier.
const INTERVAL: Duration = Duration::from_millis(50);
/// Time in which readers can read to the end after the directory was unmounted.
const LAST_READS: Duration = Duration::from_secs(2);
/// Interval between two looks whether the session has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two looks for the libraries that filters wait for.
const TEND: Duration = Duration::from_millis(200);
/// Word of the serving process once files can be used.
const READY: &str = "mounted";
/// Environment variable of a serving process whose parent waits for [`READY`].
const BEHIND: &str = "CALLTAP_BEHIND";
/// How long a started program may take until it can be attached to.
const STARTING: Duration = Duration::from_secs(5);

/// An error that the process in which it occurred has already reported.
#[derive(Debug)]
pub struct AlreadyReported;

impl std::fmt::Display for AlreadyReported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot mount the directory")
    }
}

impl std::error::Error for AlreadyReported {}

/// Mounts a directory, and returns once it can be used; a process of its own serves it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pid: Option<u32> = crate::command_line::processes::one(arguments)?;
    let place = place(arguments, "operand")?;
    if let Some(there) = pid.and_then(mounted) {
        bail!("the directory of this process is mounted already: {}", there.display());
    }
    match (arguments.is_set("foreground"), pid) {
        (true, Some(pid)) => serve(pid, &place, arguments),
        (true, None) => serve_all(&place, arguments),
        (false, _) => in_background(pid, &place, arguments).map(drop),
    }
}

/// Returns the source in the list of mounts for the directory of a process.
fn source(pid: u32) -> String {
    format!("calltap:{pid}")
}

/// Source in the list of mounts for a directory of all processes.
const ALL: &str = "calltap:all";

/// Returns the mount points with a source.
fn places(source: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let own = format!("{source} ");
    let places = mounts.lines().filter_map(|line| line.strip_prefix(&own)?.split(' ').next());
    // The list has blanks and backslashes as octal escapes.
    places.map(|place| place.replace("\\040", " ").replace("\\134", "\\").into()).collect()
}

/// Returns the mount point of a process's directory, if it is mounted by itself.
fn elsewhere(pid: u32) -> Option<PathBuf> {
    places(&source(pid)).pop()
}

/// Returns the path of a process's directory, if it is mounted by itself or in a directory of all.
fn mounted(pid: u32) -> Option<PathBuf> {
    let among =
        || places(ALL).into_iter().map(|place| place.join(pid.to_string())).find(|place| place.is_dir());
    elsewhere(pid).or_else(among)
}

/// Returns the absolute path of the directory to mount on, as the working directory may change.
fn place(arguments: &Arguments, name: &str) -> Result<PathBuf> {
    let given = arguments.path(name).with_context(|| match name {
        "mount" => "no directory named: add '--mount DIRECTORY', where the program finds its own",
        _ => "no directory named: 'calltap tracefs mount DIRECTORY'",
    })?;
    let place = given.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("{0}: no such directory: 'mkdir {0}' makes it", given.display()),
        _ => anyhow!("{}: {error}", given.display()),
    })?;
    if !place.is_dir() {
        bail!("{}: not a directory", given.display());
    }
    Ok(place)
}

/// Starts a process that serves the directory, and waits until it does.
fn in_background(pid: Option<u32>, place: &Path, arguments: &Arguments) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("cannot find calltap's own program")?);
    command.args(["mount", "--foreground"]);
    if let Some(pid) = pid {
        command.args(["-p", &pid.to_string()]);
    }
    command.arg(place);
    if arguments.is_set("allow-int3") {
        command.arg("--allow-int3");
    }
    for name in ["buffer-size", "patch-mode"] {
        if let Some(value) = arguments.text(name) {
            command.arg(format!("--{name}")).arg(value);
        }
    }
    // Ctrl-C in the terminal must not reach the server.
    use std::os::unix::process::CommandExt;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).env(BEHIND, "1").process_group(0).spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim() != READY {
        child.wait()?;
        return Err(AlreadyReported.into());
    }
    Ok(child)
}

/// Returns the selection before the user has chosen any: no function.
fn nothing() -> Selection {
    let nop = TracerSelection {
        name: calltap_tracefs::control::TRACE.into(),
        kind: None,
        filter: Vec::new(),
        notrace: Vec::new(),
    };
    Selection { tracers: vec![nop], ..Selection::default() }
}

fn options(pid: u32, words: &Selection, buffer_size: Option<u64>, patch_mode: PatchMode) -> Result<Options> {
    let subject = Subject::Process { pid, duration: None, max_overhead: None };
    let selection = ParsedSelection::new(words, true)?;
    let rings = RingOptions { buffer_size, ..RingOptions::default() };
    Ok(Options { rings, ..Options::new(subject, PlanOptions::new(selection, patch_mode)) })
}

/// Attaches to the process, and serves its directory until the session ends.
fn serve_process(server: &Server, options: &Options) -> Result<SessionOutcome> {
    let mut feed = Feed::new(server);
    let outcome = watch(
        options,
        Watch {
            consumer: &mut feed,
            interval: INTERVAL,
            settled: false,
            over: &|| server.over.load(Acquire),
            meanwhile: &mut |_| {},
            mailbox: Some(&server.mailbox),
            due: Some(&server.due),
        },
    );
    server.end();
    Ok(outcome?)
}

/// Serves the directory until the process ends, the directory is unmounted, or calltap is told to
/// end.
fn serve(pid: u32, place: &Path, arguments: &Arguments) -> Result<()> {
    let words = Selection { int3: arguments.is_set("allow-int3"), ..nothing() };
    let options =
        options(pid, &words, values::buffer_size(arguments)?, values::patch_mode(arguments, false)?)?;
    let (server, told) = (Arc::new(Server::new(pid)), interruption()?);
    thread::scope(|scope| {
        let watching = scope.spawn(|| serve_process(&server, &options));
        let served = if server.await_begin() {
            worker::refresh(&server, None);
            let over = || server.over.load(Acquire) || told.load(Relaxed);
            Some(hold(Files::of(&server), &source(pid), place, &over, &|| server.end()))
        } else {
            None
        };
        server.over.store(true, Release);
        let outcome = watching
            .join()
            .map_err(|_| anyhow!("the thread that watches process {pid} failed: this is a bug of calltap"))?;
        let outcome = outcome?;
        say(&outcome.notes);
        served.transpose().map(drop)
    })
}

/// Serves a directory of directories until it is unmounted, or calltap is told to end.
fn serve_all(place: &Path, arguments: &Arguments) -> Result<()> {
    let (memory, mode) = (values::buffer_size(arguments)?, values::patch_mode(arguments, false)?);
    let int3 = arguments.is_set("allow-int3");
    let process_set = ProcessSet::new(Box::new(move |pid, words| {
        options(pid, &Selection { int3: int3 || words.int3, ..words }, memory, mode)
    }));
    let told = interruption()?;
    thread::scope(|scope| {
        let looking = scope.spawn(|| process_set.take_over_attached());
        let files = Files::of_all(Arc::clone(&process_set));
        let served = hold(files, ALL, place, &|| told.load(Relaxed), &|| process_set.close());
        process_set.close();
        let _ = looking.join();
        served
    })
}

/// Mounts the file system and keeps it mounted until `over`. `end` runs before it is unmounted.
fn hold(files: Files, source: &str, place: &Path, over: &dyn Fn() -> bool, end: &dyn Fn()) -> Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.into()),
        MountOption::Subtype("calltap".into()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    // Owner and mode decide which users may read and write; without privileges the kernel admits
    // the owner alone.
    let is_root = rustix::process::geteuid().is_root();
    config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
    let directories = Arc::clone(&files.directories);
    let session = fuser::Session::new(files, place, &config)
        .with_context(|| format!("{}: cannot be mounted on", place.display()))?;
    let guard = guard::Guard::new(place);
    let session = session.spawn()?;
    if std::env::var_os(BEHIND).is_some() {
        println!("{READY}");
        let _ = std::io::stdout().flush();
        // The process that started this one may wait until its output is closed.
        let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    let mut tended = Instant::now();
    while !session.guard.is_finished() && !over() {
        if tended.elapsed() >= TEND {
            directories.tend();
            tended = Instant::now();
        }
        thread::sleep(LOOK_INTERVAL);
    }
    // Readers that wait get the end of the file.
    end();
    // While files are open, unmounting fails; then the guard detaches the mount from the tree, and
    // readers can still read to the end, until this process ends.
    match session.umount_and_join() {
        Ok(()) => guard.dismiss(),
        Err(_) => {
            drop(guard);
            let start = Instant::now();
            while directories.are_open() && start.elapsed() < LAST_READS {
                thread::sleep(LOOK_INTERVAL);
            }
        }
    }
    Ok(())
}

/// `calltap run`: starts a program with its directory mounted.
pub fn run_program(arguments: &Arguments) -> Result<ExitCode> {
    let place = place(arguments, "mount")?;
    let words = arguments.words("operand");
    let (program, rest) = words.split_first().context("no program named")?;
    let mut child =
        Command::new(program).args(rest).spawn().with_context(|| program.to_string_lossy().into_owned())?;
    await_program(child.id());
    let mounted = in_background(Some(child.id()), &place, arguments);
    // The serving process has reported why it could not mount; the program runs on.
    let status: ExitStatus = child.wait()?;
    // The server unmounts the directory before it ends.
    if let Ok(mut server) = mounted {
        let _ = server.wait();
    }
    Ok(crate::ending::end_as(status))
}

/// Waits until a started program runs its own code: before execve, its libraries are not there.
fn await_program(pid: u32) {
    let start = Instant::now();
    let own = calltap_process::proc::program(std::process::id());
    let is_own = || calltap_process::proc::program(pid).is_some_and(|program| Some(program) == own);
    while is_own() && start.elapsed() < STARTING {
        thread::sleep(Duration::from_millis(1));
    }
}
