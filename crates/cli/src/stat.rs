//! `calltap stat`: the sums of the profile tracer, of a process or of a trace.

use crate::command_line::arguments::Arguments;
use crate::command_line::processes;
use crate::command_line::view_flags;
use crate::input;
use crate::session_commands::{self, unexpected};
use crate::terminal::output::{self, Output};
use anyhow::{Result, bail};
use calltap_analysis::{Word, stat};
use calltap_selection::Profiled;
use calltap_session::{Answer, Request, ask};
use calltap_trace::TracerKind;

/// Shows the sums.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (rows, facts) = match processes::one(arguments)? {
        Some(pid) => (of_process(pid)?, stat::Facts::default()),
        None => of_trace(arguments)?,
    };
    let sort = arguments.text("sort").unwrap_or_default();
    let options = stat::Options {
        sort: sort.parse().map_err(anyhow::Error::msg)?,
        filter: arguments.names("function").iter().map(|word| Word::listed(word)).collect(),
        limit: arguments.number("limit")?,
        linker_names: arguments.is_set("linker-names"),
        short_names: output::is_short(arguments),
    };
    let mut out = Output::create(arguments)?;
    stat::write(rows, &facts, &options, view_flags::table_format(arguments), &mut out)?;
    out.finish()
}

fn of_process(pid: u32) -> Result<Vec<stat::FunctionSums>> {
    let profiled = profiled(pid)?;
    if profiled.is_empty() && ask(pid, &Request::Status)?.is_none() {
        let attached = session_commands::find(pid)?;
        must_profile(attached.settings.session.tracers.iter().map(|tracer| tracer.kind), "it")?;
    }
    let row =
        |Profiled { function, module, link, profile }| stat::FunctionSums { function, module, link, profile };
    Ok(profiled.into_iter().map(row).collect())
}

/// Returns the sums of a process up to now.
pub fn profiled(pid: u32) -> Result<Vec<Profiled>> {
    match ask(pid, &Request::Profile)? {
        Some(Answer::Profile(profiled)) => Ok(profiled),
        Some(answer) => Err(unexpected(pid, answer)),
        None => Ok(session_commands::find(pid)?.profile()?),
    }
}

fn of_trace(arguments: &Arguments) -> Result<(Vec<stat::FunctionSums>, stat::Facts)> {
    let path = arguments.shown().unwrap_or_default();
    let reader = input::open(&path)?;
    let meta = reader.meta();
    let tracers = meta.session.iter().flat_map(|session| &session.tracers);
    must_profile(tracers.map(|tracer| tracer.kind), &path.display().to_string())?;
    Ok((stat::rows(meta), stat::Facts::of(&reader)))
}

/// Returns an error if no tracer is the profile tracer.
fn must_profile(mut tracers: impl Iterator<Item = TracerKind>, what: &str) -> Result<()> {
    if tracers.any(|kind| kind == TracerKind::Profile) {
        return Ok(());
    }
    bail!(
        "{what} has no profile tracer: '--tracer profile' of record, attach and set (or see 'calltap report')"
    )
}
