//! Where a view goes: a file that appears only when it is complete, or standard output.

use crate::arguments::Arguments;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The output of a view.
pub struct Output {
    to: Box<dyn Write>,
    /// The file being written, and its final name.
    file: Option<(PathBuf, PathBuf)>,
}

impl Output {
    /// To the value of `--output`, or to standard output.
    pub fn create(arguments: &Arguments) -> Result<Output> {
        let Some(path) = arguments.path("output").filter(|path| path != Path::new("-")) else {
            return Ok(Output { to: Box::new(BufWriter::with_capacity(1 << 16, io::stdout())), file: None });
        };
        // A device or a pipe is written to directly.
        if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            let file = File::options().write(true).open(&path).with_context(|| path.display().to_string())?;
            return Ok(Output { to: Box::new(BufWriter::new(file)), file: None });
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = File::create(&part).with_context(|| path.display().to_string())?;
        Ok(Output { to: Box::new(BufWriter::with_capacity(1 << 16, file)), file: Some((part, path)) })
    }

    /// All was written.
    pub fn finish(mut self) -> Result<()> {
        self.to.flush()?;
        if let Some((part, path)) = self.file.take() {
            fs::rename(&part, &path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.file {
            let _ = fs::remove_file(part);
        }
    }
}

/// Passes on so many lines, then refuses more.
pub struct Lines<'a> {
    to: &'a mut dyn Write,
    left: Option<usize>,
}

impl<'a> Lines<'a> {
    /// No limit with `None`.
    pub fn new(to: &'a mut dyn Write, limit: Option<usize>) -> Lines<'a> {
        Lines { to, left: limit }
    }

    /// Were all lines written that may be?
    pub fn is_full(&self) -> bool {
        self.left == Some(0)
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = &mut self.left else { return self.to.write(bytes) };
        if *left == 0 {
            return Err(io::Error::other("enough lines"));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        self.to.write_all(&bytes[..end])?;
        *left -= usize::from(bytes[..end].ends_with(b"\n"));
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
