//! The control files: contents of `current_tracer`, `set_ftrace_filter`, `function_tracers` and
//! similar files, and the effect of writing to them.
//!
//! They are a view of the same [`Selection`] that the command line makes. This module only
//! computes: from a selection and the list of functions it makes the text of a file, or the new
//! selection. Names, formats and errors are those of the kernel's tracing directory, and of the
//! patches that began it.

mod ftraced;
mod lists;
mod number;
mod sets;
mod stat;
mod tracers;

pub use number::{base as number_base, parse as parse_number, write as write_number};
pub use sets::{Which, add, has, matches};
pub use stat::table;
pub(crate) use stat::write_duration;
pub use tracers::{PROFILE, TRACE};

pub use crate::nodes::File;

use crate::nodes::{FILES, Kind, SUMS};
use calltap_selection::{Listed, Profiled, Selection, TracerSelection};
use rustix::io::Errno;

/// Returns the files that [`Model`] reads and writes.
pub fn files() -> impl Iterator<Item = File> {
    FILES.iter().copied().chain([SUMS]).filter(|file| file.by_command)
}

impl File {
    /// Returns the file with a name, or an error with the nearest names.
    pub fn named(name: &str) -> Result<File, Refusal> {
        let none = || {
            let near = calltap_names::nearest_names(name, files().map(|file| file.name), 3);
            let hint = if near.is_empty() {
                "; 'calltap tracefs get' lists them".to_owned()
            } else {
                format!("; nearest: {}", near.join(", "))
            };
            Refusal::new(Errno::NOENT, format!("no such control file{hint}"))
        };
        files().find(|file| file.name == name).ok_or_else(none)
    }

    /// Whether reading the file needs the profile.
    pub fn reads_profile(self) -> bool {
        matches!(self.kind, Kind::Stat)
    }
}

/// The reason why a file cannot be read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Error number of the system call.
    pub errno: Errno,
    /// Explanation in words.
    pub why: String,
}

impl Refusal {
    fn new(errno: Errno, why: impl Into<String>) -> Refusal {
        Refusal { errno, why: why.into() }
    }

    fn invalid(why: impl Into<String>) -> Refusal {
        Refusal::new(Errno::INVAL, why)
    }
}

/// The state that the files show and change.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// The selection.
    pub words: Selection,
    /// The functions that can be traced: the program's own first, by address.
    pub functions: &'a [Listed],
    /// The sums of the profile tracer, for the files that need them.
    pub profile: &'a [Profiled],
}

/// How a file is opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// Opened with `>`: the contents are cleared.
    Truncate,
    /// Opened with `>>`.
    Append,
}

/// The effect of a write, besides the new selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effect {
    /// Whether the profile is reset.
    pub resets_profile: bool,
}

impl Model<'_> {
    /// Returns the contents of a file.
    pub fn read(&self, file: File) -> String {
        self.contents(file.kind)
    }

    /// Returns the contents of a file of this kind; empty if this module has none of it.
    pub(crate) fn contents(&self, kind: Kind) -> String {
        match kind {
            Kind::AvailableTracers => "function_graph function nop\n".into(),
            Kind::CurrentTracer => self.current_tracer(),
            Kind::FunctionTracers => self.function_tracers(),
            Kind::ProfileEnabled => number::text(self.profile_enabled()),
            Kind::TracingOn => number::text(!self.words.paused),
            Kind::Filter => self.read_set(sets::Which::Filter),
            Kind::Notrace => self.read_set(sets::Which::Notrace),
            Kind::Available => self.available(),
            Kind::EnabledFunctions => self.enabled(),
            Kind::TouchedFunctions => self.touched(),
            Kind::Info => self.info(),
            Kind::Failures => self.failures(),
            Kind::Ftraced => self.ftraced_enabled(),
            Kind::Stat => stat::table(self.profile),
            _ => String::new(),
        }
    }

    /// Writes a text. A refused text changes nothing. The kernel differs: where a wrong name
    /// follows a truncation, it leaves the filter empty and traces everything.
    pub fn write(&mut self, file: File, text: &str, open: Open) -> Result<Effect, Refusal> {
        self.change(file.kind, text, open)
    }

    /// Writes a text to a file of this kind.
    pub(crate) fn change(&mut self, kind: Kind, text: &str, open: Open) -> Result<Effect, Refusal> {
        let before = self.words.clone();
        let result = self.try_write(kind, text, open);
        if result.is_err() {
            self.words = before;
        }
        result
    }

    fn try_write(&mut self, kind: Kind, text: &str, open: Open) -> Result<Effect, Refusal> {
        match kind {
            Kind::CurrentTracer => self.set_current_tracer(text)?,
            Kind::FunctionTracers => self.set_default_tracer(text)?,
            Kind::ProfileEnabled => return self.set_profile_enabled(number::parse(text)? != 0),
            Kind::TracingOn => self.words.paused = number::parse(text)? == 0,
            Kind::Filter => self.write_set(sets::Which::Filter, text, open)?,
            Kind::Notrace => self.write_set(sets::Which::Notrace, text, open)?,
            Kind::Ftraced => self.set_ftraced_enabled(text)?,
            _ => return Err(Refusal::invalid("it can only be read")),
        }
        Ok(Effect::default())
    }

    /// Returns the registered tracers.
    fn registered(&self) -> impl Iterator<Item = &TracerSelection> {
        self.words.tracers.iter().filter(|tracer| tracer.kind.is_some())
    }
}
