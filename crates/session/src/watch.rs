//! `calltap top` and the answers: watching a process or a program, interval by interval, without a trace file.

use crate::attach_session::AttachSession;
use crate::controller::Controls;
use crate::error::Error;
use crate::options::{Options, Subject};
use crate::prepared::{Company, Prepared, Ran};
use crate::requests::Mailbox;
use crate::run::{RunOptions, SessionOutcome};
use calltap_collect::collector::{Due, Live};
use calltap_collect::output::Consumer;
use calltap_collect::subtree::SubtreeFilter;
use calltap_process::launch;
use calltap_trace::Record;
use nix::sys::resource::UsageWho;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How a process is watched.
pub struct Watch<'a> {
    /// Where its events go. First comes [`Record::Session`]; the first flush is when everything is switched on, then there is one at the end of every
    /// interval, and the last is when it is over: what happens while calltap detaches is not watched.
    pub consumer: &'a mut dyn Consumer,
    /// Length of an interval.
    pub interval: Duration,
    /// It tells times from the first event on: how long a tick is, it is told before.
    pub settled: bool,
    /// Is it time to leave? Asked every few milliseconds.
    pub over: &'a (dyn Fn() -> bool + Sync),
    /// Called again and again until then.
    pub meanwhile: &'a mut (dyn FnMut(&mut Controls<'_, '_>) + Send),
    /// Requests of the watcher.
    pub mailbox: Option<&'a Mailbox>,
    /// Asks for what has happened before the interval ends.
    pub due: Option<&'a Due>,
}

/// Watches the process of `options` for its duration, or until it ends, calltap is told to end (SIGINT, SIGTERM, SIGHUP), or it is over. A program is
/// started, and watched to its end, whatever is over.
pub fn watch(options: &Options, watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let Watch { consumer, interval, settled, over, meanwhile, mailbox, due } = watch;
    let mut filter = SubtreeFilter::new(consumer, options.subtree.as_ref());
    watch_all(options, Watch { consumer: &mut filter, interval, settled, over, meanwhile, mailbox, due })
}

fn watch_all(options: &Options, watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let (pid, duration, max_overhead) = match &options.subject {
        Subject::Program(command) => return watch_program(options, command, watch),
        Subject::Process { pid, duration, max_overhead } => (*pid, *duration, *max_overhead),
    };
    let mut attach_session = AttachSession::new(options, pid)?;
    watch.consumer.record(&Record::Session(attach_session.session.clone()))?;
    attach_session.run(RunOptions {
        consumer: watch.consumer,
        interval: Some(watch.interval),
        settled: watch.settled,
        max_overhead,
        arrived: &|| {},
        duration,
        over: watch.over,
        meanwhile: watch.meanwhile,
        mailbox: watch.mailbox,
        due: watch.due,
    })
}

fn watch_program(options: &Options, command: &[OsString], watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let prepared = Prepared::new(options, command)?;
    watch.consumer.record(&Record::Session(prepared.session.clone()))?;
    let on = AtomicBool::new(true);
    let Ran { status, totals, sites, notes, failed, code_is_in } = prepared.run(Company {
        consumer: watch.consumer,
        live: Some(Live { interval: watch.interval, on: &on, due: watch.due }),
        settled: watch.settled,
        accepted: &|| {},
        meanwhile: watch.meanwhile,
    })?;
    Ok(SessionOutcome {
        whole: true,
        status: Some(status),
        stops: Default::default(),
        disabled: Vec::new(),
        totals,
        sites,
        code_is_in,
        notes,
        failed,
        ended: true,
        cpu: Duration::from_nanos(launch::cpu_ns(UsageWho::RUSAGE_CHILDREN)),
    })
}
