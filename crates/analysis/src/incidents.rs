//! Page faults, signals and migrations: the functions in which they happened, and their text form.

use crate::error::Error;
use crate::sources::source::Source;
use crate::why::stacks::Stacks;
use calltap_trace::{IncidentKind, SiteId, ThreadId};
use std::collections::HashMap;
use std::ops::AddAssign;

/// Numbers of incidents in a function itself, without the calls that it made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Incidents {
    /// Page faults, major ones included.
    pub faults: u64,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Moves of threads to another processor.
    pub migrations: u64,
    /// Signals delivered to threads; `None`: not recorded.
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
    /// Makes counts of zero.
    pub(crate) fn none(has_signals: bool) -> Incidents {
        Incidents { signals: has_signals.then_some(0), ..Incidents::default() }
    }

    pub(crate) fn count(&mut self, what: &IncidentKind) {
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

/// Incidents by thread and innermost function. Those outside of traced calls are left out.
pub(crate) type ByFunction = HashMap<(ThreadId, SiteId), Incidents>;

/// Whether signals were recorded with the incidents; `None` if incidents were not recorded or some
/// were lost.
pub(crate) fn recorded(source: &dyn Source) -> Option<bool> {
    let events = source.meta().kernel_events.as_ref()?;
    (events.incidents && events.lost == 0).then_some(events.signals)
}

/// Counts the incidents of all threads by innermost function.
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

/// Formats an incident: `page fault at 0x7f5a3c001000`, `signal 10 (SIGUSR1)`,
/// `moved from processor 0 to 1`.
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

/// Returns the attributes of an incident besides its name.
pub fn fields(what: &IncidentKind) -> Vec<(&'static str, String)> {
    match what {
        IncidentKind::PageFault { address, .. } => vec![("address", format!("{address:#x}"))],
        IncidentKind::Signal { number } => vec![("signal", number.to_string())],
        IncidentKind::Migration { from, to } => vec![("from", from.to_string()), ("to", to.to_string())],
    }
}

/// Signal names of Linux on x86-64, from number 1 on; higher numbers are real-time signals.
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
