//! A reader of trace files by KernelShark's library.

use crate::run;
use crate::skipped::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the program that reads files by KernelShark's library; `None` where that is not
/// installed.
pub fn kernelshark() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/kernelshark/libkshark.h").exists()
            || !Path::new("/usr/include/json-c").exists()
        {
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("kernelshark");
        let mut command = Command::new("gcc");
        command.arg(crate::files::source("kernelshark.c")).arg("-o").arg(&path);
        command.args(["-I/usr/include/kernelshark", "-lkshark"]);
        let built = run(command, b"");
        assert!(built.status.success(), "{}", built.stderr);
        Some((directory, path))
    });
    if program.is_none() {
        skipped("no KernelShark here: libkshark-dev and libjson-c-dev are to be installed");
    }
    program.as_ref().map(|(_, path)| path.as_path())
}
