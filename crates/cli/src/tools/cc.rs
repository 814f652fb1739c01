//! `calltap tools cc`: runs a compiler, then adds the list of calls to mcount to the object files
//! that the compiler wrote, as `recordmcount` does.

use crate::command_line::arguments::Arguments;
use crate::ending::{end_as, without_numbers};
use crate::tools::recordmcount;
use anyhow::Result;
use calltap_process::launch::as_started;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

/// Maximum nesting of response files.
const MAX_NESTING: usize = 16;

/// Runs the compiler. The exit status is the compiler's.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let words = arguments.words("operand");
    let Some((compiler, rest)) = words.split_first() else { return Ok(ExitCode::FAILURE) };
    let mut command = Command::new(compiler);
    as_started(&mut command).args(rest);
    let mut all = Vec::new();
    expand(rest, 0, &mut all);
    // Without object files there is nothing to add: the compiler takes this process's place.
    if !all.iter().any(|word| word == "-c" || word == "--compile" || word == "-r") {
        return Ok(not_run(compiler, &command.exec()));
    }
    let objects = objects(&all);
    let before: Vec<Option<Stamp>> = objects.iter().map(|object| stamp(object)).collect();
    let status = match command.spawn() {
        Ok(child) => wait(child)?,
        Err(error) => return Ok(not_run(compiler, &error)),
    };
    if status.success() {
        for (object, before) in objects.iter().zip(before) {
            if stamp(object) != before && fs::metadata(object).is_ok_and(|metadata| metadata.is_file()) {
                add_list(object)?;
            }
        }
    }
    Ok(end_as(status))
}

/// Adds the list to a compiled object. If that fails, the object is removed: a compiler that fails
/// leaves none either.
fn add_list(object: &Path) -> Result<()> {
    let Err(error) = recordmcount::record(object) else { return Ok(()) };
    // Compilers also write bitcode, assembly, and objects of other machines.
    if error
        .downcast_ref::<calltap_recordmcount::Error>()
        .is_some_and(calltap_recordmcount::Error::is_foreign)
    {
        return Ok(());
    }
    let _ = fs::remove_file(object);
    Err(error)
}

fn not_run(compiler: &OsStr, error: &io::Error) -> ExitCode {
    tell!("calltap: {}: {}", compiler.display(), without_numbers(&error.to_string()));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Waits for the compiler to end, and forwards calltap's signals to it.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let handle = signals.handle();
    let pid = Pid::from_child(&child);
    let forward = std::thread::spawn(move || {
        for signal in signals.forever() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    // WNOWAIT keeps the process id allocated until no signal is sent to it any more.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), ended).is_err_and(|error| error == Errno::INTR) {}
    handle.close();
    let _ = forward.join();
    child.wait()
}

/// Returns the files in which the compiler may put objects: the one after `-o`, or those named as
/// the sources are. Options among the words do no harm: only files that the compiler has written
/// are changed.
fn objects(words: &[OsString]) -> Vec<PathBuf> {
    let mut words_left = words.iter();
    let (mut output, mut sources) = (None, Vec::new());
    while let Some(word) = words_left.next() {
        let bytes = word.as_bytes();
        if word == "-o" || word == "--output" {
            output = words_left.next().map(PathBuf::from);
        } else if let Some(path) = bytes.strip_prefix(b"--output=").or_else(|| bytes.strip_prefix(b"-o")) {
            output = Some(OsStr::from_bytes(path).into());
        } else if !bytes.starts_with(b"-") || bytes == b"-" {
            sources.extend(Path::new(word).file_stem());
        }
    }
    let object = |source: &OsStr| {
        let mut name = source.to_owned();
        name.push(".o");
        PathBuf::from(name)
    };
    output.map_or_else(|| sources.into_iter().map(object).collect(), |output| vec![output])
}

/// Collects the arguments, with those of response files (`@FILE`) in their places.
fn expand(words: &[OsString], depth: usize, all: &mut Vec<OsString>) {
    for word in words {
        let file = word.as_bytes().strip_prefix(b"@").filter(|_| depth < MAX_NESTING);
        match file.and_then(|file| fs::read(OsStr::from_bytes(file)).ok()) {
            Some(content) => expand(&split(&content), depth + 1, all),
            None => all.push(word.clone()),
        }
    }
}

/// Splits a response file into words: between spaces, or within quotes; a backslash escapes the
/// next byte.
fn split(content: &[u8]) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = content.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if byte.is_ascii_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

/// Metadata that change when a file is written.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(path: &Path) -> Option<Stamp> {
    let of = |file: Metadata| {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        (file.dev(), file.ino(), file.size(), times)
    };
    fs::metadata(path).ok().map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        split(text.as_bytes())
    }

    #[test]
    fn response_files_are_split_as_by_the_compiler() {
        assert_eq!(words("-c  'a b.c'\n-o\"x y\".o \\'q\\  \"\""), ["-c", "a b.c", "-ox y.o", "'q ", ""]);
        assert_eq!(words(" \n"), Vec::<OsString>::new());
    }

    #[test]
    fn where_objects_may_be() {
        let check = |line: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(objects(&words(line)), expected, "{line}");
        };
        check("-c a.c -o out/b.o", &["out/b.o"]);
        check("-c a.c -oout/b.o -O2", &["out/b.o"]);
        check("-c src/a.c b.tar.cpp -", &["a.o", "b.tar.o", "-.o"]);
        check("-c", &[]);
        check("-c a.c -o", &["a.o"]);
    }
}
