//! `calltap top`: a running process, watched interval by interval.

mod feed;
mod grid;
mod plain;
pub mod screen;
pub mod switches;
pub mod view;

use crate::command_line::arguments::Arguments;
use crate::command_line::keep;
use crate::command_line::select;
use crate::command_line::values;
use crate::record;
use crate::terminal::output;
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::live::{Column, Interval};
use calltap_selection::ParsedSelection;
use calltap_session::{Options, SessionOutcome, Subject, Watch, watch};
use feed::Feed;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;
use switches::Switches;

/// Shorter intervals say nothing.
const SHORTEST: Duration = Duration::from_millis(10);

/// How it is shown.
struct Show {
    interval: Duration,
    sort: Column,
    /// Rows.
    limit: Option<usize>,
    /// Intervals.
    count: Option<u64>,
    /// Names on a screen are shortened.
    short: bool,
}

impl Show {
    fn new(arguments: &Arguments) -> Result<Show> {
        let interval = interval(arguments)?;
        let count = arguments.number("count")?;
        if count == Some(0) {
            bail!("--count: at least 1");
        }
        let sort = arguments.text("sort").unwrap_or_default().parse().map_err(anyhow::Error::msg)?;
        Ok(Show {
            interval,
            sort,
            limit: arguments.number("limit")?,
            count,
            short: output::is_short(arguments),
        })
    }
}

/// Attaches, shows the table until the user ends it, and leaves the process as it was.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pid: u32 = crate::command_line::processes::one(arguments)?.context("which process: '-p PID'")?;
    let show = Show::new(arguments)?;
    let options = options(pid, arguments)?;
    let switches = Switches::new(pid);
    let (sender, intervals) = mpsc::channel();
    let (outcome, shown) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut feed = Feed::new(sender, &switches);
            watch(
                &options,
                Watch {
                    consumer: &mut feed,
                    interval: show.interval,
                    settled: false,
                    over: &|| switches.is_over(),
                    meanwhile: &mut |controls| switches.serve(controls),
                    mailbox: None,
                    due: None,
                },
            )
        });
        let shown = look(&intervals, &switches, &show);
        (watching.join(), shown)
    });
    let outcome = outcome.map_err(|_| anyhow!("watching process {pid} failed"))??;
    say(&outcome);
    plain::finish(shown?, &outcome, &switches, &show)?;
    if outcome.whole { Ok(()) } else { bail!("something was left behind in process {pid}") }
}

/// From one look to the next.
pub fn interval(arguments: &Arguments) -> Result<Duration> {
    let interval = values::time(&arguments.text("interval").unwrap_or_default())?;
    if interval < SHORTEST {
        bail!("--interval: at least {}ms", SHORTEST.as_millis());
    }
    Ok(interval)
}

/// How a process is watched.
pub fn options(pid: u32, arguments: &Arguments) -> Result<Options> {
    let (mut words, subtree) = (select::words(arguments)?, keep::subtree(arguments)?);
    let about = keep::functions(None, subtree.as_ref(), None);
    // With Python functions, the names may be theirs: of C only what -F names is traced.
    let about = if words.python.is_empty() { about } else { Vec::new() };
    calltap_selection::add(&mut words, &about);
    let selection = ParsedSelection::about(&words, arguments.is_set("later"), &about)?;
    let max_overhead = values::share(&arguments.text("max-overhead").unwrap_or_default())?;
    let subject = Subject::Process { pid, duration: None, max_overhead };
    Ok(Options {
        buffer_size: values::buffer_size(arguments)?,
        patch_mode: values::patch_mode(arguments, false)?,
        subtree,
        started: crate::terminal::started::tell,
        ..Options::new(subject, selection)
    })
}

/// Shows what comes, until it is over. An interval that was cut short.
fn look(
    intervals: &Receiver<Option<Interval>>,
    switches: &Switches,
    show: &Show,
) -> Result<Option<Interval>> {
    // Whatever happens here, also a panic: the process is let go.
    let _leave = switches.end_on_drop();
    // Where attaching fails, it is never reported to have begun.
    match intervals.recv() {
        Ok(_) if screen::is_there() => screen::look(intervals, switches, show).map(|()| None),
        Ok(_) => plain::look(intervals, switches, show),
        Err(_) => Ok(None),
    }
}

/// What the user should know at the end.
pub fn say(outcome: &SessionOutcome) {
    let [attaching, detaching] = &outcome.stops;
    let mut lines = outcome.notes.clone();
    lines.push(record::stopped(attaching, detaching));
    if !outcome.disabled.is_empty() {
        lines.push(record::disabled(&outcome.disabled, ""));
    }
    for line in lines {
        // The terminal may have been closed.
        let _ = writeln!(io::stderr(), "calltap: {line}");
    }
}
