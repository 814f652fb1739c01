//! `calltap get` and `put`: read and write the control files of an attached process without
//! mounting its directory.
//!
//! The selection comes from the process's controller, which also carries out a changed one. Without
//! a controller, this calltap opens the session itself.

use crate::command_line::arguments::Arguments;
use crate::session_commands::{self, say, unexpected};
use crate::stat;
use crate::terminal::output::Output;
use anyhow::{Context, Result, bail};
use calltap_analysis::units;
use calltap_selection::{Listed, Selection};
use calltap_session::{Answer, Attached, Request, ask};
use calltap_tracefs::control::{File, Model, Open, Refusal, files};
use std::io::Write;

/// Runs one of the commands.
pub fn run(name: &str, arguments: &Arguments) -> Result<()> {
    match name {
        "get" => get(arguments),
        _ => put(arguments),
    }
}

/// The session that serves a request: another controller's, or this calltap's own.
enum Session {
    Theirs,
    Ours(Box<Attached>),
}

fn find(pid: u32) -> Result<(Session, Selection, Vec<Listed>)> {
    match ask(pid, &Request::Selection)? {
        Some(Answer::Selection(words, functions)) => Ok((Session::Theirs, words, functions)),
        Some(answer) => Err(unexpected(pid, answer)),
        None => {
            let attached = session_commands::find(pid)?;
            let (words, functions) = (attached.settings.words.clone(), attached.list()?);
            Ok((Session::Ours(Box::new(attached)), words, functions))
        }
    }
}

fn which(arguments: &Arguments) -> Result<(u32, Vec<String>)> {
    let pid = crate::command_line::processes::one(arguments)?.context("no process named: add '-p PID'")?;
    Ok((pid, arguments.texts("operand")))
}

fn get(arguments: &Arguments) -> Result<()> {
    let mut out = Output::create(arguments)?;
    let names = arguments.texts("operand");
    if names.is_empty() {
        for file in files() {
            writeln!(out, "{:<28} {}", file.name, file.about)?;
        }
        return out.finish();
    }
    let (pid, names) = which(arguments)?;
    let files: Vec<File> = names.iter().map(|name| named(name)).collect::<Result<_>>()?;
    let (_, words, functions) = find(pid)?;
    let profile =
        if files.iter().any(|file| file.reads_profile()) { stat::profiled(pid)? } else { Vec::new() };
    let model = Model { words, functions: &functions, profile: &profile };
    for file in files {
        out.write_all(model.read(file).as_bytes())?;
    }
    out.finish()
}

fn put(arguments: &Arguments) -> Result<()> {
    let (pid, words) = which(arguments)?;
    let Some((name, values)) = words.split_first() else {
        bail!("no control file named: 'calltap get' lists them")
    };
    let file = named(name)?;
    let open = if arguments.is_set("append") { Open::Append } else { Open::Truncate };
    let (session, words, functions) = find(pid)?;
    let mut model = Model { words, functions: &functions, profile: &[] };
    let effect =
        model.write(file, &(values.join(" ") + "\n"), open).map_err(|refusal| refused(name, &refusal))?;
    match session {
        Session::Theirs => match ask(pid, &Request::Select(model.words))? {
            Some(Answer::Set { notes, .. }) => say(&notes),
            Some(answer) => return Err(unexpected(pid, answer)),
            None => bail!("process {pid}: the calltap that controlled it has ended: repeat the command"),
        },
        Session::Ours(mut attached) => {
            if effect.resets_profile {
                attached.reset_profile();
            }
            let on = attached.settings.on;
            let (_, notes) = attached.select(&model.words, (on, true))?;
            say(&notes);
        }
    }
    Ok(())
}

fn named(name: &str) -> Result<File> {
    File::named(name).map_err(|refusal| refused(name, &refusal))
}

fn refused(name: &str, refusal: &Refusal) -> anyhow::Error {
    anyhow::anyhow!("{name}: {}", units::one_line(&refusal.why))
}
