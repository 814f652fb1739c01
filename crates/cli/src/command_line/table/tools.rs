//! Commands for binaries, object files, the log of code changes, and shells.

use super::flags::{ALLOW_INT3, CHILDREN, FULL_NAMES, LINKER_NAMES, NO_PAGER, OUTPUT, PIDS};
use super::{Command, Flag, Operand, Takes, choice, or, switch, value};

/// The commands.
pub const TOOLS: &[Command] = &[
    Command {
        name: "sites",
        about: "List every function of a binary, and whether and how it can be traced",
        details: "Kinds: patchable, mcount_loc, fentry, mcount, xray, prologue (as it is), none; functions that cannot be traced come with the reason.",
        flags: &[&[
            OUTPUT,
            NO_PAGER,
            choice(value("format", None, "FORMAT", "Form of the list."), &["text", "json"], "text"),
            LINKER_NAMES,
            FULL_NAMES,
            ALLOW_INT3,
            switch(
                "inlined",
                None,
                "List the functions that were inlined instead, as the debugging information tells.",
            ),
        ]],
        operand: Some(Operand {
            name: "BINARY",
            takes: Takes::One,
            optional: false,
            help: "An ELF executable or shared object.",
        }),
    },
    Command {
        name: "recordmcount",
        about: "Add __mcount_loc, the list of calls to mcount, to object files compiled with -pg",
        details: "What the compiler does itself with -mrecord-mcount, for compilers that do not have it, for C++, and for objects that exist already. \
                  x86-64 and i386. A file is replaced at once or, on failure, left as it was; objects without calls to mcount, or with a list, \
                  are not touched. Other hard links to a file keep what it was.\n\n\
                  The list holds the address of every call to mcount, _mcount and __fentry__; 'calltap sites' and 'calltap record' read it.",
        flags: &[&[]],
        operand: Some(Operand { name: "FILE", takes: Takes::Many, optional: false, help: "Object files." }),
    },
    Command {
        name: "cc",
        about: "Run a compiler, and add __mcount_loc to the object files that it makes",
        details: "For builds: make CC='calltap tools cc gcc' CFLAGS='-O2 -pg'. The compiler gets its arguments as they are, and its exit status is passed on; then \
                  what it made is treated as by 'calltap tools recordmcount'.\n\n\
                  Covered: -c with or without -o, several sources, response files (@FILE), -r. Not covered, and run as if without calltap: -S, -E, -M; \
                  compiling and linking in one command, after which no object remains; link-time optimisation (-flto), where the linker \
                  makes the code. In programs built so the calls are found without a list.",
        flags: &[&[]],
        operand: Some(Operand {
            name: "COMPILER",
            takes: Takes::Rest,
            optional: false,
            help: "The compiler and its arguments.",
        }),
    },
    Command {
        name: "audit",
        about: "Check a log of code changes against the rules by which running code may be changed",
        details: "Replays what --patch-log wrote: every site read and found as expected before anything is written, one step at a time, a core sync \
                  between two steps, nothing else touched. Says what it has checked, or names the lines that break a rule.",
        flags: &[&[OUTPUT]],
        operand: Some(Operand {
            name: "LOG",
            takes: Takes::One,
            optional: false,
            help: "A file that --patch-log wrote.",
        }),
    },
    Command {
        name: "debuginfo",
        about: "Fetch the debugging files of programs and libraries from the servers that DEBUGINFOD_URLS names",
        details: "By build-id, and only when asked: no other command of calltap uses a network. Names, types of arguments and source lines are then there for every \
                  command. Files are kept where gdb and elfutils keep theirs ($DEBUGINFOD_CACHE_PATH, else ~/.cache/debuginfod_client, 4 GB at most), and what those have fetched is used, too. \
                  What is not of the same build is refused. curl does the transfer.",
        flags: &[&[
            PIDS,
            CHILDREN,
            or(
                value("max-size", None, "SIZE", "A larger file is not fetched (bytes, or with K, M, G)."),
                "1G",
            ),
        ]],
        operand: Some(Operand {
            name: "BINARY",
            takes: Takes::Many,
            optional: true,
            help: "Executables and shared objects.",
        }),
    },
    Command {
        name: "man",
        about: "Print the manual page, in roff",
        details: "",
        flags: &[&[OUTPUT]],
        operand: None,
    },
    Command {
        name: "completions",
        about: "Print the completion script of a shell",
        details: "",
        flags: &[&[
            OUTPUT,
            choice(value("shell", None, "SHELL", "Which shell."), &["bash", "zsh", "fish", "elvish"], "bash"),
        ]],
        operand: None,
    },
    Command {
        name: "install-completions",
        about: "Install a shell's completions and the manual page in the user's directories",
        details: "Nothing is written outside of $XDG_DATA_HOME (~/.local/share) and $XDG_CONFIG_HOME (~/.config). A file that is up to date is left alone.",
        flags: &[&[SHELL_TO_INSTALL_FOR]],
        operand: None,
    },
];

/// `--shell`. It has no default, as the user's own shell is found from `$SHELL`.
const SHELL_TO_INSTALL_FOR: Flag = Flag {
    choices: &["bash", "zsh", "fish"],
    ..value("shell", None, "SHELL", "Which shell; that of $SHELL if none is given.")
};
