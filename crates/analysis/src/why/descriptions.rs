//! Descriptions of waits and wakers, and grouping of alike waits.

use super::chain::{Chain, Waited, Waker};
use super::lane::{GoWaitReason, Within};
use super::runs::SCHEDULE;
use super::stacks::{Frame, Moment, Run, Stacks};
use super::system_calls;
use crate::names::{Names, UNKNOWN};
use crate::sources::source::Source;
use calltap_trace::{Address, SYSTEM_CALLS, SiteId, ThreadId};
use std::collections::BTreeMap;

/// Description of a goroutine's wait if the function that parked it is not traced.
const UNKNOWN_PARK: &str = "a wait of the Go runtime for an unknown reason";
/// Number of innermost frames that a long path has, and of outermost ones.
const INNERMOST: usize = 6;
const OUTERMOST: usize = 2;

/// Alike waits of a thread: in the same system call, in the same calls, ended by the same waker.
pub(crate) struct WaitGroup<'c> {
    pub(crate) ticks: u64,
    pub(crate) count: u64,
    pub(crate) longest: &'c Waited,
    pub(crate) cause: Cause,
}

/// The cause of a wait, in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cause {
    /// The system call, `futex(m, FUTEX_WAIT)`; `None`: unknown.
    pub(crate) within: Option<String>,
    /// The calls of the thread, innermost first.
    pub(crate) path: Vec<String>,
    /// The waker that ended the wait.
    pub(crate) waker: WakerDescription,
}

/// A waker, in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WakerDescription {
    Unknown,
    Interrupt,
    /// calltap stopped the thread, or the thread waited for calltap.
    Recorder,
    /// calltap stopped the thread, which ended a wait of the program.
    Stopped,
    /// The thread waited for a child. calltap stopped it, or traces the child and passed on the
    /// child's end.
    StoppedOrChild,
    /// A process by id and name.
    Other {
        pid: u32,
        comm: String,
    },
    /// A thread of the program, by id and name, of which no function is traced.
    Untraced {
        tid: u32,
        comm: String,
    },
    /// The Go runtime with its calls, innermost first; empty if they are unknown.
    GoRuntime {
        path: Vec<String>,
    },
    /// The wakers of goroutines were not recorded.
    NotRecorded,
    /// A thread with its calls, innermost first.
    Thread {
        thread: ThreadId,
        path: Vec<String>,
    },
}

/// Whether a wait is for a child process. The kernel reports the end of a child to its tracer
/// first; the parent is woken after the tracer has seen it.
fn is_wait_for_child(within: &Within) -> bool {
    const WAIT4: u32 = 61;
    const WAITID: u32 = 247;
    matches!(within, Within::SystemCall(WAIT4 | WAITID, _))
}

/// The data that descriptions are made from.
pub(crate) struct Descriptions<'t> {
    pub(crate) source: &'t dyn Source,
    pub(crate) names: &'t Names<'t>,
    pub(crate) stacks: &'t Stacks,
    addresses: BTreeMap<(u32, u64), &'t Address>,
}

