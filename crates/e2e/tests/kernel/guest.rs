//! A machine under QEMU that runs a script with calltap, and the output of each step of the script.
//!
//! Its system consists of busybox, calltap, programs, and the libraries that these are linked with.
//! The script writes to the second serial port, which QEMU writes to a file; the kernel's own
//! messages go to the first.

use calltap_e2e::{Run, calltap, have, output_of, run_timeout, run_within, skipped};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

/// Time limit: machines that QEMU emulates instruction by instruction take a minute, and at a load
/// of 30 on two processors four.
const LIMIT: Duration = Duration::from_secs(900);
/// Older versions emulate self-modifying code of recent kernels wrongly, so that the kernel
/// sometimes crashes.
const OLDEST_QEMU: u32 = 10;

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/opt:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp
cd /tmp
stty -F /dev/ttyS1 raw
step() {
    name=$1
    shift
    "$@" >/tmp/stdout 2>/tmp/stderr
    echo "@step $name $?"
    cat /tmp/stdout
    echo "@stderr"
    cat /tmp/stderr
}
(
    . /script
    echo "@end"
    # The kernel waits for the port's own queue of 16 bytes for milliseconds only, and on a busy machine
    # these may be lost.
    printf '%064d\n' 0
) >/dev/ttyS1 2>&1
# Waits until all of it is written, which closing the port does not while another process has it open.
stty -F /dev/ttyS1 raw
poweroff -f
"#;

/// Returns the kernels to test: `vmlinuz-*` in the directory that CALLTAP_KERNELS names.
pub fn kernels() -> Vec<PathBuf> {
    let Some(directory) = std::env::var_os("CALLTAP_KERNELS") else {
        skipped("no kernel for QEMU here: CALLTAP_KERNELS names no directory of vmlinuz-*");
        return Vec::new();
    };
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_kernel =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let mut kernels: Vec<PathBuf> = entries.filter(is_kernel).collect();
    kernels.sort();
    assert!(!kernels.is_empty(), "CALLTAP_KERNELS: no vmlinuz-* in {}", directory.display());
    if have_machine() { kernels } else { Vec::new() }
}

fn have_machine() -> bool {
    if !have("qemu-system-x86_64") || !have("busybox") {
        return false;
    }
    let version = output_of("qemu-system-x86_64", &["--version"]).unwrap_or_default();
    let major =
        version.split_whitespace().nth(3).and_then(|word| word.split('.').next()?.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST_QEMU) {
        skipped(&format!(
            "QEMU {OLDEST_QEMU} or newer runs recent kernels; here is {}",
            version.lines().next().unwrap_or("none")
        ));
        return false;
    }
    true
}

/// Returns the files that a dynamically linked program needs, from `ldd`.
fn libraries(program: &Path) -> Vec<String> {
    let listed = output_of("ldd", &[&program.to_string_lossy()]).expect("the dynamic linker");
    let words = listed.split_whitespace().filter(|word| word.starts_with('/') && word.contains(".so"));
    words.map(|word| word.trim_end_matches(':').to_owned()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a directory")).expect("directories");
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

/// Makes the system's archive, which the kernel unpacks.
fn system(directory: &Path, programs: &[&Path], script: &str) -> PathBuf {
    let root = directory.join("root");
    for name in ["bin", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(name)).expect("a directory");
    }
    let busybox = output_of("sh", &["-c", "command -v busybox"]).expect("a shell");
    copy(Path::new(busybox.trim()), &root.join("bin/busybox"));
    let calltap = calltap();
    for program in programs.iter().copied().chain([&*calltap]) {
        copy(program, &root.join("opt").join(program.file_name().expect("a name")));
        for library in libraries(program) {
            copy(Path::new(&library), &root.join(library.trim_start_matches('/')));
        }
    }

    fs::write(root.join("init"), INIT).expect("the first program");
    fs::set_permissions(root.join("init"), Permissions::from_mode(0o755)).expect("a mode");
    fs::write(root.join("script"), script).expect("the script");
    let image = directory.join("system");
    let mut pack = Command::new("sh");
    pack.args(["-c", "cd \"$1\" && find . | busybox cpio -o -H newc | gzip -1 > \"$2\"", "sh"])
        .arg(&root)
        .arg(&image);
    let packed = run_timeout(pack, b"", LIMIT);
    assert!(packed.status.success(), "{}", packed.stderr);
    image
}

/// The results of a script's steps, by name.
pub struct Steps(BTreeMap<String, Run>);

impl Steps {
    /// Returns the result of a step.
    pub fn of(&self, name: &str) -> &Run {
        self.0.get(name).unwrap_or_else(|| panic!("no step {name}: {:?}", self.0.keys()))
    }

    /// Returns the output of a step, which must have succeeded.
    pub fn output(&self, name: &str) -> &str {
        let run = self.of(name);
        assert!(run.status.success(), "{name}: {:?}\n{}\n{}", run.status, run.stdout, run.stderr);
        &run.stdout
    }

    fn parse(text: &str) -> Steps {
        let mut all = BTreeMap::new();
        for part in text.split("@step ").skip(1) {
            let part = part.split("@end\n").next().unwrap_or_default();
            let (head, rest) = part.split_once('\n').expect("a line");
            let (name, status) = head.split_once(' ').expect("a name and a status");
            let (stdout, stderr) = rest.split_once("@stderr\n").expect("errors");
            let status = ExitStatus::from_raw(status.trim().parse::<i32>().expect("a number") << 8);
            let run = Run { status, stdout: stdout.to_owned(), stderr: stderr.to_owned() };
            all.insert(name.to_owned(), run);
        }
        Steps(all)
    }
}

/// Returns the last lines of an output.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Runs a script of `step NAME COMMAND...` on a machine with this kernel.
pub fn run_script(kernel: &Path, programs: &[&Path], script: &str) -> Steps {
    let directory = TempDir::new().expect("a directory");
    let image = system(directory.path(), programs, script);
    let file = |name: &str| format!("file:{}", directory.path().join(name).display());
    let mut qemu = Command::new("qemu-system-x86_64");
    // In a host thread for each processor, QEMU forgets its translation of code before it stores
    // the new bytes: another processor translates the old ones in between, and the kernel dies of
    // an int3 of its own patching ("Oops: int3").
    qemu.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "512", "-nic", "none"]);
    qemu.args(["-display", "none", "-monitor", "none", "-no-reboot"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(&image);
    qemu.args(["-append", "console=ttyS0 quiet clocksource=tsc tsc=reliable rdinit=/init panic=-1"]);
    qemu.args(["-serial", &file("console"), "-serial", &file("said")]);
    let (ended, is_late) = run_within(qemu, b"", LIMIT);
    let read = |name: &str| {
        let bytes = fs::read(directory.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let said = read("said");
    // The kernel's last lines come first: they tell why the machine ended before the script.
    assert!(
        !is_late && ended.status.success() && said.contains("@end"),
        "{}: late {is_late}, {:?} {}\n{}\n{}",
        kernel.display(),
        ended.status,
        ended.stderr,
        last_lines(&read("console")),
        last_lines(&said)
    );
    Steps::parse(&said)
}
