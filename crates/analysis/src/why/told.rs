//! Waits and wakers in words, and alike ones together.

use super::chain::{Chain, Waited, Waker};
use super::lane::{Reason, Within};
use super::stacks::{Frame, Moment, Stacks};
use super::system_calls;
use crate::names::Names;
use crate::sources::source::Source;
use calltap_trace::{Address, SiteId, ThreadId};
use std::collections::BTreeMap;

/// In what a goroutine waits where the function is not traced that has parked it.
const UNKNOWN_PARK: &str = "a wait of the Go runtime for an unknown reason";
/// Frames of a path that are shown.
const FRAMES: usize = 6;

/// Waits of a thread that are alike: in the same system call, of the same calls, ended by the same.
pub(crate) struct Alike<'c> {
    pub(crate) ticks: u64,
    pub(crate) count: u64,
    pub(crate) longest: &'c Waited,
    pub(crate) cause: Cause,
}

/// Why a thread waited, in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cause {
    /// `futex(m, FUTEX_WAIT)`; None: not known.
    pub(crate) within: Option<String>,
    /// The calls of the thread, innermost first.
    pub(crate) path: Vec<String>,
    /// Who ended it.
    pub(crate) waker: ToldWaker,
    /// It is a goroutine's.
    pub(crate) is_park: bool,
}

/// Who ended a wait, in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ToldWaker {
    Unknown,
    Interrupt,
    /// The thread was stopped by calltap, or waited for it.
    Recorder,
    /// calltap stopped the thread, which ended a wait of its own.
    Stopped,
    /// The thread waited for a child. calltap stopped it, or traces the child and passed on that the child has ended.
    StoppedOrChild,
    /// A process, and its name.
    Other {
        pid: u32,
        comm: String,
    },
    /// A thread, and its calls, innermost first.
    Thread {
        thread: ThreadId,
        path: Vec<String>,
    },
}

/// The kernel tells a child's tracer first: the parent is woken when that has taken note.
fn is_wait_for_child(within: &Within) -> bool {
    const WAIT4: u32 = 61;
    const WAITID: u32 = 247;
    matches!(within, Within::SystemCall(WAIT4 | WAITID, _))
}

/// What is needed to tell.
pub(crate) struct Told<'t> {
    pub(crate) source: &'t dyn Source,
    pub(crate) names: &'t Names<'t>,
    pub(crate) stacks: &'t Stacks,
    addresses: BTreeMap<(u32, u64), &'t Address>,
}

