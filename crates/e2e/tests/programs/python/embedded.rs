//! Interpreters inside of a program, which begin and end.

use super::extension::headers;
use super::{Interpreter, calls, interpreters, script};
use calltap_e2e::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program with an interpreter's library. None if that is not installed.
fn build(python: &Path, minor: u32, into: &Path) -> Option<PathBuf> {
    let headers = headers(python)?;
    let text = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))";
    let libraries = output_of(&python.to_string_lossy(), &["-c", text])?;
    let libraries = libraries.trim();
    if !Path::new(libraries).join(format!("libpython3.{minor}.so")).exists() {
        skipped(&format!("{}: no library", python.display()));
        return None;
    }
    let program = into.join("embeds");
    let mut command = Command::new("gcc");
    command.args(["-I", &headers, "-o"]).arg(&program).arg(script("embeds.c"));
    command.args([&format!("-L{libraries}"), &format!("-Wl,-rpath,{libraries}")]);
    command.arg(format!("-lpython3.{minor}"));
    let run = run(command, b"");
    assert!(run.status.success(), "{}", run.stderr);
    Some(program)
}

#[test]
fn each_interpreter_of_a_program_is_traced() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    for Interpreter { minor, path } in interpreters {
        let Some(program) = build(&path, minor, directory.path()) else { continue };
        let program = program.display().to_string();
        let run = calltap_run(&["record", "-q", "-o", &trace, "--python", "__main__.square", "--", &program]);
        assert_eq!((run.status.success(), &*run.stdout), (true, "right\n"), "3.{minor}: {}", run.stderr);
        assert_eq!(calls(&trace).get("__main__.square"), Some(&(3 * 3 * 7)), "3.{minor}");
    }
}

#[test]
fn a_free_threaded_interpreter_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("free_threaded").display().to_string();
    let mut command = Command::new("gcc");
    command.args(["-O1", "-rdynamic", "-o", &program]).arg(script("free_threaded.c"));
    assert!(run(command, b"").status.success());
    let run = calltap_run(&["record", "-o", "/dev/null", "--python", "*", "--", &program]);
    one_line(&run, &["free_threaded", "it is a free-threaded build of CPython"]);
}
