//! The comparison of a program's runs alone and under `calltap record`.

use crate::compile::Program;
use crate::rows::rows_in;
use crate::run;
use crate::run::{Run, calltap, calltap_run};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Flags of `calltap record`.
pub type Flags = Vec<&'static str>;

/// Parameters of a comparison.
#[derive(Default, Clone, Copy)]
pub struct Expect<'a> {
    /// Arguments of the program.
    pub arguments: &'a [&'a str],
    /// Standard input of the program.
    pub stdin: &'a [u8],
    /// Whether calls may be lost, if they are counted as lost.
    pub may_lose: bool,
    /// Whether the program prints no counts: its trace must only be readable.
    pub uncounted: bool,
    /// Whether the functions have no names, so that none can be counted.
    pub unnamed: bool,
}

/// A recording of a program.
pub struct Recording {
    /// The program's end and output.
    pub run: Run,
    /// Path of the trace.
    pub trace: PathBuf,
    /// Whether the trace has events, and whether it has a profile.
    has: (bool, bool),
    /// Program and flags, for messages.
    pub what: String,
}

impl Recording {
    /// Exports the trace to a format, and returns the file.
    pub fn export(&self, to: &str) -> PathBuf {
        let file = self.trace.with_extension(to);
        let (from, into) = (self.trace.to_string_lossy(), file.to_string_lossy());
        let run = calltap_run(&["export", "--to", to, "-i", &from, "-o", &into]);
        assert!(run.status.success(), "{}: {}", self.what, run.stderr);
        file
    }
}

/// Runs a program alone once, and recorded with each set of flags. Output, errors and status must
/// be the same, and the report must have as many calls of each function as the program has counted.
/// Returns the last recording.
pub fn check(program: &Program, flags: &[Flags], expect: &Expect<'_>) -> Recording {
    let mut command = Command::new(&program.path);
    command.args(expect.arguments).current_dir(program.directory());
    let alone = run(command, expect.stdin);
    let mut last = None;
    for flags in flags {
        let recording = record(program, flags, expect);
        let what = &recording.what;
        assert_eq!(recording.run.status, alone.status, "{what}: how it ended\n{}", recording.run.stderr);
        assert_eq!(compared(&recording.run.stdout), compared(&alone.stdout), "{what}: its output");
        assert_eq!(recording.errors(expect), alone.stderr, "{what}: its errors");
        recording.counts_agree(expect);
        last = Some(recording);
    }
    last.expect("some flags")
}

/// Records a program.
pub fn record(program: &Program, flags: &[&str], expect: &Expect<'_>) -> Recording {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let trace = program.directory().join(format!("{number}.calltap"));
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o"]).arg(&trace).args(flags).arg("--").arg(&program.path);
    command.args(expect.arguments).current_dir(program.directory());
    let what = format!("{} {} {}", program.name, expect.arguments.join(" "), flags.join(" "));
    let profile = flags.contains(&"profile");
    let has = (!profile || flags.iter().any(|flag| flag.starts_with("function")), profile);
    Recording { run: run(command, expect.stdin), trace, has, what }
}

fn compared(stdout: &str) -> String {
    stdout.lines().filter(|line| !line.starts_with("about ")).collect::<Vec<_>>().join("\n")
}

impl Recording {
    fn view(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        let trace = self.trace.to_string_lossy();
        all.extend(["-i", &trace, "--format", "json"]);
        let run = calltap_run(&all);
        assert!(run.status.success(), "{}: {all:?}: {}", self.what, run.stderr);
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{}: {all:?}: {error}", self.what))
    }

    /// Returns standard error, without calltap's line about lost calls if calls may be lost.
    fn errors(&self, expect: &Expect<'_>) -> String {
        let is_told = |line: &&str| expect.may_lose && line.starts_with("calltap: LOST ");
        self.run.stderr.split_inclusive('\n').filter(|line| !is_told(line)).collect()
    }

    /// Returns `calltap info`.
    pub fn info(&self) -> Value {
        self.view(&["info"])
    }

    /// Returns the rows of `calltap report --by-thread`.
    pub fn rows_by_thread(&self) -> Vec<Value> {
        rows_in(self.view(&["report", "--by-thread"]))
    }

    /// Returns the rows of `calltap report` of one thread.
    pub fn rows_of(&self, tid: i64) -> Vec<Value> {
        self.rows_by_thread().into_iter().filter(|row| row["tid"] == tid).collect()
    }

    /// Returns the rows of `calltap report`.
    pub fn rows(&self) -> Vec<Value> {
        rows_in(self.view(&["report"]))
    }

    /// Returns the rows of `calltap stat`.
    pub fn profile(&self) -> Vec<Value> {
        rows_in(self.view(&["stat"]))
    }

    /// Compares the program's counts with those of the report and of the profile. A name of the
    /// form `MODULE:FUNCTION` counts in one module only.
    pub fn counts_agree(&self, expect: &Expect<'_>) {
        let what = &self.what;
        let info = self.info();
        let (events, sums) = (self.has.0.then(|| self.rows()), self.has.1.then(|| self.profile()));
        let calls = |key: &str| info["calls"][key].as_u64().unwrap_or_default();
        let lost = calls("lost");
        assert_eq!(calls("entered"), calls("recorded") + calls("lost"), "{what}: entered = recorded + lost");
        assert!(expect.may_lose || lost == 0, "{what}: {lost} calls lost");
        assert!(expect.may_lose || calls("exits_lost") == 0, "{what}: {} returns lost", calls("exits_lost"));
        assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{what}: {}", info["complaints"]);
        let mut missing = 0;
        let mut counted = 0;
        for line in self.run.stdout.lines().filter(|_| !expect.unnamed) {
            let words: Vec<&str> = line.split(' ').collect();
            let ["calls" | "about", name, number] = words[..] else { continue };
            let own: u64 = number.parse().unwrap_or_else(|_| panic!("{what}: {line}"));
            counted += 1;
            if let Some(rows) = &sums {
                let ours = count(rows, name);
                let exact = if expect.may_lose { ours <= own } else { ours == own };
                assert!(exact, "{what}: {name} ran {own} times, the profile says {ours}");
            }
            let Some(rows) = &events else { continue };
            let ours = count(rows, name);
            assert!(ours <= own, "{what}: {name} ran {own} times, the report says {ours}");
            assert!(expect.may_lose || ours == own, "{what}: {name} ran {own} times, the report says {ours}");
            missing += own - ours;
        }
        assert!(missing <= lost, "{what}: {missing} calls are missing, but only {lost} are counted as lost");
        assert!(counted > 0 || expect.uncounted || expect.unnamed, "{what}: the program counted nothing");
    }
}

/// Returns the number of calls of a function, over all modules or in one.
fn count(rows: &[Value], name: &str) -> u64 {
    let (module, name) = name.split_once(':').map_or((None, name), |(module, name)| (Some(module), name));
    let matches = |row: &&Value| {
        let full = row["function"].as_str().unwrap_or_default();
        let plain = full.split('(').next().unwrap_or_default().rsplit("::").next().unwrap_or_default();
        plain == name && module.is_none_or(|module| row["module"] == module)
    };
    rows.iter().filter(matches).map(|row| row["calls"].as_u64().unwrap_or_default()).sum()
}
