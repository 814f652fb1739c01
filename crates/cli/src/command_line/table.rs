//! Every command and flag, as data: the parser, help, man page and completions derive from it.

mod flags;
mod live;
mod record;
mod session;
mod tools;
mod traces;
mod why;

pub use flags::MAX_WAIT;

/// All commands, in the order of help and manual.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    let groups = [record::RECORD, live::LIVE, why::WHY, session::SESSION, traces::TRACES, tools::TOOLS];
    groups.into_iter().flatten()
}

/// The commands that are shown, by what they are for. What is in no group, and in no [family](FAMILIES), is listed last.
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

/// Commands that are one thing: `calltap tracefs mount`. By their names alone they are understood, too, and not shown.
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

/// Commands that other commands have taken over, by their old names.
pub const OLD: &[&str] = &["stat"];

/// Commands under one name.
pub struct Family {
    /// What the user types before the command's own name.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// The commands.
    pub members: &'static [&'static str],
}

/// A command.
pub struct Command {
    /// What the user types.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Paragraphs behind it, for `--help` and the man page.
    pub details: &'static str,
    /// Its flags, in groups that commands share.
    pub flags: &'static [&'static [Flag]],
    /// Its operand, if it has one.
    pub operand: Option<Operand>,
}

/// A flag.
pub struct Flag {
    /// `--long`.
    pub long: &'static str,
    /// `-s`.
    pub short: Option<char>,
    /// Name of its value; None for a switch.
    pub value: Option<&'static str>,
    /// Values it can have; empty for any.
    pub choices: &'static [&'static str],
    /// Value if not given.
    pub default: Option<&'static str>,
    /// May be given several times.
    pub many: bool,
    /// One sentence.
    pub help: &'static str,
}

/// What follows the flags.
pub struct Operand {
    /// Its name in the usage line.
    pub name: &'static str,
    /// How many words it is.
    pub takes: Takes,
    /// It may be left out.
    pub optional: bool,
    /// One sentence.
    pub help: &'static str,
}

/// The words of an operand.
pub enum Takes {
    /// One.
    One,
    /// One or more.
    Many,
    /// Likewise, and a program behind `--`, which is `program`.
    ManyAndProgram,
    /// Likewise, and others like them behind `--`, which are `more`.
    ManyAndMore,
    /// All that follows (`-- PROGRAM ARGS...`), flags or not.
    Rest,
}

const fn switch(long: &'static str, short: Option<char>, help: &'static str) -> Flag {
    Flag { long, short, value: None, choices: &[], default: None, many: false, help }
}

const fn value(long: &'static str, short: Option<char>, value: &'static str, help: &'static str) -> Flag {
    Flag { long, short, value: Some(value), choices: &[], default: None, many: false, help }
}

const fn many(flag: Flag) -> Flag {
    Flag { many: true, ..flag }
}

const fn choice(flag: Flag, choices: &'static [&'static str], default: &'static str) -> Flag {
    Flag { choices, default: Some(default), ..flag }
}

/// One of these, or nothing.
const fn choices(flag: Flag, choices: &'static [&'static str]) -> Flag {
    Flag { choices, ..flag }
}

const fn or(flag: Flag, default: &'static str) -> Flag {
    Flag { default: Some(default), ..flag }
}
