//! `calltap exec`: a command that finds the process's directory where it looks for the kernel's.

use crate::arguments::Arguments;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Where clients look.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Unmounting may have to wait for whoever has files open.
const LEAVING: Duration = Duration::from_secs(5);

/// In a mount namespace of its own, `$1` is bound over the kernel's directory, and over the switch that clients write to; then the command runs.
const SCRIPT: &str = r#"
directory=$1 scratch=$2
shift 2
mount --make-rprivate / || exit 125
for place in /sys/kernel/tracing /sys/kernel/debug/tracing; do
    [ -d "$place" ] && mount --bind "$directory" "$place" 2>/dev/null && bound=1
done
if [ -z "$bound" ]; then
    echo "calltap: /sys/kernel/tracing cannot be covered: is tracefs mounted?" >&2
    exit 125
fi
for switch in /proc/sys/kernel/ftrace_enabled /proc/sys/kernel/stack_tracer_enabled; do
    [ -e "$switch" ] && mount --bind "$scratch" "$switch" 2>/dev/null
done
exec "$@"
"#;

/// Runs the command; its exit code is ours.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let pid: u32 = arguments.number("pid")?.context("which process: '-p PID'")?;
    let words = arguments.words("operand");
    if words.is_empty() {
        bail!("which command?");
    }
    if !PLACES.iter().any(|place| Path::new(place).is_dir()) {
        bail!("{} does not exist: nothing that a client would find", PLACES[0]);
    }
    let own = Directory::of(pid)?;
    let scratch = own.parent.join("switch");
    fs::write(&scratch, "1\n")?;
    let mut command = Command::new("unshare");
    // Without privileges in a user namespace, as root of it.
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
    command.args(["sh", "-c", SCRIPT, "calltap"]).arg(&own.place).arg(&scratch).args(words);
    let status = command.status().context("unshare (of util-linux)")?;
    drop(own);
    Ok(crate::end_as(status))
}

/// A directory that is mounted for the time of a command.
struct Directory {
    parent: PathBuf,
    place: PathBuf,
}

impl Directory {
    fn of(pid: u32) -> Result<Directory> {
        let parent = std::env::temp_dir().join(format!("calltap-exec-{}", std::process::id()));
        let place = parent.join("tracing");
        fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
        let directory = Directory { parent, place };
        let mut command = Command::new(std::env::current_exe().context("calltap's own file")?);
        command.args(["mount", "-p", &pid.to_string()]).arg(&directory.place).stdin(Stdio::null());
        let status = command.process_group(0).status()?;
        if !status.success() {
            // (It has said why.)
            drop(directory);
            std::process::exit(status.code().unwrap_or(1).max(1));
        }
        Ok(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let start = Instant::now();
        let unmounted = || {
            let quiet = |program: &str, flag: &str| {
                let mut command = Command::new(program);
                command.arg(flag).arg(&self.place).stderr(Stdio::null()).stdout(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            };
            quiet("umount", "-l") || quiet("fusermount3", "-uz")
        };
        if unmounted() {
            while fs::remove_dir(&self.place).is_err() && start.elapsed() < LEAVING {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = fs::remove_dir_all(&self.parent);
    }
}
