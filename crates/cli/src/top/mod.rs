//! `calltap top`: shows a running process interval by interval.
//!
//! For each process a thread watches it, sums up its events into intervals, and carries out the
//! requested switches. The main thread receives the intervals, and shows them as a table on a
//! screen or as plain text.

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
use calltap_analysis::intervals::{Column, Interval};
use calltap_selection::ParsedSelection;
use calltap_session::{
    KeptCalls, Options, PlanOptions, Reports, RingOptions, SessionOutcome, Subject, Watch,
    watch as watch_process,
};
use feed::Feed;
use intervals::{Intervals, Message};
use several::Watching;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use switches::Switches;

/// Shortest interval that is accepted.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// How the table is displayed.
struct Show {
    interval: Duration,
    sort: Column,
    /// Number of rows at most.
    limit: Option<usize>,
    /// Number of intervals.
    count: Option<u64>,
    /// Whether names are shortened on a screen.
    short: bool,
    /// Whether intervals are JSON objects.
    json: bool,
}

impl Show {
    fn new(arguments: &Arguments) -> Result<Show> {
        let interval = interval(arguments)?;
        let count = arguments.number("count")?;
        if count == Some(0) {
            bail!("--count must be at least 1");
        }
        let sort = arguments.text("sort").unwrap_or_default().parse().map_err(anyhow::Error::msg)?;
        Ok(Show {
            interval,
            sort,
            limit: arguments.number("limit")?,
            count,
            short: output::is_short(arguments),
            json: arguments.is_set("json"),
        })
    }
}

/// Attaches, shows the table until the user ends it, and detaches.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pids = processes::all(arguments)?;
    let show = Show::new(arguments)?;
    let all = Watching::new(&pids, arguments)?;
    if all.is_empty() {
        bail!("no process named: add '-p PID'");
    }
    let switches: Vec<Switches> = pids.iter().map(|pid| Switches::new(*pid)).collect();
    let (sender, receiver) = mpsc::channel();
    let mut intervals = Intervals::new(receiver, pids.len());
    let (outcomes, shown) = thread::scope(|scope| {
        let watching = all.iter().zip(&switches).enumerate().map(|(at, (one, switches))| {
            let sender = sender.clone();
            scope.spawn(move || {
                let outcome = look_at(&one.options, (at, &sender), switches, show.interval);
                // The table's thread may have ended.
                let _ = sender.send((at, Message::Ended));
                outcome
            })
        });
        let watching: Vec<_> = watching.collect();
        drop(sender);
        let shown = show_intervals(&mut intervals, &switches, &show);
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

/// Watches a process until the display ends.
fn look_at(
    options: &Options,
    intervals: (usize, &mpsc::Sender<(usize, Message)>),
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

/// Returns the length of an interval.
pub fn interval(arguments: &Arguments) -> Result<Duration> {
    let interval = values::time_of(arguments, "interval")?.unwrap_or_default();
    if interval < MIN_INTERVAL {
        bail!("--interval must be at least {}ms", MIN_INTERVAL.as_millis());
    }
    Ok(interval)
}

/// Returns how a process is watched, by itself or beside others.
fn options(pid: u32, is_several: bool, arguments: &Arguments) -> Result<Options> {
    let (mut words, subtree) = (select::words(arguments)?, keep::subtree(arguments)?);
    let about = keep::functions(None, subtree.as_ref(), None);
    // With Python functions the names may be theirs: of C only the functions that -F names are
    // traced.
    let about = if words.python.is_empty() { about } else { Vec::new() };
    calltap_selection::add(&mut words, &about);
    let selection = ParsedSelection::about(&words, arguments.is_set("later"), &about)?;
    let max_overhead = values::share_of(arguments, "max-overhead")?;
    let subject = Subject::Process { pid, duration: None, max_overhead };
    let rings = RingOptions { buffer_size: values::buffer_size(arguments)?, ..RingOptions::default() };
    let plan = PlanOptions::new(selection, values::patch_mode(arguments, false)?);
    Ok(Options {
        rings,
        kept: KeptCalls { subtree, ..KeptCalls::default() },
        reports: Reports {
            started: if is_several { started::tell_of_one } else { started::tell },
            ..Reports::default()
        },
        ..Options::new(subject, plan)
    })
}

/// Displays the intervals until the end. Returns, by process, the last interval if it was cut
/// short.
fn show_intervals(
    intervals: &mut Intervals,
    switches: &[Switches],
    show: &Show,
) -> Result<Vec<Option<Interval>>> {
    // The processes are detached from whatever happens here, even a panic.
    let _leave: Vec<_> = switches.iter().map(Switches::end_on_drop).collect();
    let nothing = vec![None; switches.len()];
    // If attaching fails, no process is reported to have begun.
    match intervals.begin() {
        true if !show.json && screen::is_there() => screen::run(intervals, switches, show).map(|()| nothing),
        true => plain::print_intervals(intervals, switches, show),
        false => Ok(nothing),
    }
}

/// Returns rows of functions: name, number of calls, and time of each call.
#[cfg(test)]
fn rows_of(functions: &[(&str, u64, u64)]) -> Vec<calltap_analysis::intervals::FunctionCalls> {
    let row = |((function, calls, avg_ns), site): (&(&str, u64, u64), u32)| {
        calltap_analysis::intervals::FunctionCalls {
            function: (*function).to_owned(),
            module: "app".into(),
            sites: vec![calltap_trace::SiteId(site)],
            calls: *calls,
            ended: *calls,
            avg_ns: *avg_ns,
            max_ns: *avg_ns,
            total_ns: calls * avg_ns,
            is_partial: false,
        }
    };
    functions.iter().zip(1..).map(row).collect()
}
