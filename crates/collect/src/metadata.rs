//! Metadata that the planner adds to the trace: records, and sites that become records when they are written.

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
    /// A record as it is written.
    Record(Record),
    /// Functions that have got stubs.
    Sites(NewSites),
    /// A process that joins the session.
    Followed(Followed),
    /// Functions were switched off.
    SwitchedOff(Arc<SwitchedOff>),
    /// Files that a process has mapped, for unwinding its stacks.
    Mapped(Mapped),
    /// Other calls are kept from now on.
    Kept(Box<Change>),
    /// The sender waits until everything before this is known to the collector; the channel closes then.
    Awaited(Sender<()>),
}

/// Functions that are switched off: their calls that are open meanwhile may return without a record of it. Times are in ticks of the events' clock.
#[derive(Debug)]
pub struct SwitchedOff {
    /// By their stubs.
    pub sites: HashSet<SiteId>,
    /// Those of them whose calls that are open then return without a record: their exits are rewritten.
    pub unseen: HashSet<SiteId>,
    /// None of them was off before; not set until that begins.
    pub began: OnceLock<u64>,
    /// From then on all of them are; not set while they are being switched off.
    pub ended: OnceLock<u64>,
}

impl SwitchedOff {
    /// May some of them have been off before that?
    pub fn has_begun_before(&self, ticks: u64) -> bool {
        self.began.get().is_some_and(|began| *began < ticks)
    }

    /// Were they all off before that?
    pub fn ended_before(&self, ticks: u64) -> Option<u64> {
        self.ended.get().copied().filter(|ended| *ended < ticks)
    }
}

/// A process that joins the session. Its name is sent along, as it may have ended when the recorder reads `/proc`.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its id.
    pub pid: u32,
    /// That of its parent.
    pub parent: u32,
    /// Its name.
    pub comm: String,
}

/// Functions of a module that have stubs now. The program waits while they get them, but not while their names are copied: the writer does
/// that, beside this crate.
#[derive(Debug)]
pub struct NewSites {
    /// The module's number in the trace.
    pub module: u32,
    /// Its functions.
    pub binary: Arc<Binary>,
    /// Which of them.
    pub sites: Vec<NewSite>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct NewSite {
    /// Index of the function.
    pub function: u32,
    /// Number of the stub.
    pub stub: u32,
    /// The tracers that want it, a bit each.
    pub tracers: u32,
    /// What kind of room the compiler left.
    pub kind: SiteKind,
    /// What is read of its calls.
    pub captured: Option<Arc<Captured>>,
}

/// Sites that are described at a time: their names are in the cache when they are written, and their memory is used again.
const AT_A_TIME: usize = 1024;

impl From<Record> for Metadata {
    fn from(record: Record) -> Metadata {
        Metadata::Record(record)
    }
}

impl Metadata {
    /// Hands it over as records.
    pub fn tell(self, take: &mut dyn FnMut(&Record)) {
        match self {
            Metadata::Record(record) => take(&record),
            Metadata::Followed(_)
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

    /// What it notes, for people.
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
