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
pub use stat::{table, write_duration};
pub use tracers::{PROFILE, TRACE};

use calltap_selection::{Listed, Profiled, Selection, TracerSelection};
use rustix::io::Errno;

/// A control file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Name of the file.
    pub name: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// Contents of the file.
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AvailableTracers,
    CurrentTracer,
    FunctionTracers,
    ProfileEnabled,
    TracingOn,
    Filter,
    Notrace,
    Available,
    Enabled,
    Touched,
    Info,
    Failures,
    Ftraced,
    Stat,
}

const fn file(name: &'static str, kind: Kind, about: &'static str) -> File {
    File { name, about, kind }
}

/// All control files.
pub const FILES: &[File] = &[
    file("available_tracers", Kind::AvailableTracers, "values for current_tracer"),
    file(
        "current_tracer",
        Kind::CurrentTracer,
        "the tracer that records events: function, function_graph or nop",
    ),
    file(
        "function_tracers",
        Kind::FunctionTracers,
        "the tracers that are registered; * marks the default, a name makes it that",
    ),
    file(
        "function_profile_enabled",
        Kind::ProfileEnabled,
        "1 registers trace_profile, which sums up calls and times; 0 ends it",
    ),
    file("tracing_on", Kind::TracingOn, "0: no events are recorded, tracers stay"),
    file("set_ftrace_filter", Kind::Filter, "the only functions that the default tracer traces"),
    file("set_ftrace_notrace", Kind::Notrace, "the functions that it does not trace"),
    file("available_filter_functions", Kind::Available, "the functions that can be traced"),
    file("enabled_functions", Kind::Enabled, "the functions that are traced, and by how many tracers"),
    file("touched_functions", Kind::Touched, "functions that were ever traced"),
    file("dyn_ftrace_total_info", Kind::Info, "number of traceable functions, and their memory"),
    file(
        "failures",
        Kind::Failures,
        "the functions at which other bytes were found than expected; they are never touched again",
    ),
    file(
        "ftraced_enabled",
        Kind::Ftraced,
        "the daemon that converts calls of mcount recorded at their first time: enabled or disabled; every write converts at once",
    ),
    file("trace_stat/function0", Kind::Stat, "sums of trace_profile"),
];

impl File {
    /// Returns the file with a name, or an error with the nearest names.
    pub fn named(name: &str) -> Result<File, Refusal> {
        let none = || {
            let near = calltap_names::nearest_names(name, FILES.iter().map(|file| file.name), 3);
            let hint = if near.is_empty() {
                "; 'calltap tracefs get' lists them".to_owned()
            } else {
                format!("; nearest: {}", near.join(", "))
            };
            Refusal::new(Errno::NOENT, format!("no such control file{hint}"))
        };
        FILES.iter().find(|file| file.name == name).copied().ok_or_else(none)
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
        match file.kind {
            Kind::AvailableTracers => "function_graph function nop\n".into(),
            Kind::CurrentTracer => self.current_tracer(),
            Kind::FunctionTracers => self.function_tracers(),
            Kind::ProfileEnabled => number::text(self.profile_enabled()),
            Kind::TracingOn => number::text(!self.words.paused),
            Kind::Filter => self.read_set(sets::Which::Filter),
            Kind::Notrace => self.read_set(sets::Which::Notrace),
            Kind::Available => self.available(),
            Kind::Enabled => self.enabled(),
            Kind::Touched => self.touched(),
            Kind::Info => self.info(),
            Kind::Failures => self.failures(),
            Kind::Ftraced => self.ftraced_enabled(),
            Kind::Stat => stat::table(self.profile),
        }
    }

    /// Writes a text. A refused text changes nothing. The kernel differs: where a wrong name
    /// follows a truncation, it leaves the filter empty and traces everything.
    pub fn write(&mut self, file: File, text: &str, open: Open) -> Result<Effect, Refusal> {
        let before = self.words.clone();
        let result = self.try_write(file, text, open);
        if result.is_err() {
            self.words = before;
        }
        result
    }

    fn try_write(&mut self, file: File, text: &str, open: Open) -> Result<Effect, Refusal> {
        match file.kind {
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
