//! Page faults, signals and moves: in which functions they happened, and in words.

use crate::error::Error;
use crate::sources::source::Source;
use crate::why::stacks::Stacks;
use calltap_trace::{IncidentKind, SiteId, ThreadId};
use std::collections::HashMap;
use std::ops::AddAssign;

/// How often it happened in a function itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Incidents {
    /// Pages were not there, or not yet the thread's own; major faults are among them.
    pub faults: u64,
    /// Pages had to be read from a disk.
    pub major_faults: u64,
    /// Threads went on on another processor.
    pub migrations: u64,
    /// Signals reached threads; None: not recorded.
    pub signals: Option<u64>,
}

impl AddAssign for Incidents {
    fn add_assign(&mut self, other: Incidents) {
        self.faults += other.faults;
        self.major_faults += other.major_faults;
        self.migrations += other.migrations;
        self.signals = self.signals.zip(other.signals).map(|(a, b)| a + b);
    }
}

impl Incidents {
    /// None so far.
    pub(crate) fn none(has_signals: bool) -> Incidents {
        Incidents { signals: has_signals.then_some(0), ..Incidents::default() }
    }

    fn count(&mut self, what: &IncidentKind) {
        match what {
            IncidentKind::PageFault { major, .. } => {
                self.faults += 1;
                self.major_faults += u64::from(*major);
            }
            IncidentKind::Migration { .. } => self.migrations += 1,
            IncidentKind::Signal { .. } => self.signals = self.signals.map(|count| count + 1),
        }
    }
}

/// By thread and innermost function; what happened outside of traced calls is left out.
pub(crate) type ByFunction = HashMap<(ThreadId, SiteId), Incidents>;

/// Whether they were recorded, and signals too; None where they were not, or where some were lost.
pub(crate) fn recorded(source: &dyn Source) -> Option<bool> {
    let events = source.meta().kernel_events.as_ref()?;
    (events.incidents && events.lost == 0).then_some(events.signals)
}

/// Counts them.
pub(crate) fn by_function(source: &dyn Source, has_signals: bool) -> Result<ByFunction, Error> {
    let (mut stacks, mut asked) = (Stacks::default(), Vec::new());
    for thread in 0..source.meta().threads.len() as u32 {
        let thread = ThreadId(thread);
        let all = source.incidents(thread)?.entries;
        asked.extend(all.iter().map(|incident| (thread, incident.what, stacks.moment(thread, incident.at))));
    }
    stacks.answer(source)?;
    let mut counts = ByFunction::new();
    for (thread, what, moment) in asked {
        if let Some((site, _)) = stacks.of(moment).last() {
            counts.entry((thread, *site)).or_insert(Incidents::none(has_signals)).count(&what);
        }
    }
    Ok(counts)
}

/// `page fault at 0x7f5a3c001000`, `signal 10 (SIGUSR1)`, `moved from processor 0 to 1`
pub fn text(what: &IncidentKind) -> String {
    match what {
        IncidentKind::PageFault { address, .. } => format!("{} at {address:#x}", what.name()),
        IncidentKind::Signal { number } => match signal_name(*number) {
            Some(name) => format!("signal {number} ({name})"),
            None => format!("signal {number}"),
        },
        IncidentKind::Migration { from, to } => format!("moved from processor {from} to {to}"),
    }
}

/// What is to be said of it besides its name, for other programs.
pub fn fields(what: &IncidentKind) -> Vec<(&'static str, String)> {
    match what {
        IncidentKind::PageFault { address, .. } => vec![("address", format!("{address:#x}"))],
        IncidentKind::Signal { number } => vec![("signal", number.to_string())],
        IncidentKind::Migration { from, to } => vec![("from", from.to_string()), ("to", to.to_string())],
    }
}

/// Names of Linux on x86-64, by number from 1 on; above are the real-time ones.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

fn signal_name(number: u32) -> Option<&'static str> {
    SIGNALS.get((number as usize).checked_sub(1)?).copied()
}
