//! `calltap record`: records a program or a running process, from start or attach to the last byte
//! of the trace.

use crate::error::Error;
use crate::flight;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::progress::ProgressReporter;
use crate::ready::Ready;
use crate::run::RunOptions;
use calltap_collect::kept::keeping::Subtree;
use calltap_collect::output::Consumer;
use calltap_collect::slow::{Slow, SlowWriter};
use calltap_collect::subtree::SubtreeFilter;
use calltap_collect::trace_file::TraceFile;
use calltap_process::launch::{self};
use calltap_trace::{End, Session, TraceWriter};
use nix::sys::resource::UsageWho;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Length of an interval for which events are held back until it is known whether recording was on.
const INTERVAL: Duration = Duration::from_millis(100);

/// Records a program or a process.
pub fn record(options: &Options) -> Result<Outcome, Error> {
    if let Some(flight) = &options.kept.flight {
        return flight::record(options, flight);
    }
    let (slow, subtree) = (options.kept.slow.as_ref(), options.kept.subtree.as_ref());
    let ready = Ready::new(options)?;
    let file = TraceFile::create(&options.output)?;
    let mut keeper = Keeper::create(file.path(), ready.session().clone(), slow, subtree)?;
    let start = Instant::now();
    let mut progress = ProgressReporter::new(&options.subject, options.reports.recording);
    let mut session = ready.run(RunOptions {
        consumer: keeper.consumer(),
        interval: interval(subtree),
        settled: slow.is_some(),
        accepted: &|| file.keep(),
        over: &|| false,
        meanwhile: &mut |controls| progress.report(controls.calls()),
        mailbox: None,
        due: None,
    })?;
    // A program may end before its selection is checked.
    file.keep();
    session.notes.extend(file.note());
    let status = match (session.status, session.ended) {
        (Some(status), _) => launch::describe(status),
        (None, true) => "ended".to_owned(),
        (None, false) => End::DETACHED.to_owned(),
    };
    let cpu_ns = session.cpu.as_nanos() as u64;
    let (dropped, file_size, failed) =
        finish(keeper, status, start, cpu_ns, session.failed.take(), file.path());
    session.failed = failed;
    let file = file.elsewhere().unwrap_or_else(|| options.output.clone());
    Ok(Outcome { session, dropped, file, file_size, snapshots: None })
}

/// Returns the interval in which to read all threads if a trigger switches the recording: the call
/// may be made by any thread.
fn interval(subtree: Option<&Subtree>) -> Option<Duration> {
    let mut triggers = subtree.into_iter().flat_map(|subtree| &subtree.triggers);
    triggers.any(|trigger| trigger.action.switches()).then_some(INTERVAL)
}

/// The writer of slow calls, or of all calls except those that the user has left out.
enum Keeper {
    Slow(Box<SlowWriter>),
    Subtree(Box<SubtreeFilter<TraceWriter>>),
}

impl Keeper {
    fn create(
        path: &Path,
        session: Session,
        slow: Option<&Slow>,
        subtree: Option<&Subtree>,
    ) -> Result<Keeper, Error> {
        let mut writer = TraceWriter::create(path, session)?;
        Ok(match (slow, subtree) {
            (Some(slow), _) => Keeper::Slow(Box::new(SlowWriter::new(writer, slow)?)),
            (None, subtree) => {
                subtree.into_iter().try_for_each(|subtree| writer.record(&subtree.record(None)))?;
                Keeper::Subtree(Box::new(SubtreeFilter::new(writer, subtree)))
            }
        })
    }

    fn consumer(&mut self) -> &mut dyn Consumer {
        match self {
            Keeper::Slow(writer) => &mut **writer,
            Keeper::Subtree(writer) => &mut **writer,
        }
    }

    /// Tells the writer that no events follow.
    fn settle(&mut self) -> Result<(), calltap_trace::Error> {
        match self {
            Keeper::Subtree(writer) => writer.settle(),
            Keeper::Slow(_) => Ok(()),
        }
    }

    /// Finishes the trace. Returns the size of the file.
    fn finish(self, end: End) -> Result<u64, calltap_trace::Error> {
        match self {
            Keeper::Slow(writer) => writer.finish()?.finish(end),
            Keeper::Subtree(writer) => writer.finish().finish(end),
        }
    }
}

/// Finishes the trace. Returns the events that were left out on purpose, the size of the file, and
/// the error.
fn finish(
    mut keeper: Keeper,
    status: String,
    start: Instant,
    cpu_ns: u64,
    failed: Option<calltap_trace::Error>,
    output: &Path,
) -> (u64, u64, Option<calltap_trace::Error>) {
    let failed = failed.or(keeper.settle().err());
    let dropped = match &keeper {
        Keeper::Slow(writer) => writer.dropped,
        Keeper::Subtree(writer) => writer.dropped,
    };
    let end = End {
        status,
        wall_ns: start.elapsed().as_nanos() as u64,
        cpu_ns,
        recorder_cpu_ns: launch::cpu_ns(UsageWho::RUSAGE_SELF),
    };
    let size = || fs::metadata(output).map_or(0, |meta| meta.len());
    match (failed, keeper.finish(end)) {
        (Some(error), _) | (None, Err(error)) => (dropped, size(), Some(error)),
        (None, Ok(size)) => (dropped, size, None),
    }
}
