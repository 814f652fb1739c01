//! Every command and flag, as data: the parser, help, man page and completions derive from it.

mod flags;
mod live;
mod record;
mod session;
mod tools;
mod traces;
mod why;

pub use flags::{LOOKING, MAX_WAIT, RECORDING};

/// Returns all commands, in the order of help and manual.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    let groups = [record::RECORD, live::LIVE, why::WHY, session::SESSION, traces::TRACES, tools::TOOLS];
    groups.into_iter().flatten()
}

/// The commands that help shows, by purpose. A command in no group and in no [family](FAMILIES) is
/// listed last.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Record", &["record", "attach", "set", "status", "snapshot", "detach"]),
    (
        "Watch",
        &[
            "top",
            "count",
            "histogram",
            "latency",
            "slower",
            "why",
            "locks",
            "span",
            "watch",
            "stacks",
            "futures",
        ],
    ),
    ("Read", &["report", "replay", "graph", "info", "view", "tui"]),
    ("Compare and convert", &["diff", "export", "import", "merge"]),
    ("Control directory", &["tracefs"]),
    ("Build", &["sites", "tools", "man", "completions", "install-completions"]),
];

/// Families of commands: `calltap tracefs mount`. A member's own name is accepted as well, and not
/// shown.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "tracefs",
        about: "ftrace's control directory for processes: mount it, read and write its files, run its clients",
        members: &["mount", "get", "put", "run", "exec"],
    },
    Family {
        name: "tools",
        about: "Tools for builds and checks: lists of calls for -pg objects, audits of code changes",
        members: &["cc", "recordmcount", "audit", "debuginfo"],
    },
];

/// Old names of commands that other commands have replaced.
pub const OLD: &[&str] = &["stat"];

/// A family of commands under one name.
pub struct Family {
    /// The word before the command's own name.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Names of the commands.
    pub members: &'static [&'static str],
}

/// A command.
pub struct Command {
    /// The word that the user types.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Further paragraphs, for `--help` and the man page.
    pub details: &'static str,
    /// The command's flags, in groups that commands share.
    pub flags: &'static [&'static [Flag]],
    /// The command's operand, if it has one.
    pub operand: Option<Operand>,
}

/// A flag.
pub struct Flag {
    /// The long name, for `--long`.
    pub long: &'static str,
    /// The short name, for `-s`.
    pub short: Option<char>,
    /// Name of the value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Permitted values; empty if any value is.
    pub choices: &'static [&'static str],
    /// Default value.
    pub default: Option<&'static str>,
    /// Whether the flag may be given several times.
    pub many: bool,
    /// Flags of which it needs one; empty if it needs none.
    pub needs: &'static [&'static str],
    /// Description in one sentence.
    pub help: &'static str,
}

/// The operand of a command: the words behind the flags.
pub struct Operand {
    /// Name in the usage line.
    pub name: &'static str,
    /// Number and kind of the words.
    pub takes: Takes,
    /// Whether the operand may be left out.
    pub optional: bool,
    /// Description in one sentence.
    pub help: &'static str,
}

/// A single word.
pub enum Takes {
    /// Exactly one word.
    One,
    /// At least one word.
    Many,
    /// At least one word, and a program behind `--`, which is `program`.
    ManyAndProgram,
    /// At least one word, and others like them behind `--`, which are `more`.
    ManyAndMore,
    /// All words that follow (`-- PROGRAM ARGS...`), flags or not.
    Rest,
}

const fn switch(long: &'static str, short: Option<char>, help: &'static str) -> Flag {
    Flag { long, short, value: None, choices: &[], default: None, many: false, needs: &[], help }
}

const fn value(long: &'static str, short: Option<char>, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short, value: Some(value), choices: &[], default: None, many: false, needs: &[], help }
}

/// Returns the flag that one of these must accompany.
const fn with(flag: Flag, needs: &'static [&'static str]) -> Flag {
    Flag { needs, ..flag }
}

const fn many(flag: Flag) -> Flag {
    Flag { many: true, ..flag }
}

const fn choice(flag: Flag, choices: &'static [&'static str], default: &'static str) -> Flag {
    Flag { choices, default: Some(default), ..flag }
}

/// Returns the flag with these permitted values; it has no default.
const fn choices(flag: Flag, choices: &'static [&'static str]) -> Flag {
    Flag { choices, ..flag }
}

const fn or(flag: Flag, default: &'static str) -> Flag {
    Flag { default: Some(default), ..flag }
}
