//! Runs a test binary for cargo, and passes its output on. If no test ends for a long time the
//! binary is killed, so that a hanging test fails as others do. Its time is printed behind its
//! output.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// Time without output after which the binary is killed. The longest test takes two minutes on an
/// idle machine.
const SILENCE: Duration = Duration::from_secs(600);
/// Time for the rest of the output: a process that a test has left behind may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Test binaries whose tests also wait, for a program or an interval: how many of them run at once
/// for each two processors.
const WAITING: [(&str, usize); 3] =
    [("calltap-e2e answers", 4), ("calltap-e2e attach", 3), ("calltap-e2e programs", 3)];
/// The beginning of a line about a test binary's time.
pub const TOOK: &str = "took ";

/// Returns the configuration by which cargo runs test binaries through [`run`].
pub fn runner() -> Result<String> {
    let own = env::current_exe().context("where is this program?")?;
    Ok(through(&own.to_string_lossy()))
}

/// Returns the configuration by which cargo runs test binaries through a program. It is a list,
/// which is not split at blanks as the environment variable is; its strings are quoted as in JSON.
pub fn through(program: &str) -> String {
    format!("target.'cfg(all())'.runner={}", serde_json::json!([program, "watched"]))
}

/// Runs a test binary, and ends with its exit status.
pub fn run(words: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = words else { bail!("no program named") };
    let mut command = Command::new(program);
    let own = name(program);
    if let Some((_, threads)) = WAITING.iter().find(|(binary, _)| own.ends_with(binary))
        && env::var_os("RUST_TEST_THREADS").is_none()
    {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (processors * threads).div_ceil(2).to_string());
    }
    let start = Instant::now();
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let heard = Arc::new(Mutex::new(start));
    let (out, err) = (child.stdout.take().context("piped")?, child.stderr.take().context("piped")?);
    let readers = [pass(out, std::io::stdout(), &heard), pass(err, std::io::stderr(), &heard)];
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > SILENCE {
            println!("\n{program}: no test has ended for {} s; killed, with", SILENCE.as_secs());
            kill_tree(&mut child);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let end = Instant::now();
    while end.elapsed() < LAST_WORDS && !readers.iter().all(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(5));
    }
    println!("{TOOK}{:.1} s: {own}", start.elapsed().as_secs_f64());
    process::exit(status.code().unwrap_or(1));
}

/// Returns the crate, and the name of the test binary without cargo's hash.
fn name(program: &str) -> String {
    let file = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    env::var("CARGO_PKG_NAME").map_or_else(|_| name.to_owned(), |package| format!("{package} {name}"))
}

fn pass(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    heard: &Arc<Mutex<Instant>>,
) -> thread::JoinHandle<()> {
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let _ = to.write_all(&bytes[..count]).and_then(|()| to.flush());
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    })
}

/// Kills a process and all its descendants, and prints their commands.
fn kill_tree(child: &mut Child) {
    let mut all = vec![child.id()];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        println!("  {pid}: {}", command.replace('\0', " "));
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    for pid in all.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
