//! `calltap record` of several processes: one recorder for each, which writes a trace of its own.

use anyhow::{Context, Result};
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

/// Records each process into FILE.PID. The exit status is the first that is not 0.
pub fn record(pids: &[u32], output: &Path) -> Result<ExitCode> {
    let interrupted = calltap_session::interruption()?;
    let program = std::env::current_exe().context("calltap's own program")?;
    let words = common(std::env::args_os().skip(1));
    let start = |pid: &u32| {
        let mut file = output.as_os_str().to_owned();
        file.push(format!(".{pid}"));
        let mut command = Command::new(&program);
        command.args(&words).arg("-p").arg(pid.to_string()).arg("-o").arg(file).stdin(Stdio::null());
        command.spawn().with_context(|| format!("a recorder for {pid}"))
    };
    let mut recorders = pids.iter().map(start).collect::<Result<Vec<Child>>>()?;
    let (mut status, mut is_told) = (0, false);
    while !recorders.is_empty() {
        if interrupted.load(Acquire) && !std::mem::replace(&mut is_told, true) {
            for recorder in &recorders {
                Pid::from_raw(recorder.id() as i32).map(|pid| kill_process(pid, Signal::INT));
            }
        }
        recorders.retain_mut(|recorder| match recorder.try_wait() {
            Ok(None) => true,
            Ok(Some(ended)) => {
                status = if status == 0 { ended.code().unwrap_or(1) } else { status };
                false
            }
            Err(_) => false,
        });
        std::thread::sleep(LOOK);
    }
    Ok(ExitCode::from(status as u8))
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
    use super::common;

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
