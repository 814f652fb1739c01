//! `record --repeat`: records a program several times, one run after the other.
//!
//! After each run calltap executes itself for the next, so that nothing a run leaves in the
//! recorder, such as threads that wait for signals, reaches the next run.

use crate::command_line::arguments::Arguments;
use anyhow::{Result, bail};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const FLAG: &str = "--repeat";

/// The number of a run, and the number of all runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runs {
    run: u32,
    of: u32,
}

impl Runs {
    /// Parses `--repeat`: `N`, or `K/N` from the K-th run on.
    pub fn of(arguments: &Arguments) -> Result<Option<Runs>> {
        let Some(text) = arguments.text("repeat") else { return Ok(None) };
        if arguments.text("pid").is_some() {
            bail!("--repeat needs '-- PROGRAM': of a running process, make several recordings with -p");
        }
        match parse(&text) {
            Some(runs) => Ok(Some(runs)),
            None => bail!(
                "--repeat: '{text}' is neither a number of runs (5) nor a first run and a number of runs (2/5)"
            ),
        }
    }

    /// Returns the trace file of this run.
    pub fn file(self, output: &Path) -> PathBuf {
        let mut name = output.as_os_str().to_owned();
        name.push(format!(".{}", self.run));
        name.into()
    }

    /// Continues with the next run, in the same process, if this one succeeded. Returns the exit
    /// status after the last run.
    pub fn go_on(self, code: ExitCode) -> ExitCode {
        if self.run == self.of {
            return code;
        }
        if code != ExitCode::SUCCESS {
            tell!("calltap: run {} of {} failed: calltap does not make the other runs", self.run, self.of);
            return code;
        }
        let next = Runs { run: self.run + 1, ..self };
        let Ok(program) = env::current_exe() else { return self.fail("calltap cannot find its own program") };
        let command: Vec<OsString> =
            [program.into_os_string()].into_iter().chain(next.arguments(env::args_os().skip(1))).collect();
        self.fail(&calltap_process::launch::become_command(&command).to_string())
    }

    fn fail(self, why: &str) -> ExitCode {
        tell!("calltap: cannot go on with run {} of {}: {why}", self.run + 1, self.of);
        ExitCode::FAILURE
    }

    /// Returns the command line for this run: the flag occurs once, in front of the program.
    fn arguments(self, typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
        let value = format!("{}/{}", self.run, self.of);
        let mut words: Vec<OsString> = typed.collect();
        let joined = format!("{FLAG}=");
        let is_flag = |word: &OsString| word == FLAG || word.to_string_lossy().starts_with(&joined);
        if let Some(at) = words.iter().position(is_flag) {
            if words[at] == FLAG {
                words.remove(at);
            }
            words[at] = (joined + &value).into();
        }
        words
    }
}

fn parse(text: &str) -> Option<Runs> {
    let (run, of) = text.split_once('/').unwrap_or(("1", text));
    let runs = Runs { run: run.parse().ok()?, of: of.parse().ok()? };
    (1..=runs.of).contains(&runs.run).then_some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_numbered_from_one() {
        assert_eq!(parse("5"), Some(Runs { run: 1, of: 5 }));
        assert_eq!(parse("2/5"), Some(Runs { run: 2, of: 5 }));
        for text in ["0", "", "x", "6/5", "0/5", "1/", "-1", "1/2/3"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let file = Runs { run: 10, of: 10 }.file(Path::new("dir/new.data"));
        assert_eq!(file, Path::new("dir/new.data.10"));
    }

    #[test]
    fn the_next_run_has_the_same_arguments() {
        let next = |typed: &str| {
            let words = Runs { run: 3, of: 5 }.arguments(typed.split(' ').map(OsString::from));
            words.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(
            next("record --repeat 2/5 -o a -- p --repeat 7"),
            "record --repeat=3/5 -o a -- p --repeat 7"
        );
        assert_eq!(next("record -F f --repeat=5 -- p"), "record -F f --repeat=3/5 -- p");
        assert_eq!(next("record --repeat 5 p --repeat=7"), "record --repeat=3/5 p --repeat=7");
    }
}
