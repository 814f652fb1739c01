//! Files of the test programs.

use crate::run;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes an executable file through another process. If this process had it open for writing, a
/// child that another test starts at that moment would inherit it up to its own execve, and
/// executing the file would fail with ETXTBSY.
pub fn write_program(path: &Path, content: &[u8], mode: u32) {
    let mut command = Command::new("tee");
    command.arg(path);
    let done = run(command, content);
    assert!(done.status.success(), "{}: {}", path.display(), done.stderr);
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

/// Copies an executable file through another process, for the reason of [`write_program`].
pub fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg(from).arg(to);
    let done = run(command, b"");
    assert!(done.status.success(), "{}", done.stderr);
}

/// Returns a source of the test programs, from any of their folders.
pub fn source(name: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let folders = fs::read_dir(&programs).expect("the test programs").flatten().map(|entry| entry.path());
    let mut places = folders.chain([programs.clone()]).map(|folder| folder.join(name));
    places.find(|path| path.exists()).unwrap_or_else(|| panic!("no {name} in {}", programs.display()))
}
