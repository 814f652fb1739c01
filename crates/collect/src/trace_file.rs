//! The name of the trace file, preliminary and final.

use calltap_trace::Error;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The trace file. It has a preliminary name until the program is known to be worth running, so
/// that a mistyped filter does not cost the user yesterday's trace. While this exists, the file is
/// locked, so that no other recording takes its name: of several that begin at the same time, as in
/// a parallel test run, all but one get names with the numbers of their processes.
pub struct TraceFile {
    /// The preliminary name, and the locked file.
    part: Option<(PathBuf, File)>,
    output: PathBuf,
    named: OnceLock<Naming>,
}

/// Outcome of giving the file its final name.
enum Naming {
    Done,
    /// Another recording has the name: this one has got its own.
    Taken(PathBuf),
    Failed(io::Error),
}

impl TraceFile {
    /// Creates a trace file with a preliminary name.
    pub fn create(output: &Path) -> Result<TraceFile, Error> {
        // A device or a pipe is written to directly; a link stays a link.
        let output = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
        if fs::metadata(&output).is_ok_and(|meta| !meta.is_file()) {
            return Ok(TraceFile { part: None, output, named: OnceLock::new() });
        }
        let path = extended(&output, &format!(".{}.part", std::process::id()));
        let locked = || {
            let file = File::create(&path)?;
            // Some file systems have no locks.
            let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
            Ok(file)
        };
        match locked() {
            Ok(file) => Ok(TraceFile { part: Some((path, file)), output, named: OnceLock::new() }),
            Err(source) => Err(Error::Io { path: output, action: "create", source }),
        }
    }

    /// Returns the present path of the file.
    pub fn path(&self) -> &Path {
        match (&self.part, self.named.get()) {
            (Some((part, _)), None | Some(Naming::Failed(_))) => part,
            (_, Some(Naming::Taken(own))) => own,
            _ => &self.output,
        }
    }

    /// Returns the path of a finished file that could not get its name.
    pub fn elsewhere(&self) -> Option<PathBuf> {
        let has_name = matches!(self.named.get(), None | Some(Naming::Done));
        (!has_name).then(|| self.path().to_owned())
    }

    /// Gives the file its final name.
    pub fn keep(&self) {
        if let Some((part, _)) = &self.part {
            self.named.get_or_init(|| match rename(part, &self.output) {
                Ok(true) => Naming::Done,
                Ok(false) => {
                    let own = extended(&self.output, &format!(".{}", std::process::id()));
                    fs::rename(part, &own).map_or_else(Naming::Failed, |()| Naming::Taken(own))
                }
                Err(error) => Naming::Failed(error),
            });
        }
    }

