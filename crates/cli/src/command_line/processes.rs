//! The processes that `-p` names, by id or by name, with their children if asked.

use crate::command_line::arguments::Arguments;
use anyhow::{Result, bail};
use calltap_analysis::nearest_names;
use calltap_analysis::units::one_line;
use calltap_process::proc;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// Environment variable that marks a calltap as one of several, each with a process of its own:
/// where its process has ended, the others go on. The value is the process's [`title`].
pub const ONE_OF_MANY: &str = "CALLTAP_ONE_OF_MANY";

/// Number of processes that a message lists.
const LISTED: usize = 8;

/// Whether this calltap is one of several, each with a process of its own.
pub fn is_one_of_many() -> bool {
    std::env::var_os(ONE_OF_MANY).is_some()
}

/// Returns the beginning of a line about one process of several: `nginx-3111: `.
pub fn of_one(pid: u32) -> String {
    format!("{}: ", title(pid))
}

/// Returns the beginning of a line about this calltap's process, if this calltap is one of several;
/// else an empty text.
pub fn of_many() -> String {
    std::env::var(ONE_OF_MANY).map(|title| format!("{title}: ")).unwrap_or_default()
}

/// Adds the process to an error that does not name it, where there are several processes.
pub fn named_in(error: anyhow::Error, pid: u32, is_several: bool) -> anyhow::Error {
    match is_several && !format!("{error:#}").contains(&pid.to_string()) {
        true => error.context(format!("process {pid}")),
        false => error,
    }
}

/// Returns the process that `-p` names, if it names one; an error if it names several.
pub fn one(arguments: &Arguments) -> Result<Option<u32>> {
    match &all(arguments)?[..] {
        [] => Ok(None),
        [pid] => Ok(Some(*pid)),
        many => {
            let text = arguments.text("pid").unwrap_or_default();
            bail!("-p {text} names {} processes, and this command takes one: {}", many.len(), listed(many))
        }
    }
}

/// Tells, on a terminal, that a process has children, for commands with `--children` where that
/// flag is not given.
pub fn tell_of_children(pid: u32, arguments: &Arguments) {
    let is_asked = arguments.is_set("children") || arguments.is_set("quiet");
    if is_asked || is_one_of_many() || !io::stderr().is_terminal() {
        return;
    }
    let mut family = vec![pid];
    add_children(&mut family);
    match family.len() - 1 {
        0 => {}
        1 => tell!("calltap: {} has a child process: --children looks at that, too", title(pid)),
        n => tell!("calltap: {} has {n} child processes: --children looks at them, too", title(pid)),
    }
}

/// Returns the name and id of a process: `nginx-3111`.
pub fn title(pid: u32) -> String {
    format!("{}-{pid}", name(pid))
}

/// Returns all processes that `-p` names; none without `-p`. They are looked for once: children may
/// begin and end meanwhile.
pub fn all(arguments: &Arguments) -> Result<Vec<u32>> {
    static KNOWN: OnceLock<Vec<u32>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let found = find(arguments)?;
    Ok(KNOWN.get_or_init(|| found).clone())
}

/// The ids that the user typed.
static TYPED: OnceLock<BTreeSet<u32>> = OnceLock::new();

/// Whether a process was there when the command began: it exists, or calltap found it by its name
/// or as a child, and it has ended since.
pub fn was_there(pid: u32) -> bool {
    proc::exists(pid) || TYPED.get().is_some_and(|typed| !typed.contains(&pid))
}

fn find(arguments: &Arguments) -> Result<Vec<u32>> {
    let Some(text) = arguments.text("pid") else {
        if arguments.is_set("children") {
            bail!("--children needs a process: add '-p PID'");
        }
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    if text.split(',').any(|word| word.trim().is_empty()) {
        bail!("-p '{text}': a process is missing: ids or names, separated by commas");
    }
    let typed = text.split(',').filter_map(|word| word.trim().parse().ok());
    TYPED.get_or_init(|| typed.collect());
    for word in text.split(',').map(str::trim) {
        found.extend(named(word)?);
    }
    if arguments.is_set("children") {
        add_children(&mut found);
    }
    let mut seen = BTreeSet::new();
    found.retain(|pid| seen.insert(*pid));
    Ok(found)
}

/// Returns the processes with this id or name.
fn named(word: &str) -> Result<Vec<u32>> {
    if let Ok(pid) = word.parse::<u32>() {
        return Ok(vec![pid]);
    }
    if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        bail!("-p {word}: not a process id");
    }
    let own = std::process::id();
    let found: Vec<u32> = living().into_iter().filter(|pid| *pid != own && is_called(*pid, word)).collect();
    if found.is_empty() {
        let mut names: Vec<String> = living().into_iter().filter(|pid| *pid != own).map(name).collect();
        names.sort_unstable();
        names.dedup();
        if word.contains('/') {
            bail!("-p {word}: no process runs this file ('ps -e' lists the processes)");
        }
        let near = nearest_names(word, names.iter().map(String::as_str), 3);
        let near = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
        bail!("-p {word}: no process of this name runs{near} ('ps -e' lists them)");
    }
    Ok(found)
}

/// Whether a word is the id or the name of a running process, or could be an id.
pub fn is_one(word: &str) -> bool {
    word.parse::<u32>().is_ok() || living().into_iter().any(|pid| is_called(pid, word))
}

/// Returns the name of a process in `ps`.
fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    one_line(String::from_utf8_lossy(&name).trim_end()).into_owned()
}

fn living() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Whether a process has this name in `ps`, or its program's file does. A name with a slash is the
/// path of the file.
fn is_called(pid: u32, name: &str) -> bool {
    if name.contains('/') {
        let identity = |path: String| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        return identity(name.to_owned())
            .is_some_and(|file| identity(format!("/proc/{pid}/exe")) == Some(file));
    }
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let program = calltap_process::proc::program(pid).unwrap_or_default();
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    comm.trim_end() == name || file.trim_end_matches(" (deleted)") == name
}

/// Adds all descendants of the processes.
fn add_children(pids: &mut Vec<u32>) {
    let parents: Vec<(u32, u32)> = living().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut at = 0;
    while let Some(&pid) = pids.get(at) {
        let children = parents.iter().filter(|(child, parent)| *parent == pid && !pids.contains(child));
        let children: Vec<u32> = children.map(|(child, _)| *child).collect();
        pids.extend(children);
        at += 1;
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns a list such as `12, 13 and 4 more`.
fn listed(pids: &[u32]) -> String {
    let first: Vec<String> = pids.iter().take(LISTED).map(u32::to_string).collect();
    let more = pids.len().saturating_sub(LISTED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", first.join(", "))
}
