//! The flags and operands that the user gave, by the names of the
//! [table](crate::command_line::table).

use crate::command_line::table::{Flag, commands};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a word for a file stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether two paths lead to one regular file, also by links.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((meta.dev(), meta.ino()))
    };
    identity(one).is_some_and(|own| identity(other) == Some(own))
}

/// The flags and operands of one command.
pub struct Arguments(clap::ArgMatches);

impl Arguments {
    /// Wraps the parser's matches.
    pub fn new(matches: clap::ArgMatches) -> Arguments {
        Arguments(matches)
    }

    /// Whether a switch was given.
    pub fn is_set(&self, name: &str) -> bool {
        self.0.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false)
    }

    /// Whether the user gave a flag, and its value is not the default.
    pub fn is_given(&self, name: &str) -> bool {
        self.0.ids().any(|id| id == name)
            && self.0.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
    }

    /// Whether the command has a switch of this name.
    pub fn has_switch(&self, name: &str) -> bool {
        // A switch that was not given has the value false. `try_contains_id` detects unknown names
        // in debug builds only.
        matches!(self.0.try_get_one::<bool>(name), Ok(Some(_)))
    }

    /// Returns all values of a flag or operand.
    pub fn words(&self, name: &str) -> Vec<OsString> {
        if let Ok(Some(values)) = self.0.try_get_many::<OsString>(name) {
            return values.cloned().collect();
        }
        let values = self.0.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(OsString::from).collect()
    }

    /// Returns all values of a flag as text.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.words(name).iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Returns the globs of a flag whose values are lists with commas.
    pub fn names(&self, name: &str) -> Vec<String> {
        self.texts(name).iter().flat_map(|list| calltap_analysis::split_list(list)).collect()
    }

    /// Returns the value of a flag as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.texts(name).pop()
    }

    /// Fails if one of these flags is given, which have no effect on a trace.
    pub fn refuse_with_trace(&self, flags: &[Flag], trace: &Path) -> Result<()> {
        match flags.iter().find(|flag| self.is_given(flag.long)) {
            Some(flag) => bail!(
                "{}: --{} acts while calls are recorded, and this is a trace: use it with '-p PID' or '-- PROGRAM', or with 'calltap record'",
                trace.display(),
                flag.long
            ),
            None => Ok(()),
        }
    }

    /// Returns the trace to show, if one is named: as an operand or, as in other commands, by `-i`.
    pub fn shown(&self) -> Option<PathBuf> {
        self.path("operand").or(self.path("input"))
    }

    /// Returns the value of `--format`; `json` for `--json`.
    pub fn format(&self) -> Option<String> {
        if self.is_set("json") { Some("json".to_owned()) } else { self.text("format") }
    }

    /// Returns the file that `-o` names, which is not standard output.
    pub fn output_file(&self) -> Option<PathBuf> {
        self.path("output").filter(|path| !is_standard(path))
    }

    /// Whether `-o` names standard output.
    pub fn names_standard_output(&self) -> bool {
        self.path("output").is_some_and(|path| is_standard(&path))
    }

    /// Returns the value of a flag as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.words(name).pop().map(PathBuf::from)
    }

    /// Refuses empty names of files, programs and functions, as a script passes them for an unset
    /// variable.
    pub fn refuse_empty_names(&self, command: &str) -> anyhow::Result<()> {
        let has_empty = |flag: &&&str| self.words(flag).iter().any(|word| word.is_empty());
        if let Some(flag) = ["output", "input", "base", "save", "patch-log"].iter().find(has_empty) {
            anyhow::bail!("--{flag}: the name of the file is empty");
        }
        // An empty word of `set` ends a filter.
        for flag in ["filter", "notrace", "function"].iter().filter(|_| command != "set") {
            if self.names(flag).iter().any(String::is_empty) {
                anyhow::bail!("--{flag}: the name of a function is empty");
            }
        }
        let named = match command {
            "record" | "run" | "exec" => "program",
            "report" | "replay" | "graph" | "info" | "view" | "tui" | "export" | "import" | "sites" => "file",
            _ => return Ok(()),
        };
        match self.words("operand").first().is_some_and(|word| word.is_empty()) {
            true => Err(anyhow::anyhow!("{command}: the name of the {named} is empty")),
            false => Ok(()),
        }
    }

    /// Refuses an output that would replace a file which the command reads, or a trace by something
    /// else.
    pub fn refuse_output_over_input(&self, command: &str) -> anyhow::Result<()> {
        let makes_traces = ["record", "attach", "snapshot", "import", "merge"].contains(&command);
        let read: Vec<OsString> =
            ["operand", "input", "base", "program"].iter().flat_map(|name| self.words(name)).collect();
        // Without the flag, a trace of the default name is kept as `calltap.data.old`.
        for flag in ["output", "save", "patch-log"].iter().filter(|flag| self.is_given(flag)) {
            let Some(path) = self.path(flag) else { continue };
            if read.iter().any(|word| is_same_file(Path::new(word), &path)) {
                anyhow::bail!(
                    "--{flag} {}: the command reads this file, and its output would replace it: name another file",
                    path.display()
                );
            }
            if !makes_traces && calltap_trace::TraceReader::is_trace(&path) {
                anyhow::bail!(
                    "--{flag} {0}: this is a trace, and the output would replace it: name another file, or the trace before the options ('calltap {command} {0}')",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// Refuses flags that have an effect only with another one that is missing.
    pub fn refuse_flags_alone(&self, command: &str) -> anyhow::Result<()> {
        let own = commands().filter(|known| known.name == command);
        let mut flags = own.flat_map(|known| known.flags.iter().copied().flatten());
        let is_alone = |flag: &&Flag| {
            let has = |name: &&str| self.is_given(name);
            !flag.needs.is_empty() && self.is_given(flag.long) && !flag.needs.iter().any(has)
        };
        match flags.find(is_alone) {
            None => Ok(()),
            Some(flag) => anyhow::bail!("--{} needs --{}", flag.long, flag.needs.join(" or --")),
        }
    }

    /// Returns the value of a flag as a number, or an error that names the flag.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let parse = |text: String| {
            text.parse().map_err(|_| anyhow::anyhow!("--{name}: '{text}' is not a number, or out of range"))
        };
        self.text(name).map(parse).transpose()
    }
}
