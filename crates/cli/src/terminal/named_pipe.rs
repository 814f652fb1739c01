//! A named pipe as the output: calltap says that it waits for a program that reads it.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Interval between two looks whether a program reads the pipe.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until a program reads the named pipe at `path`, and says so. The pipe has a reader, and
/// can be opened at once, while the returned file is open. `None` for other files, also for this
/// process's own standard output: the reader of a pipe without a name that has ended does not come
/// back.
pub fn with_reader(path: &Path) -> Result<Option<File>> {
    let is_own =
        fs::canonicalize(path).is_ok_and(|path| path.starts_with("/proc")) || path.starts_with("/dev");
    if is_own || !fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(None);
    }
    let open =
        || File::options().write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
    let mut is_told = false;
    loop {
        match open() {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if !std::mem::replace(&mut is_told, true) {
                    tell!(
                        "calltap: {}: a named pipe that no program reads: calltap waits for a reader, as in 'cat {}'",
                        path.display(),
                        path.display()
                    );
                }
                thread::sleep(LOOK_INTERVAL);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
}
