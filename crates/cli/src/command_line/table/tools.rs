//! Commands for binaries, object files, the log of code changes, and shells.

use super::flags::{ALLOW_INT3, CHILDREN, FULL_NAMES, LINKER_NAMES, NO_PAGER, OUTPUT, PIDS};
use super::{Command, Flag, Operand, Takes, choice, or, switch, value};

/// The commands.
pub const TOOLS: &[Command] = &[
    Command {
        name: "sites",
        about: "List the functions of a binary: whether and how each can be traced",
        details: "Kinds: patchable, mcount_loc, fentry, mcount, xray, prologue (relocated), none. \
                  Functions that cannot be traced have the reason.",
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
                "List the functions that were inlined, from the debugging information, instead.",
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
        details: "Equivalent of -mrecord-mcount for other compilers, C++, and existing objects. \
                  x86-64 and i386. A file is replaced atomically; after a failure it is unchanged. \
                  Objects without calls to mcount, or with a list, are not touched. Other hard \
                  links to a file keep the old contents.\n\n\
                  The list holds the address of every call to mcount, _mcount and __fentry__; \
                  'calltap sites' and 'calltap record' read it.",
        flags: &[&[]],
        operand: Some(Operand { name: "FILE", takes: Takes::Many, optional: false, help: "Object files." }),
    },
    Command {
        name: "cc",
        about: "Run a compiler, and add __mcount_loc to the object files that the compiler writes",
        details: "For builds: make CC='calltap tools cc gcc' CFLAGS='-O2 -pg'. The compiler gets \
                  its arguments unchanged, and its exit status is passed on; its output files are \
                  then processed as by 'calltap tools recordmcount'.\n\n\
                  Covered: -c with or without -o, several sources, response files (@FILE), -r. Not \
                  covered, and run as without calltap: -S, -E, -M; compiling and linking in one \
                  command, after which no object remains; link-time optimisation (-flto), where \
                  the linker generates the code. In such programs calltap finds the calls without \
                  a list.",
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
        details: "Checks a --patch-log: each site was verified before it was written; steps were \
                  separated by core syncs; no other byte was written. Prints the number of checked \
                  changes, or the lines that break a rule.",
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
        about: "Fetch debugging files of programs and libraries from the servers in DEBUGINFOD_URLS",
        details: "Fetches by build-id, and only on request: no other command of calltap uses a \
                  network. All commands then show names, argument types and source lines. Uses the \
                  cache of gdb and elfutils ($DEBUGINFOD_CACHE_PATH, else \
                  ~/.cache/debuginfod_client, 4 GB at most). A file with another build-id is \
                  refused. Needs curl.",
        flags: &[&[
            PIDS,
            CHILDREN,
            or(value("max-size", None, "SIZE", "Do not fetch larger files (bytes, or with K, M, G)."), "1G"),
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
        about: "Print the manual page (roff)",
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
            choice(value("shell", None, "SHELL", "The shell."), &["bash", "zsh", "fish", "elvish"], "bash"),
        ]],
        operand: None,
    },
    Command {
        name: "install-completions",
        about: "Install a shell's completions and the manual page in the user's directories",
        details: "Writes only below $XDG_DATA_HOME (~/.local/share) and $XDG_CONFIG_HOME \
                  (~/.config). A file that is up to date is not touched.",
        flags: &[&[SHELL_TO_INSTALL_FOR]],
        operand: None,
    },
];

/// `--shell`. It has no default, as the user's own shell is found from `$SHELL`.
const SHELL_TO_INSTALL_FOR: Flag = Flag {
    choices: &["bash", "zsh", "fish"],
    ..value("shell", None, "SHELL", "The shell; by default that of $SHELL.")
};
