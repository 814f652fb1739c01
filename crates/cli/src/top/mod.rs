//! `calltap top`: a running process, watched interval by interval.

mod feed;
mod grid;
mod intervals;
mod plain;
pub mod screen;
pub mod several;
pub mod switches;
mod together;
pub mod view;

use crate::command_line::arguments::Arguments;
use crate::command_line::keep;
use crate::command_line::processes;
use crate::command_line::select;
use crate::command_line::values;
use crate::terminal::{output, started};
use anyhow::{Result, bail};
use calltap_analysis::live::{Column, Interval};
use calltap_selection::ParsedSelection;
use calltap_session::{Options, SessionOutcome, Subject, Watch, watch as watch_process};
use feed::Feed;
use intervals::{Came, Intervals};
use several::Watching;
use std::sync::mpsc;
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

/// Attaches, shows the table until the user ends it, and leaves the processes as they were.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pids = processes::all(arguments)?;
    let show = Show::new(arguments)?;
    let all = Watching::new(&pids, arguments)?;
    if all.is_empty() {
        bail!("which process: '-p PID'");
    }
    let switches: Vec<Switches> = pids.iter().map(|pid| Switches::new(*pid)).collect();
    let (sender, receiver) = mpsc::channel();
    let mut intervals = Intervals::new(receiver, pids.len());
    let (outcomes, shown) = thread::scope(|scope| {
        let watching = all.iter().zip(&switches).enumerate().map(|(at, (one, switches))| {
            let sender = sender.clone();
            scope.spawn(move || {
                let outcome = look_at(&one.options, (at, &sender), switches, show.interval);
                // The table may be gone.
                let _ = sender.send((at, Came::Ended));
                outcome
            })
        });
        let watching: Vec<_> = watching.collect();
        drop(sender);
        let shown = look(&mut intervals, &switches, &show);
        (watching.into_iter().map(|thread| thread.join()).collect::<Vec<_>>(), shown)
    });
    let (outcomes, result) = several::tell(&all, outcomes);
    for ((outcome, short), switches) in outcomes.iter().zip(shown?).zip(&switches) {
        if let Some(outcome) = outcome {
            plain::finish(short, outcome, switches, &show)?;
        }
    }
    result
}

/// Watches a process until the table has been seen.
fn look_at(
    options: &Options,
    intervals: (usize, &mpsc::Sender<(usize, Came)>),
    switches: &Switches,
    interval: Duration,
) -> Result<SessionOutcome> {
    let mut feed = Feed::new(intervals, switches);
    let watch = Watch {
        consumer: &mut feed,
        interval,
        settled: false,
        over: &|| switches.is_over(),
        meanwhile: &mut |controls| switches.serve(controls),
        mailbox: None,
        due: None,
    };
    Ok(watch_process(options, watch)?)
}

/// From one look to the next.
pub fn interval(arguments: &Arguments) -> Result<Duration> {
    let interval = values::time(&arguments.text("interval").unwrap_or_default())?;
    if interval < SHORTEST {
        bail!("--interval: at least {}ms", SHORTEST.as_millis());
    }
    Ok(interval)
}

/// How a process is watched, by itself or beside others.
fn options(pid: u32, is_several: bool, arguments: &Arguments) -> Result<Options> {
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
        started: if is_several { started::tell_of_one } else { started::tell },
        ..Options::new(subject, selection)
    })
}

/// Shows what comes, until it is over. Intervals that were cut short, of some processes.
fn look(intervals: &mut Intervals, switches: &[Switches], show: &Show) -> Result<Vec<Option<Interval>>> {
    // Whatever happens here, also a panic: the processes are let go.
    let _leave: Vec<_> = switches.iter().map(Switches::end_on_drop).collect();
    let nothing = vec![None; switches.len()];
    // Where attaching fails, it is never reported to have begun.
    match intervals.begin() {
        true if screen::is_there() => screen::look(intervals, switches, show).map(|()| nothing),
        true => plain::look(intervals, switches, show),
        false => Ok(nothing),
    }
}

/// Rows of functions: name, calls, and how long each took.
#[cfg(test)]
fn rows_of(functions: &[(&str, u64, u64)]) -> Vec<calltap_analysis::live::Row> {
    let row = |((function, calls, avg_ns), site): (&(&str, u64, u64), u32)| calltap_analysis::live::Row {
        function: (*function).to_owned(),
        module: "app".into(),
        sites: vec![calltap_trace::SiteId(site)],
        calls: *calls,
        ended: *calls,
        avg_ns: *avg_ns,
        max_ns: *avg_ns,
        total_ns: calls * avg_ns,
        is_partial: false,
    };
    functions.iter().zip(1..).map(row).collect()
}
