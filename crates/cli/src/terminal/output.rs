//! The output of a view: standard output, or a file that appears only when it is complete.

use crate::command_line::arguments::Arguments;
use crate::terminal::named_pipe;
use crate::terminal::pager::{self, Pager};
use crate::width::columns;
use anyhow::{Context, Result};
use std::cmp::Ordering;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::PathBuf;

/// Begins a sequence that selects a colour; `m` ends it.
const ESCAPE: char = '\x1b';

/// Whether names are shortened, and lines cut at the terminal's edge. Only text on a terminal is:
/// files, pipes and formats for programs have all of it.
pub fn is_short(arguments: &Arguments) -> bool {
    let is_text = arguments.format().is_none_or(|format| format == "text");
    let is_shown = arguments.output_file().is_none();
    is_text && is_shown && !arguments.is_set("full-names") && io::stdout().is_terminal()
}

/// Whether the output is a file, where no user watches it grow.
pub fn is_file(arguments: &Arguments) -> bool {
    let named = arguments.output_file();
    named.is_some() || fs::metadata("/proc/self/fd/1").is_ok_and(|meta| meta.is_file())
}

/// Whether text has colours: on a terminal, unless the user does not want any.
pub fn is_coloured(arguments: &Arguments) -> bool {
    let is_text = arguments.format().is_none_or(|format| format == "text");
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
    let is_shown = arguments.output_file().is_none();
    is_text
        && match arguments.text("color").as_deref() {
            Some("always") => true,
            Some("never") => false,
            _ => is_shown && io::stdout().is_terminal() && !is_dumb && !is_set("NO_COLOR"),
        }
}

/// A writer that cuts lines at the terminal's edge.
struct Fit<W> {
    to: W,
    width: usize,
    /// Number of characters of the line so far.
    at: usize,
    /// Whether the line is a sentence of a head: `#` and a blank begin it, and it is not cut.
    is_whole: bool,
    /// The character for the last column, and sequences behind it: written if the line ends there.
    held: Option<String>,
    /// Whether a sequence that selects a colour has begun: it takes no columns.
    in_sequence: bool,
}

impl<W: Write> Write for Fit<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.write_piece(&String::from_utf8_lossy(line))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Fit<W> {
    fn new(to: W, width: usize) -> Fit<W> {
        Fit { to, width, at: 0, is_whole: false, held: None, in_sequence: false }
    }

    fn write_piece(&mut self, piece: &str) -> io::Result<()> {
        let (text, end) = piece.strip_suffix('\n').map_or((piece, ""), |text| (text, "\n"));
        if self.at == 0 {
            self.is_whole = text.strip_prefix("# ").is_some_and(|text| !text.starts_with(' '));
        }
        if self.is_whole {
            self.at = if end.is_empty() { self.at + text.len() } else { 0 };
            return self.to.write_all(piece.as_bytes());
        }
        for c in text.chars() {
            if c == ESCAPE || self.in_sequence {
                self.in_sequence = c != 'm';
                match &mut self.held {
                    Some(held) => held.push(c),
                    None => write!(self.to, "{c}")?,
                }
                continue;
            }
            self.at += 1;
            match self.at.cmp(&self.width) {
                Ordering::Less => write!(self.to, "{c}")?,
                Ordering::Equal => self.held = Some(c.into()),
                Ordering::Greater => {
                    if let Some(held) = self.held.take() {
                        let sequences = held.trim_start_matches(|c| c != ESCAPE);
                        write!(self.to, "\u{2026}{sequences}")?;
                    }
                }
            }
        }
        if !end.is_empty() {
            if let Some(last) = self.held.take() {
                self.to.write_all(last.as_bytes())?;
            }
            (self.at, self.in_sequence) = (0, false);
        }
        self.to.write_all(end.as_bytes())
    }
}

/// Returns the path of the file that a path leads to through symbolic links: the links stay.
fn behind_links(path: PathBuf) -> PathBuf {
    match (fs::canonicalize(&path), fs::read_link(&path)) {
        (Ok(file), _) => file,
        // A link to a file that does not exist yet.
        (Err(_), Ok(target)) => path.with_file_name("").join(target),
        (Err(_), Err(_)) => path,
    }
}

/// Returns the number of characters of a line, if lines are cut.
pub fn line_width(arguments: &Arguments) -> Option<usize> {
    let is_file = arguments.output_file().is_some();
    // Commands without --full-names always show full names, in lines that are not cut.
    let fits = arguments.has_switch("full-names") && is_short(arguments) && !is_file;
    columns().filter(|_| fits)
}

/// The output of a view.
pub struct Output {
    to: Box<dyn Write>,
    /// The path of the file being written, and its final path.
    file: Option<(PathBuf, PathBuf)>,
}