impl<'t> Descriptions<'t> {
    pub(crate) fn new(source: &'t dyn Source, names: &'t Names<'t>, stacks: &'t Stacks) -> Descriptions<'t> {
        let addresses = &source.meta().addresses;
        let addresses =
            addresses.iter().map(|address| ((address.process, address.address), address)).collect();
        Descriptions { source, names, stacks, addresses }
    }

    /// Returns a thread's name and id: `worker-1`.
    pub(crate) fn thread(&self, thread: ThreadId) -> String {
        self.names.task(thread)
    }

    pub(crate) fn process_of(&self, thread: ThreadId) -> u32 {
        self.source.meta().threads.get(thread.0 as usize).map_or(0, |thread| thread.process)
    }

    pub(crate) fn address(&self, process: u32, address: u64) -> Option<&'t Address> {
        self.addresses.get(&(process, address)).copied()
    }

    /// Describes the address of a futex: `cache.lock`, `0x7f... in heap`.
    pub(crate) fn place(&self, process: u32, address: u64) -> String {
        match self.address(process, address) {
            _ if address == calltap_trace::SEVERAL_FUTEXES => "several futexes (futex_waitv)".to_owned(),
            Some(Address { recorder: true, .. }) => "calltap's memory".to_owned(),
            Some(Address { name: Some(name), .. }) => name.clone(),
            Some(Address { place, .. }) => format!("{address:#x} in {}", calltap_names::file_name(place)),
            None => format!("{address:#x}"),
        }
    }

    pub(crate) fn within(&self, thread: ThreadId, within: &Within) -> Option<String> {
        let process = self.process_of(thread);
        match within {
            Within::Unknown => None,
            Within::NoSystemCall => {
                Some("no system call (a page, a stop, or a call that seccomp decides)".to_owned())
            }
            Within::SystemCall(number, arguments) => {
                let place = |address| self.place(process, address);
                Some(system_calls::text(*number, arguments.as_ref(), &place))
            }
            Within::Park(reason) => Some(reason.map_or(UNKNOWN_PARK, GoWaitReason::text).to_owned()),
        }
    }

    fn frame(&self, (site, certain): &Frame) -> String {
        let name = self.names.function(*site);
        if *certain { name.to_owned() } else { format!("{name}?") }
    }

    /// Returns the open calls, innermost first, up to but not including `from` if that is among
    /// them. The middle of a long path is left out: the outermost calls tell what a goroutine is
    /// for.
    pub(crate) fn path(&self, moment: Moment, from: Option<SiteId>) -> Vec<String> {
        let stack = self.program_calls(moment);
        let outermost =
            from.and_then(|from| stack.iter().position(|(site, _)| *site == from)).map_or(0, |at| at + 1);
        let inner = &stack[outermost.min(stack.len())..];
        let mut path: Vec<String> = inner.iter().rev().map(|frame| self.frame(frame)).collect();
        if stack.is_empty() && self.stacks.is_incomplete(moment) {
            path.push(UNKNOWN.to_owned());
        }
        if path.len() > INNERMOST + OUTERMOST + 1 {
            path.splice(INNERMOST..path.len() - OUTERMOST, ["...".to_owned()]);
        }
        path
    }

    /// Returns the open calls, outermost first, without the system call that the innermost of them
    /// has made.
    fn program_calls(&self, moment: Moment) -> &[Frame] {
        let stack = self.stacks.of(moment);
        let meta = self.source.meta();
        let module = |site: SiteId| {
            let site = meta.sites.get(site.0 as usize)?;
            Some(&*meta.modules.get(site.module as usize)?.path)
        };
        match stack.split_last() {
            Some(((site, _), outer)) if module(*site) == Some(SYSTEM_CALLS) => outer,
            _ => stack,
        }
    }

    fn cause(&self, thread: ThreadId, waited: &Waited, from: Option<SiteId>) -> Cause {
        let waker = match &waited.waker {
            _ if waited.is_tracing || self.is_of_recorder(thread, &waited.within) => {
                WakerDescription::Recorder
            }
            Waker::Unknown => WakerDescription::Unknown,
            Waker::Interrupt => WakerDescription::Interrupt,
            // A wait in a system call is the program's own; the stop comes when the call has
            // returned.
            Waker::Recorder if is_wait_for_child(&waited.within) => WakerDescription::StoppedOrChild,
            Waker::Recorder if waited.within != Within::NoSystemCall => WakerDescription::Stopped,
            Waker::Recorder => WakerDescription::Recorder,
            Waker::Other { pid, comm } => WakerDescription::Other { pid: *pid, comm: comm.clone() },
            Waker::Untraced { tid, comm } => WakerDescription::Untraced { tid: *tid, comm: comm.clone() },
            Waker::Thread(thread, at) => {
                WakerDescription::Thread { thread: *thread, path: self.path(*at, None) }
            }
            Waker::GoRuntime(at) => {
                let mut path = at.map_or_else(Vec::new, |at| self.path(at, None));
                // Callers of the scheduler have never returned: they belong to former goroutines.
                let scheduler = path.iter().position(|function| function == SCHEDULE);
                path.truncate(scheduler.unwrap_or(path.len()));
                WakerDescription::GoRuntime { path }
            }
            Waker::NotRecorded => WakerDescription::NotRecorded,
        };
        Cause { within: self.within(thread, &waited.within), path: self.path(waited.at, from), waker }
    }

    /// Whether the thread waits for calltap.
    fn is_of_recorder(&self, thread: ThreadId, within: &Within) -> bool {
        let Within::SystemCall(number, Some(arguments)) = within else { return false };
        let futex = calltap_trace::futex(*number, arguments);
        let address = futex.and_then(|futex| self.address(self.process_of(thread), futex.address));
        address.is_some_and(|address| address.recorder)
    }

    /// Groups the waits of a chain, those that took longest first; paths begin within `from`.
    pub(crate) fn alike<'c>(&self, chain: &'c Chain, from: Option<SiteId>) -> Vec<WaitGroup<'c>> {
        let mut alike = BTreeMap::<Cause, WaitGroup<'c>>::new();
        for waited in &chain.waits {
            let cause = self.cause(chain.thread, waited, from);
            let new = || WaitGroup { ticks: 0, count: 0, longest: waited, cause: cause.clone() };
            let one = alike.entry(cause.clone()).or_insert_with(new);
            one.ticks += waited.ticks;
            one.count += 1;
            // Only the longest waits have a chain of the waker.
            if (waited.meanwhile.is_some(), waited.ticks)
                > (one.longest.meanwhile.is_some(), one.longest.ticks)
            {
                one.longest = waited;
            }
        }
        let mut alike: Vec<WaitGroup<'c>> = alike.into_values().collect();
        alike.sort_by_key(|one| std::cmp::Reverse(one.ticks));
        alike
    }

    /// Returns the functions in which a thread ran with their times, longest first.
    pub(crate) fn ran(&self, chain: &Chain) -> Vec<(String, u64)> {
        self.times(chain.run)
    }

    /// Returns the functions in which it is unknown whether a goroutine ran with their times,
    /// longest first.
    pub(crate) fn unseen(&self, chain: &Chain) -> Vec<(String, u64)> {
        self.times(chain.unseen)
    }

    fn times(&self, run: Run) -> Vec<(String, u64)> {
        let times = self.stacks.times(run).iter();
        let name = |site: &Option<SiteId>| {
            site.map_or("outside of traced calls".to_owned(), |site| self.names.function(site).to_owned())
        };
        let mut ran: Vec<(String, u64)> = times.map(|(site, ticks)| (name(site), *ticks)).collect();
        ran.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ran
    }
}