impl<'t> Told<'t> {
    pub(crate) fn new(source: &'t dyn Source, names: &'t Names<'t>, stacks: &'t Stacks) -> Told<'t> {
        let addresses = &source.meta().addresses;
        let addresses =
            addresses.iter().map(|address| ((address.process, address.address), address)).collect();
        Told { source, names, stacks, addresses }
    }

    /// `worker-1`: the name that a thread has given itself, else that of the process, with its id.
    pub(crate) fn thread(&self, thread: ThreadId) -> String {
        self.names.task(thread)
    }

    pub(crate) fn process_of(&self, thread: ThreadId) -> u32 {
        self.source.meta().threads.get(thread.0 as usize).map_or(0, |thread| thread.process)
    }

    pub(crate) fn address(&self, process: u32, address: u64) -> Option<&'t Address> {
        self.addresses.get(&(process, address)).copied()
    }

    /// `cache.lock`, `0x7f..., heap`
    pub(crate) fn place(&self, process: u32, address: u64) -> String {
        match self.address(process, address) {
            Some(Address { recorder: true, .. }) => "calltap's memory".to_owned(),
            Some(Address { name: Some(name), .. }) => name.clone(),
            Some(Address { place, .. }) => format!("{address:#x} in {}", crate::names::base_name(place)),
            None => format!("{address:#x}"),
        }
    }

    pub(crate) fn within(&self, thread: ThreadId, within: &Within) -> Option<String> {
        let process = self.process_of(thread);
        match within {
            Within::Unknown => None,
            Within::NoSystemCall => Some("no system call (a page, or a stop)".to_owned()),
            Within::SystemCall(number, arguments) => {
                let place = |address| self.place(process, address);
                Some(system_calls::text(*number, arguments.as_ref(), &place))
            }
            Within::Park(reason) => Some(reason.map_or(UNKNOWN_PARK, Reason::text).to_owned()),
        }
    }

    fn frame(&self, (site, certain): &Frame) -> String {
        let name = self.names.function(*site);
        if *certain { name.to_owned() } else { format!("{name}?") }
    }

    /// The calls that were open, innermost first; without those outside of `from`, if that is among them.
    pub(crate) fn path(&self, moment: Moment, from: Option<SiteId>) -> Vec<String> {
        let stack = self.stacks.of(moment);
        let outermost =
            from.and_then(|from| stack.iter().position(|(site, _)| *site == from)).map_or(0, |at| at + 1);
        let inner = &stack[outermost.min(stack.len())..];
        let mut path: Vec<String> = inner.iter().rev().take(FRAMES).map(|frame| self.frame(frame)).collect();
        if inner.len() > FRAMES {
            path.push("...".to_owned());
        }
        path
    }

    /// The innermost call that was open.
    pub(crate) fn innermost(&self, moment: Moment) -> Option<String> {
        self.stacks.of(moment).last().map(|frame| self.frame(frame))
    }

    fn cause(&self, thread: ThreadId, waited: &Waited, from: Option<SiteId>) -> Cause {
        let waker = match &waited.waker {
            _ if waited.is_tracing || self.is_of_recorder(thread, &waited.within) => ToldWaker::Recorder,
            Waker::Unknown => ToldWaker::Unknown,
            Waker::Interrupt => ToldWaker::Interrupt,
            // A wait in a system call is the program's own; the stop comes when the call has returned.
            Waker::Recorder if is_wait_for_child(&waited.within) => ToldWaker::StoppedOrChild,
            Waker::Recorder if waited.within != Within::NoSystemCall => ToldWaker::Stopped,
            Waker::Recorder => ToldWaker::Recorder,
            Waker::Other { pid, comm, .. } => ToldWaker::Other { pid: *pid, comm: comm.clone() },
            Waker::Thread(thread, at) => ToldWaker::Thread { thread: *thread, path: self.path(*at, None) },
        };
        let is_park = matches!(waited.within, Within::Park(_));
        Cause {
            within: self.within(thread, &waited.within),
            path: self.path(waited.at, from),
            waker,
            is_park,
        }
    }

    /// The thread waits for calltap.
    fn is_of_recorder(&self, thread: ThreadId, within: &Within) -> bool {
        let Within::SystemCall(number, Some(arguments)) = within else { return false };
        let futex = system_calls::futex(*number, arguments);
        let address = futex.and_then(|futex| self.address(self.process_of(thread), futex.address));
        address.is_some_and(|address| address.recorder)
    }

    /// The waits of a chain, alike ones together, those that took longest first; paths begin within `from`.
    pub(crate) fn alike<'c>(&self, chain: &'c Chain, from: Option<SiteId>) -> Vec<Alike<'c>> {
        let mut alike = BTreeMap::<Cause, Alike<'c>>::new();
        for waited in &chain.waits {
            let cause = self.cause(chain.thread, waited, from);
            let new = || Alike { ticks: 0, count: 0, longest: waited, cause: cause.clone() };
            let one = alike.entry(cause.clone()).or_insert_with(new);
            one.ticks += waited.ticks;
            one.count += 1;
            // What its waker did is known of the longest ones only.
            if (waited.meanwhile.is_some(), waited.ticks)
                > (one.longest.meanwhile.is_some(), one.longest.ticks)
            {
                one.longest = waited;
            }
        }
        let mut alike: Vec<Alike<'c>> = alike.into_values().collect();
        alike.sort_by_key(|one| std::cmp::Reverse(one.ticks));
        alike
    }

    /// Whose time it was that a thread ran, most first.
    pub(crate) fn ran(&self, chain: &Chain) -> Vec<(String, u64)> {
        if chain.is_goroutine { Vec::new() } else { self.times(chain) }
    }

    /// Whose time it was that a goroutine did not wait, likewise.
    pub(crate) fn unseen(&self, chain: &Chain) -> Vec<(String, u64)> {
        if chain.is_goroutine { self.times(chain) } else { Vec::new() }
    }

    fn times(&self, chain: &Chain) -> Vec<(String, u64)> {
        let times = self.stacks.times(chain.run).iter();
        let name = |site: &Option<SiteId>| {
            site.map_or("outside of traced calls".to_owned(), |site| self.names.function(site).to_owned())
        };
        let mut ran: Vec<(String, u64)> = times.map(|(site, ticks)| (name(site), *ticks)).collect();
        ran.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ran
    }
}