/// Returns standard output; on a terminal with lines cut at `width`, and a pager.
fn to_stdout(arguments: &Arguments, width: Option<usize>) -> Box<dyn Write> {
    let to = BufWriter::with_capacity(1 << 16, io::stdout());
    let plain: Box<dyn Write> = match width {
        Some(width) => Box::new(Fit::new(to, width)),
        None => Box::new(to),
    };
    let pages = arguments.has_switch("no-pager") && !arguments.is_set("no-pager");
    match pager::wanted().filter(|_| pages) {
        Some(command) => Box::new(BufWriter::with_capacity(1 << 16, Pager::new(command, plain))),
        None => plain,
    }
}

impl Output {
    /// Opens the file that `--output` names, or standard output.
    pub fn create(arguments: &Arguments) -> Result<Output> {
        Output::with_lines(arguments, line_width(arguments))
    }

    /// Opens the file that `--output` names, if it names one: before a program runs, whose answer
    /// would be lost if it cannot be written.
    pub fn create_file(arguments: &Arguments) -> Result<Option<Output>> {
        arguments.output_file().map(|_| Output::create(arguments)).transpose()
    }

    /// Opens the output for lines that are not cut, as they end with explanations.
    pub fn whole(arguments: &Arguments) -> Result<Output> {
        Output::with_lines(arguments, None)
    }

    fn with_lines(arguments: &Arguments, width: Option<usize>) -> Result<Output> {
        match arguments.output_file() {
            Some(path) => Output::at(path),
            None => Ok(Output { to: to_stdout(arguments, width), file: None }),
        }
    }

    /// Opens a file, which appears when the output is finished.
    pub fn at(path: PathBuf) -> Result<Output> {
        // A device or a pipe is written to directly.
        if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            let _reader = named_pipe::with_reader(&path)?;
            let file = File::options().write(true).open(&path).with_context(|| path.display().to_string())?;
            return Ok(Output { to: Box::new(BufWriter::new(file)), file: None });
        }
        let path = behind_links(path);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = File::create(&part).with_context(|| path.display().to_string())?;
        if let Ok(former) = fs::metadata(&path) {
            // Only root may give a file away. The mode comes last: a new owner clears bits of it.
            let _ = fchown(&file, Some(former.uid()), Some(former.gid()));
            let _ = file.set_permissions(former.permissions());
        }
        Ok(Output { to: Box::new(BufWriter::with_capacity(1 << 16, file)), file: Some((part, path)) })
    }

    /// Flushes the output, and gives a file its final name.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        if let Some((part, path)) = self.file.take() {
            fs::rename(&part, &path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Adds the name of the file to an error.
    fn name(&self, error: io::Error) -> io::Error {
        match &self.file {
            Some((_, path)) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
            None => error,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).map_err(|error| self.name(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|error| self.name(error))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.file {
            let _ = fs::remove_file(part);
        }
    }
}

/// A writer that passes on a limited number of lines, then refuses more. Lines of a head, which
/// begin with `#`, do not count.
pub struct Lines<'a> {
    to: &'a mut dyn Write,
    left: Option<usize>,
    /// Whether the last line is not complete, and whether it belongs to a head.
    in_line: bool,
    in_head: bool,
}

impl<'a> Lines<'a> {
    /// Returns a writer with a limit; `None` is no limit.
    pub fn new(to: &'a mut dyn Write, limit: Option<usize>) -> Lines<'a> {
        Lines { to, left: limit, in_line: false, in_head: false }
    }

    /// Whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.left == Some(0)
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.as_mut().filter(|_| !bytes.is_empty()) else {
            return self.to.write(bytes);
        };
        if *left == 0 {
            return Err(io::Error::other("enough lines"));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        self.to.write_all(&bytes[..end])?;
        self.in_head |= !self.in_line && bytes[0] == b'#';
        self.in_line = !bytes[..end].ends_with(b"\n");
        if !self.in_line {
            *left -= usize::from(!std::mem::take(&mut self.in_head));
        }
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_the_edge() {
        let mut fit = Fit::new(Vec::new(), 4);
        fit.write_all("abcd\nabcde\nab".as_bytes()).unwrap();
        fit.write_all("c\n\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\n".as_bytes()).unwrap();
        let expected = "abcd\nabc\u{2026}\nabc\n\u{e4}\u{e4}\u{e4}\u{2026}\n";
        assert_eq!(String::from_utf8(fit.to).unwrap(), expected);
        // Sentences of a head are not cut; a heading of columns, which blanks begin, is.
        let mut fit = Fit::new(Vec::new(), 4);
        fit.write_all(b"# lost 5\n#   abc\nabcdef\n").unwrap();
        assert_eq!(String::from_utf8(fit.to).unwrap(), "# lost 5\n#  \u{2026}\nabc\u{2026}\n");
        // Colours take no columns, and end although their text is cut.
        let mut fit = Fit::new(Vec::new(), 4);
        fit.write_all("\x1b[36mabcd\x1b[39m\n\x1b[36mabcdef\x1b[39m\n\x1b[36mabcd\x1b[39me\n".as_bytes())
            .unwrap();
        let expected = "\x1b[36mabcd\x1b[39m\n\x1b[36mabc\u{2026}\x1b[39m\n\x1b[36mabc\u{2026}\x1b[39m\n";
        assert_eq!(String::from_utf8(fit.to).unwrap(), expected);
    }
}
