//! What the user typed, by the names of the [table](crate::command_line::table).

use std::ffi::OsString;
use std::path::PathBuf;

/// The flags and operands of one command.
pub struct Arguments(clap::ArgMatches);

impl Arguments {
    /// From the parser.
    pub fn new(matches: clap::ArgMatches) -> Arguments {
        Arguments(matches)
    }

    /// Was a switch given?
    pub fn is_set(&self, name: &str) -> bool {
        self.0.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false)
    }

    /// Does the command have a switch of this name?
    pub fn has_switch(&self, name: &str) -> bool {
        // One that was not given is false. `try_contains_id` knows what is missing in debug builds alone.
        matches!(self.0.try_get_one::<bool>(name), Ok(Some(_)))
    }

    /// All values of a flag or operand.
    pub fn words(&self, name: &str) -> Vec<OsString> {
        if let Ok(Some(values)) = self.0.try_get_many::<OsString>(name) {
            return values.cloned().collect();
        }
        let values = self.0.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(OsString::from).collect()
    }

    /// All values of a flag as text.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.words(name).iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Words for functions: each value is a list with commas.
    pub fn names(&self, name: &str) -> Vec<String> {
        self.texts(name).iter().flat_map(|list| calltap_analysis::split_list(list)).collect()
    }

    /// The value of a flag as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.texts(name).pop()
    }

    /// The trace to show, if one is named; as in other commands, `-i` may stand before it.
    pub fn shown(&self) -> Option<PathBuf> {
        self.path("operand").or(self.path("input"))
    }

    /// `--format`, or `--json`.
    pub fn format(&self) -> Option<String> {
        if self.is_set("json") { Some("json".to_owned()) } else { self.text("format") }
    }

    /// The value of a flag as path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.words(name).pop().map(PathBuf::from)
    }

    /// The value of a flag as a number, or an error that names the flag.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let parse = |text: String| {
            text.parse().map_err(|_| anyhow::anyhow!("--{name}: '{text}' is not a number that fits"))
        };
        self.text(name).map(parse).transpose()
    }
}
