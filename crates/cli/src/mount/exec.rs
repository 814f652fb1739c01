//! `calltap tracefs exec`: runs a command that finds the process's directory where it looks for the
//! kernel's.

use crate::command_line::arguments::Arguments;
use crate::scratch;
use anyhow::{Context, Result, bail};
use calltap_process::launch::as_started;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

/// The paths where clients look for tracefs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The shell script that runs in a mount namespace of its own: it binds `$1` over the kernel's
/// directory, hides the kernel's switches that clients write to, then runs the command.
const SCRIPT: &str = r#"
directory=$1 scratch=$2
shift 2
mount --make-rprivate / || exit 125
# Clients look for a file system of this type first, and where there is none they mount it themselves, over ours.
grep -q ' tracefs ' /proc/self/mounts || mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null
for place in /sys/kernel/tracing /sys/kernel/debug/tracing; do
    [ -d "$place" ] && mount --bind "$directory" "$place" 2>/dev/null && bound=1
done
# And wherever else one is mounted: a client that takes that one would trace the kernel.
while read -r _ place type _; do
    case $type:$place in
    tracefs:/sys/kernel/tracing | tracefs:/sys/kernel/debug/tracing) ;;
    tracefs:*) mount --bind "$directory" "$(printf %b "$place")" || exit 125 ;;
    esac
done </proc/self/mounts
if [ -z "$bound" ]; then
    echo "calltap: /sys/kernel/tracing cannot be covered: is tracefs mounted?" >&2
    exit 125
fi
grep -q ' tracefs ' /proc/self/mounts ||
    echo "calltap: no tracefs is mounted here, and without privileges none can be: trace-cmd will not find the directory" >&2
for switch in /proc/sys/kernel/ftrace_enabled /proc/sys/kernel/kptr_restrict; do
    [ -e "$switch" ] && mount --bind "$scratch/switch" "$switch" 2>/dev/null
done
# That of the stack tracer is the directory's. A kernel without one has no such file, and none can be made there: then a directory of links takes its place.
if [ -e /proc/sys/kernel/stack_tracer_enabled ]; then
    mount --bind "$directory/stack_tracer_enabled" /proc/sys/kernel/stack_tracer_enabled
else
    mkdir "$scratch/sysctls" "$scratch/links" && mount --rbind /proc/sys/kernel "$scratch/sysctls" &&
        ln -s "$scratch"/sysctls/* "$directory/stack_tracer_enabled" "$scratch/links" &&
        mount --bind "$scratch/links" /proc/sys/kernel
fi 2>/dev/null
# By these names they show what they have recorded.
mount --bind "$directory/kallsyms" /proc/kallsyms 2>/dev/null
command -v -- "$1" >/dev/null || { echo "calltap: $1: no such program in PATH" >&2; exit 127; }
exec "$@"
"#;

/// Runs the command. The exit status is the command's.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let pid: u32 =
        crate::command_line::processes::one(arguments)?.context("no process named: add '-p PID'")?;
    let words = arguments.words("operand");
    if words.is_empty() {
        bail!("no command named");
    }
    if !PLACES.iter().any(|place| Path::new(place).is_dir()) {
        bail!(
            "{} does not exist, and clients look for the directory there: mount tracefs or debugfs",
            PLACES[0]
        );
    }
    let scratch = scratch::directory(&std::env::temp_dir(), "calltap-exec-")?;
    run_with(pid, scratch.path(), &words, arguments)
}

fn run_with(pid: u32, scratch: &Path, words: &[OsString], arguments: &Arguments) -> Result<ExitCode> {
    let own = Directory::of(pid, scratch, arguments)?;
    fs::write(scratch.join("switch"), "1\n")?;
    let mut command = Command::new("unshare");
    // Without privileges the mount namespace is in a user namespace, whose root the user is.
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
    command.args(["sh", "-c", SCRIPT, "calltap"]).arg(&own.place).arg(scratch).args(words);
    let status = as_started(&mut command).status().context("cannot run unshare (of util-linux)")?;
    drop(own);
    Ok(crate::ending::end_as(status))
}

/// The mounted directory of a process: one that was mounted before, or one that is mounted for the
/// time of the command.
struct Directory {
    place: PathBuf,
    server: Option<Child>,
}

impl Directory {
    fn of(pid: u32, scratch: &Path, arguments: &Arguments) -> Result<Directory> {
        if let Some(place) = super::mounted(pid) {
            return Ok(Directory { place, server: None });
        }
        let place = scratch.join("tracing");
        fs::create_dir(&place)?;
        let server = super::in_background(Some(pid), &place, arguments)?;
        Ok(Directory { place, server: Some(server) })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // calltap ends the server itself, so its end is not reported.
        let told = rustix::process::kill_process(
            rustix::process::Pid::from_child(&server),
            rustix::process::Signal::TERM,
        );
        let _ = told.map(|()| server.wait());
    }
}
