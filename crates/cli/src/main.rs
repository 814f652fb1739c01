//! `calltap`: parses the command line, runs the module of the command, and prints its error, if
//! any.
#![forbid(unsafe_code)]
// `eprintln` panics where standard error is closed, and would leave a process traced; `tell` does
// not.
#![deny(clippy::print_stderr)]

#[macro_use]
mod terminal;

mod answers;
mod command_line;
mod control;
mod diff;
mod ended_session;
mod ending;
mod import;
mod input;
mod many;
mod merge;
mod mount;
mod observed;
mod record;
mod repeat;
mod scratch;
mod session_commands;
mod stat;
mod tools;
mod top;
mod tui;
mod view;
mod views;
mod why;
mod width;

use anyhow::{Context, Result};
use calltap_analysis::units::one_line;
use clap::error::ErrorKind;
use command_line::arguments::Arguments;
use std::process::ExitCode;
use terminal::output::Output;

fn main() -> ExitCode {
    let matches = match command_line::grammar::grammar()
        .try_get_matches_from(command_line::words(std::env::args_os()))
    {
        Ok(matches) => matches,
        // Help and version are answers, not errors.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Standard error may be closed.
            let _ = error.print();
            return ExitCode::FAILURE;
        }
        Err(mut error) => {
            command_line::mistakes::suggest_visible(&mut error);
            tell!(
                "calltap: {}",
                command_line::mistakes::mistake(
                    &error.to_string(),
                    &std::env::args_os().skip(1).collect::<Vec<_>>()
                )
            );
            return ExitCode::FAILURE;
        }
    };
    let Some((mut name, mut matches)) = matches.subcommand() else { return ExitCode::FAILURE };
    if let Some((member, of_member)) = matches.subcommand() {
        (name, matches) = (member, of_member);
    }
    match run(name, &Arguments::new(matches.clone())) {
        Ok(code) => code,
        // The reader of the output has closed it.
        Err(error) if ending::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<mount::AlreadyReported>() => ExitCode::FAILURE,
        Err(error) => {
            tell!("calltap: {}", one_line(&ending::line(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, arguments: &Arguments) -> Result<ExitCode> {
    arguments.refuse_empty_names(name)?;
    arguments.refuse_flags_alone(name)?;
    arguments.refuse_output_over_input(name)?;
    if let Some(path) = arguments.path("patch-log") {
        calltap_process::memory::patch_log::keep_patch_log(&path)
            .with_context(|| path.display().to_string())?;
    }
    calltap_process::launch::raise_oom_score();
    calltap_sched::remove_left();
    match name {
        "record" => return record::run(arguments),
        "attach" | "set" | "status" | "detach" | "snapshot" => session_commands::run(name, arguments)?,
        "top" => top::run(arguments)?,
        "count" | "histogram" | "latency" | "span" | "slower" | "stacks" | "watch" | "futures" => {
            return many::answer(name, arguments)?.map_or_else(|| answers::run(name, arguments), Ok);
        }
        "why" | "locks" => {
            return many::answer(name, arguments)?.map_or_else(|| why::run(name, arguments), Ok);
        }
        "view" => view::run(arguments)?,
        "tui" => tui::run(arguments)?,
        "mount" => mount::run(arguments)?,
        "run" => return mount::run_program(arguments),
        "exec" => return mount::exec(arguments),
        "get" | "put" => control::run(name, arguments)?,
        "stat" => stat::run(arguments)?,
        "diff" => return diff::run(arguments),
        "import" => import::run(arguments)?,
        "merge" => merge::run(arguments)?,
        "sites" => tools::sites::run(arguments)?,
        "recordmcount" => return Ok(tools::recordmcount::run(arguments)),
        "cc" => return tools::cc::run(arguments),
        "audit" => tools::audit::run(arguments)?,
        "debuginfo" => tools::debuginfo::run(arguments)?,
        "man" => {
            let mut out = Output::create(arguments)?;
            command_line::grammar::manual(&mut out)?;
            out.finish()?;
        }
        "completions" => {
            let mut out = Output::create(arguments)?;
            command_line::grammar::completions(&arguments.text("shell").unwrap_or_default(), &mut out)?;
            out.finish()?;
        }
        "install-completions" => tools::install::run(arguments)?,
        view => views::run(view, arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