    /// Returns a note for the user, if the file does not have its name.
    pub fn note(&self) -> Option<String> {
        let ((part, file), named) = (self.part.as_ref()?, self.named.get()?);
        let (part, name) = (part.display(), self.output.display());
        match named {
            Naming::Taken(own) => {
                Some(format!("another calltap is writing to {name}: this trace is in {}", own.display()))
            }
            Naming::Failed(error) => {
                Some(format!("the trace could not be renamed: it is in {part}: {error}"))
            }
            Naming::Done => {
                let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
                let is_there =
                    fs::metadata(&self.output).map(identity).ok() == file.metadata().map(identity).ok();
                (!is_there).then(|| format!("{name} was renamed, deleted or replaced while it was written"))
            }
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let (Some((part, _)), None) = (&self.part, self.named.get()) {
            let _ = fs::remove_file(part);
        }
    }
}

/// Default name of a trace, and with a number behind it that of one of several. A file of that name
/// is kept, as the user did not ask to replace it.
const DEFAULT: &str = "calltap.data";

/// Renames a file over one that may exist, which is deleted, or kept as `.old`. Returns false if
/// another recording writes to that one.
fn rename(file: &Path, name: &Path) -> io::Result<bool> {
    if is_locked(name) {
        return Ok(false);
    }
    let rename_with = |flags| renameat_with(CWD, file, CWD, name, flags);
    // The names are exchanged first: when one file replaces another, ext4 waits for milliseconds
    // until the new one is on the disk. Only then is it certain which file is replaced.
    match rename_with(RenameFlags::EXCHANGE) {
        // Another recording has begun to write to that file meanwhile.
        Ok(()) if is_locked(file) => {
            rename_with(RenameFlags::EXCHANGE)?;
            return Ok(false);
        }
        Ok(()) => return remove_former(file, name).map(|()| true),
        Err(Errno::NOENT) => match rename_with(RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            // Another recording has created it.
            Err(Errno::EXIST) => return rename(file, name),
            Err(_) => {}
        },
        Err(_) => {}
    }
    // The file system knows none of these.
    if is_default(name) && name.exists() {
        remove_former(name, name)?;
    }
    fs::rename(file, name).map(|()| true)
}

/// Removes a file that had this name; keeps it as `.old` if the name is the default one.
fn remove_former(file: &Path, name: &Path) -> io::Result<()> {
    if !is_default(name) {
        return fs::remove_file(file);
    }
    fs::rename(file, extended(name, ".old"))
}

/// Returns a name with a suffix.
fn extended(name: &Path, suffix: &str) -> PathBuf {
    let mut extended = name.as_os_str().to_owned();
    extended.push(suffix);
    extended.into()
}

fn is_default(name: &Path) -> bool {
    let number = name.file_name().and_then(|last| last.to_str()?.strip_prefix(DEFAULT));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
}

/// Whether another recording writes to the file.
fn is_locked(path: &Path) -> bool {
    // A shared lock: two recordings may ask at the same time.
    let ask = |file: File| flock(file, FlockOperation::NonBlockingLockShared);
    File::open(path).is_ok_and(|file| ask(file) == Err(Errno::WOULDBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a trace file with these contents.
    fn begin(path: &Path, contents: &str) -> TraceFile {
        let file = TraceFile::create(path).expect("a file");
        fs::write(file.path(), contents).expect("its contents");
        file
    }

    #[test]
    fn default_names_keep_the_files_before() {
        let check = |name: &str, expected| assert_eq!(is_default(Path::new(name)), expected, "{name}");
        for name in ["calltap.data", "/tmp/calltap.data", "calltap.data.1", "calltap.data.4711"] {
            check(name, true);
        }
        for name in ["my.data", "my.data.1", "calltap.data.", "calltap.data.old", "calltap.data.1.old"] {
            check(name, false);
        }
    }

    #[test]
    fn a_name_has_one_writer_at_a_time() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("same.data");
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        let (first, second) = (begin(&path, "first"), place.path().join("second"));
        fs::write(&second, "second").expect("a file");
        first.keep();
        assert!(!rename(&second, &path).expect("both keep their names"));
        assert_eq!([read(&path), read(&second)], ["first", "second"]);
        // This process has one preliminary name for both.
        let other = begin(&path, "other");
        other.keep();
        let own = extended(&path, &format!(".{}", std::process::id()));
        assert_eq!((read(&path), read(&own), other.path()), ("first".to_owned(), "other".to_owned(), &*own));
        assert_eq!(first.note(), None);
        assert!(other.note().is_some_and(|note| note.contains(&own.display().to_string())));
        drop(first);
        begin(&path, "third").keep();
        assert_eq!(read(&path), "third");
    }

    #[test]
    fn former_file_of_default_name_is_kept() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join(DEFAULT);
        for contents in ["first", "second"] {
            begin(&path, contents).keep();
        }
        let old = place.path().join("calltap.data.old");
        assert_eq!(
            [fs::read_to_string(&path).unwrap(), fs::read_to_string(old).unwrap()],
            ["second", "first"]
        );
        drop(begin(&path, "a mistyped filter"));
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), fs::read_dir(place.path()).unwrap().count()),
            ("second", 2)
        );
    }

    #[test]
    fn file_replaced_by_another_is_reported() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("t.data");
        let file = begin(&path, "events");
        file.keep();
        fs::remove_file(&path).expect("it is there");
        assert!(file.note().is_some_and(|note| note.contains("replaced")));
    }
}
