//! Keeps compiled programs beside the build's own: tests compile the same ones many times.

use crate::files::{copy_program, source};
use crate::run::calltap;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// Runs a compiler, given without its `-o`, or copies what it has made before of the same sources
/// by the same arguments.
pub(crate) fn compile_once(mut command: Command, sources: &[PathBuf], output: &Path) {
    let Some(key) = key(&command, sources) else {
        command.arg("-o").arg(output);
        return finish(command);
    };
    let kept = calltap().with_file_name("e2e-programs").join("compiled").join(key);
    if !kept.exists() {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let new = kept.with_extension(format!("{}-{}", process::id(), COUNT.fetch_add(1, Relaxed)));
        fs::create_dir_all(new.parent().expect("a directory")).expect("a directory for programs");
        command.arg("-o").arg(&new);
        finish(command);
        fs::rename(&new, &kept).expect("a compiled program");
    }
    copy_program(&kept, output);
}

/// Runs a compiler.
pub(crate) fn finish(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Identifies the result of a compiler. None if it depends on other files, or on where it lies.
fn key(command: &Command, sources: &[PathBuf]) -> Option<String> {
    let programs = source("e2e.h").parent()?.to_owned();
    let is_known = |word: &OsStr| {
        let path = Path::new(word.to_str()?.trim_start_matches("-I"));
        Some(path == programs || sources.iter().any(|source| source == path))
    };
    let names_path = |word: &&OsStr| word.to_string_lossy().contains('/');
    if !command.get_args().filter(names_path).all(|word| is_known(word) == Some(true)) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    version(command.get_program()).hash(&mut hasher);
    command.get_program().hash(&mut hasher);
    command.get_args().for_each(|word| word.hash(&mut hasher));
    for (name, value) in command.get_envs() {
        (name, value).hash(&mut hasher);
    }
    let headers = fs::read_dir(&programs).ok()?.flatten().map(|entry| entry.path());
    let mut headers: Vec<PathBuf> = headers.filter(|path| path.extension() == Some("h".as_ref())).collect();
    headers.sort();
    for path in sources.iter().chain(&headers) {
        fs::read(path).ok()?.hash(&mut hasher);
    }
    let name = sources.first()?.file_stem()?.to_string_lossy();
    Some(format!("{name}-{:016x}", hasher.finish()))
}

/// Returns what a compiler says of its version.
fn version(compiler: &OsStr) -> Vec<u8> {
    static KNOWN: Mutex<BTreeMap<OsString, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = || Command::new(compiler).arg("--version").output().map_or(Vec::new(), |output| output.stdout);
    known.entry(compiler.to_owned()).or_insert_with(ask).clone()
}
