//! Metadata that the planner adds to the trace: records, and sites that become records when they
//! are written.

use crate::callers::Mapped;
use crate::kept::keeping::Change;
use calltap_sites::{Binary, Function, SiteKind};
use calltap_trace::{Captured, Record, Site, SiteId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;

/// Metadata of events that come later.
#[derive(Debug)]
pub enum Metadata {
    /// A record.
    Record(Record),
    /// Functions that have got stubs.
    Sites(NewSites),
    /// A process has executed another program.
    Executed {
        /// Id of the process.
        pid: u32,
        /// Time of that, nanoseconds of CLOCK_MONOTONIC.
        at: u64,
    },
    /// A process that joins the session.
    Followed(Followed),
    /// Functions that were disabled.
    SwitchedOff(Arc<SwitchedOff>),
    /// Mappings of a process, for unwinding its stacks.
    Mapped(Mapped),
    /// A change of the calls that are kept from now on.
    Kept(Box<Change>),
    /// A request of the sender, which waits until the collector has taken all earlier metadata; the
    /// channel closes then.
    Awaited(Sender<()>),
}

/// Functions that are disabled: their calls that are open meanwhile may return without a record.
/// Times are in ticks of the events' clock.
#[derive(Debug)]
pub struct SwitchedOff {
    /// Functions, by their stubs.
    pub sites: HashSet<SiteId>,
    /// Functions of these whose exits are rewritten: calls that are open then return without a
    /// record.
    pub unrecorded_returns: HashSet<SiteId>,
    /// Time before which none of them was disabled; unset until that begins.
    pub began: OnceLock<u64>,
    /// Time from which all of them are disabled; unset while they are being disabled.
    pub ended: OnceLock<u64>,
}

impl SwitchedOff {
    /// Whether some of the functions may have been disabled before `ticks`.
    pub(crate) fn has_begun_before(&self, ticks: u64) -> bool {
        self.began.get().is_some_and(|began| *began < ticks)
    }

    /// Returns when all functions were disabled, if that was before `ticks`.
    pub(crate) fn ended_before(&self, ticks: u64) -> Option<u64> {
        self.ended.get().copied().filter(|ended| *ended < ticks)
    }
}

/// A process that joins the session. Its name is included, as it may have ended when the recorder
/// reads `/proc`.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Id of the process.
    pub pid: u32,
    /// Id of its parent.
    pub parent: u32,
    /// Name of the process.
    pub comm: String,
}

/// Functions of a module that have got stubs. The program waits while they get them, but not while
/// their names are copied: the writer does that, beside this crate.
#[derive(Debug)]
pub struct NewSites {
    /// The module's number in the trace.
    pub module: u32,
    /// The module's functions.
    pub binary: Arc<Binary>,
    /// The functions that have got stubs.
    pub sites: Vec<NewSite>,
}

/// A function that has got a stub.
#[derive(Clone, Debug)]
pub struct NewSite {
    /// Index of the function.
    pub function: u32,
    /// Number of the stub.
    pub stub: u32,
    /// The tracers that want the function, a bit each.
    pub tracers: u32,
    /// The kind of room that the compiler left.
    pub kind: SiteKind,
    /// The values that are read of its calls.
    pub captured: Option<Arc<Captured>>,
}

/// Number of sites that are described at a time: their names are in the cache when they are
/// written, and their memory is reused.
const AT_A_TIME: usize = 1024;

impl From<Record> for Metadata {
    fn from(record: Record) -> Metadata {
        Metadata::Record(record)
    }
}

impl Metadata {
    /// Hands the metadata to `take` as records.
    pub fn tell(self, take: &mut dyn FnMut(&Record)) {
        match self {
            Metadata::Record(record) => take(&record),
            Metadata::Executed { .. }
            | Metadata::Followed(_)
            | Metadata::SwitchedOff(_)
            | Metadata::Mapped(_)
            | Metadata::Kept(_)
            | Metadata::Awaited(_) => {}
            Metadata::Sites(NewSites { module, binary, sites }) => {
                for sites in sites.chunks(AT_A_TIME) {
                    let record =
                        |new: &NewSite| site_record(module, &binary.functions[new.function as usize], new);
                    take(&Record::Sites { sites: sites.iter().map(record).collect() });
                }
            }
        }
    }

    /// Returns the text of a note.
    pub fn note(&self) -> Option<&str> {
        if let Metadata::Record(Record::Note { text }) = self { Some(text) } else { None }
    }
}

fn site_record(module: u32, function: &Function, new: &NewSite) -> Site {
    Site {
        id: SiteId(new.stub),
        module,
        address: function.address.0,
        size: function.size,
        name: function.name.clone(),
        aliases: function.aliases.clone(),
        kind: new.kind.name().to_owned(),
        tracers: new.tracers,
        captured: new.captured.clone(),
    }
}
