//! A command for several processes: calltap starts itself once for each. Each of these writes a
//! trace of its own, or gives an answer of its own.
//!
//! A listed process may end before its calltap has attached; the others are handled nevertheless.

use crate::command_line::arguments::Arguments;
use crate::command_line::processes;
use crate::ending;
use anyhow::{Context, Result};
use calltap_process::Error as ProcessError;
use calltap_process::Reason;
use calltap_session::Error;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval between two looks at the running children.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Flags whose value differs from child to child.
const OWN: [(&str, &str); 2] = [("-p", "--pid"), ("-o", "--output")];

/// Exit status of a child whose process had ended before it was attached to. `calltap record -p`
/// uses it for nothing else.
const ENDED: u8 = 4;

/// How the children's answers are put together on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// The lines of all, in the order in which they arrive; a line names the process where another
    /// one's follow.
    Lines,
    /// JSON objects in the order in which they arrive, with a member that names the process.
    ObjectLines,
    /// Texts, each below a line that names the process.
    Texts,
    /// JSON objects, one per line, with a member that names the process.
    Objects,
}

/// Tells why nothing was recorded, as [`ending::refused`] does. For a listed process that has ended
/// meanwhile the exit status is [`ENDED`].
pub fn refused(error: &Error) -> ExitCode {
    if !processes::is_one_of_many() || !has_ended(error) {
        return ending::refused(error);
    }
    tell!("calltap: {error}; skipped");
    ExitCode::from(ENDED)
}

/// Whether an error says that the process has ended.
pub fn is_of_ended(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(has_ended)
}

fn has_ended(error: &Error) -> bool {
    let Error::Process(ProcessError::Attach { reason, .. }) = error else { return false };
    matches!(reason, Reason::NoProcess | Reason::Zombie | Reason::Ending | Reason::Ended)
}

/// The exit status of the children so far.
#[derive(Default)]
struct Status {
    /// The first status that is neither 0 nor [`ENDED`].
    failed: Option<u8>,
    recorded: usize,
}

impl Status {
    fn add(&mut self, code: u8) {
        match code {
            ENDED => {}
            0 => self.recorded += 1,
            code => drop(self.failed.get_or_insert(code)),
        }
    }

    /// Returns the common exit status: failure if all processes had ended before.
    fn code(&self) -> u8 {
        self.failed.unwrap_or(u8::from(self.recorded == 0))
    }
}

/// Runs a question for each of several processes; `None` if `-p` names fewer than two.
pub fn answer(name: &str, arguments: &Arguments) -> Result<Option<ExitCode>> {
    let pids = processes::all(arguments)?;
    if pids.len() < 2 {
        return Ok(None);
    }
    let lines = if arguments.is_set("json") { Answers::ObjectLines } else { Answers::Lines };
    let answers = match name {
        "slower" | "watch" => lines,
        "futures" if arguments.is_set("each") => lines,
        _ if arguments.is_set("json") => Answers::Objects,
        _ => Answers::Texts,
    };
    let file = arguments.output_file();
    let limit = arguments.number("limit")?.filter(|_| answers == lines);
    run(&pids, file.as_deref(), Some((answers, limit))).map(Some)
}

/// Starts a calltap for each process and waits for all. The output of each is FILE.PID. Without
/// `answers` each writes a trace; with it, all end after so many lines together. Returns the first
/// exit status that is not 0; a process that had ended before counts only if all had.
pub fn run(pids: &[u32], output: Option<&Path>, answers: Option<(Answers, Option<u64>)>) -> Result<ExitCode> {
    let interrupted = calltap_process::launch::interruption()?;
    let program = std::env::current_exe().context("cannot find calltap's own program")?;
    let words = common_words(std::env::args_os().skip(1));
    let start = |pid: &u32| {
        let mut command = Command::new(&program);
        command.args(&words).arg("-p").arg(pid.to_string());
        if let Some(output) = output {
            let mut file = output.as_os_str().to_owned();
            file.push(format!(".{pid}"));
            command.arg("-o").arg(file);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process that does not exist from the start is an error, as it is without a list.
        command.env_remove(processes::ONE_OF_MANY);
        if processes::was_there(*pid) {
            command.env(processes::ONE_OF_MANY, processes::title(*pid));
        }
        command.spawn().with_context(|| format!("cannot start a calltap for process {pid}"))
    };
    let mut running = Vec::new();
    for pid in pids {
        match start(pid) {
            Ok(child) => running.push(child),
            Err(error) => {
                end(running);
                return Err(error);
            }
        }
    }
    if io::stderr().is_terminal() {
        tell!("calltap: {} processes; calltap leaves out processes that start later", pids.len());
    }
    let said = Mutex::new(HashSet::new());
    let (answers, limit) = answers.unwrap_or((Answers::Lines, None));
    let lines =
        CommonLines { left: AtomicU64::new(limit.unwrap_or(u64::MAX)), last: Mutex::new(None), answers };
    let lines = &lines;
    let status = thread::scope(|scope| {
        for (child, pid) in running.iter_mut().zip(pids) {
            let (out, err) = (child.stdout.take(), child.stderr.take());
            scope.spawn(move || {
                out.map(|out| match answers {
                    Answers::Lines | Answers::ObjectLines => forward_lines(out, *pid, lines),
                    answers => forward_answers(out, *pid, answers),
                })
            });
            scope.spawn(|| err.map(|err| forward_messages(err, &said)));
        }
        wait(running, || interrupted.load(Acquire) || lines.left.load(Relaxed) == 0)
    });
    Ok(ExitCode::from(status.code()))
}

/// Waits for all children, and interrupts them once this process is interrupted.
fn wait(mut running: Vec<Child>, is_interrupted: impl Fn() -> bool) -> Status {
    let (mut status, mut is_told) = (Status::default(), false);
    while !running.is_empty() {
        if is_interrupted() && !std::mem::replace(&mut is_told, true) {
            for child in &running {
                Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::INT));
            }
        }
        running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(ended)) => {
                status.add(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
                false
            }
            Err(_) => false,
        });
        thread::sleep(LOOK_INTERVAL);
    }
    status
}

