//! `calltap record` of several processes: one recorder for each, which writes a trace of its own.
//!
//! Processes of a list may end before their recorder has attached: the others are recorded all the same.

use crate::ending;
use anyhow::{Context, Result};
use calltap_session::{Error, ProcessError, Reason, process_exists};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// Between two looks at the recorders.
const LOOK: Duration = Duration::from_millis(50);
/// Flags of the command line that each recorder gets a value of its own for.
const OWN: [(&str, &str); 2] = [("-p", "--pid"), ("-o", "--output")];

/// The exit status of a recorder whose process had ended before it was attached to. No other status of `calltap record -p` is this one.
const ENDED: u8 = 4;
/// A recorder that is told this in its environment may find that its process has ended: it ends with [`ENDED`].
const ONE_OF_MANY: &str = "CALLTAP_ONE_OF_MANY";

/// Says why nothing was recorded, as [`ending::refused`]; also of a process that was listed with others, and has ended since.
pub fn refused(error: &Error) -> ExitCode {
    if std::env::var_os(ONE_OF_MANY).is_none() || !has_ended(error) {
        return ending::refused(error);
    }
    eprintln!("calltap: {error}: it had ended before; the others are recorded");
    ExitCode::from(ENDED)
}

/// Is this said of a process because it has ended?
pub fn is_of_ended(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(has_ended)
}

fn has_ended(error: &Error) -> bool {
    let Error::Process(ProcessError::Attach { reason, .. }) = error else { return false };
    matches!(reason, Reason::NoProcess | Reason::Zombie | Reason::Ending | Reason::Ended)
}

/// What becomes of the exit status of all, as recorders end.
#[derive(Default)]
struct Status {
    /// The first that is neither 0 nor [`ENDED`].
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

    /// Where all had ended before, nothing was recorded.
    fn code(&self) -> u8 {
        self.failed.unwrap_or(u8::from(self.recorded == 0))
    }
}

/// Records each process into FILE.PID. The exit status is the first that is not 0; a process that had ended before counts only if all had.
pub fn record(pids: &[u32], output: &Path) -> Result<ExitCode> {
    let interrupted = calltap_session::interruption()?;
    let program = std::env::current_exe().context("calltap's own program")?;
    let words = common(std::env::args_os().skip(1));
    let start = |pid: &u32| {
        let mut file = output.as_os_str().to_owned();
        file.push(format!(".{pid}"));
        let mut command = Command::new(&program);
        command.args(&words).arg("-p").arg(pid.to_string()).arg("-o").arg(file).stdin(Stdio::null());
        // One that never was is an error.
        if process_exists(*pid) {
            command.env(ONE_OF_MANY, "1");
        }
        command.spawn().with_context(|| format!("a recorder for {pid}"))
    };
    let mut recorders = pids.iter().map(start).collect::<Result<Vec<Child>>>()?;
    let (mut status, mut is_told) = (Status::default(), false);
    while !recorders.is_empty() {
        if interrupted.load(Acquire) && !std::mem::replace(&mut is_told, true) {
            for recorder in &recorders {
                Pid::from_raw(recorder.id() as i32).map(|pid| kill_process(pid, Signal::INT));
            }
        }
        recorders.retain_mut(|recorder| match recorder.try_wait() {
            Ok(None) => true,
            Ok(Some(ended)) => {
                status.add(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
                false
            }
            Err(_) => false,
        });
        std::thread::sleep(LOOK);
    }
    Ok(ExitCode::from(status.code()))
}

/// The words of the command line but for those that say which process and which file.
fn common(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
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
    use super::{ENDED, Status, common};

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
        let kept: Vec<_> = common(words.iter().map(Into::into)).into_iter().collect();
        assert_eq!(kept, ["record", "-F", "f", "--duration", "1"]);
    }
}