/// Passes on a child's lines, as long as some are left of the limit for all children. If standard
/// output is closed, the child learns that from its closed pipe.
fn forward_lines(from: impl Read, pid: u32, lines: &CommonLines) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        // Lines of a head do not count.
        let counts = u64::from(!line.starts_with(b"#"));
        if lines.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(counts)).is_ok() {
            lines.write(pid, &line)?;
        }
        line.clear();
    }
    Ok(())
}

/// The lines of all children, as they come.
struct CommonLines {
    /// Number of lines that may still be written.
    left: AtomicU64,
    /// The process of the last line.
    last: Mutex<Option<u32>>,
    answers: Answers,
}

impl CommonLines {
    /// Writes a line about a process. An object gets its id; in front of text, a line names the
    /// process where the line before is about another one.
    fn write(&self, pid: u32, line: &[u8]) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        let is_other = last.replace(pid) != Some(pid);
        match serde_json::from_slice::<Value>(line).ok().filter(|_| self.answers == Answers::ObjectLines) {
            Some(mut object) if object.is_object() => {
                object["pid"] = pid.into();
                writeln!(out, "{object}")?;
            }
            _ => {
                if is_other && self.answers == Answers::Lines {
                    writeln!(out, "# {}", processes::title(pid))?;
                }
                out.write_all(line)?;
            }
        }
        out.flush()
    }
}

/// Passes on a child's answer about a process.
fn forward_answers(mut from: impl Read, pid: u32, answers: Answers) -> io::Result<()> {
    let mut text = String::new();
    from.read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(());
    }
    let object = serde_json::from_str::<Value>(&text).ok().filter(|_| answers == Answers::Objects);
    let text = match object {
        Some(mut object) => {
            object["pid"] = pid.into();
            format!("{object}\n")
        }
        None => format!("# {}\n{text}", processes::title(pid)),
    };
    io::stdout().write_all(text.as_bytes())
}

/// Ends children that were started, and waits until they have detached.
fn end(running: Vec<Child>) {
    let pid = |child: &Child| Pid::from_raw(child.id().try_into().ok()?);
    for pid in running.iter().filter_map(pid) {
        let _ = kill_process(pid, Signal::INT);
    }
    for mut child in running {
        let _ = child.wait();
    }
}

/// Passes on a child's messages, except those that another child has already written.
fn forward_messages(from: impl Read, said: &Mutex<HashSet<String>>) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        if said.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
            tell!("{line}");
        }
    }
}

/// Returns the words of the command line without those that name processes and the output file.
fn common_words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut kept, mut is_value) = (Vec::new(), false);
    for word in words {
        let text = word.to_string_lossy();
        let is = |(short, long): &(&str, &str)| {
            let joined = text.starts_with(short) && text.len() > 2 || text.starts_with(&format!("{long}="));
            (text == *short || text == *long, joined)
        };
        let (alone, joined) =
            OWN.iter().map(is).fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1));
        if !std::mem::replace(&mut is_value, alone) && !alone && !joined && text != "--children" {
            kept.push(word);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{ENDED, Status, common_words};

    #[test]
    fn processes_that_had_ended_count_only_if_all_had() {
        let code = |codes: &[u8]| {
            let mut status = Status::default();
            codes.iter().for_each(|code| status.add(*code));
            status.code()
        };
        assert_eq!(code(&[0, ENDED, 0]), 0);
        assert_eq!(code(&[ENDED, ENDED]), 1);
        assert_eq!((code(&[ENDED, 3, 0]), code(&[0, 1, 3])), (3, 1));
    }

    #[test]
    fn each_recorder_gets_the_rest() {
        let words = [
            "record",
            "-p",
            "1,2",
            "-F",
            "f",
            "--output=x",
            "-p3",
            "--pid",
            "4",
            "--duration",
            "1",
            "--children",
        ];
        let kept: Vec<_> = common_words(words.iter().map(Into::into)).into_iter().collect();
        assert_eq!(kept, ["record", "-F", "f", "--duration", "1"]);
    }
}
