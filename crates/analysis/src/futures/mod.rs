//! Joins the polls of one Rust future into one span: from its first poll until it was ready or
//! dropped. A Python coroutine is a future, and each of its runs is a poll.
//!
//! A future is identified by its type and its address in a process until it ends; then another may
//! get the same address. Async bodies expose their state before and after each poll; for other
//! futures the result of the poll is decoded, as far as it reveals the outcome.

mod join;
mod sums;
#[cfg(test)]
mod tests;

pub(crate) use join::Joiner;
pub(crate) use sums::{FutureSums, SumsByType};

use calltap_names::{dropped, poll};
use calltap_trace::{FutureValues, Site, SiteId, ThreadId};

/// State of an async body that was not polled yet.
const NEW: u64 = 0;
/// State of an async body that is ready, and of a coroutine that has returned.
const READY: u64 = 1;
/// State of an async body that panicked, and of a coroutine that an exception has left; larger
/// states are await points.
const PANICKED: u64 = 2;
/// Flag of a coroutine that has run before.
const RESUMED: u64 = 1;
/// Flag of a coroutine that no other one resumes.
const OUTERMOST: u64 = 2;

/// The role that a traced function plays for futures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// How the function's captured values identify the future.
    pub values: FutureValues,
    /// A key that all copies of a type's function share.
    pub key: String,
    /// Name of the type.
    pub name: String,
    /// Names of the types that it drops.
    pub drops: Vec<String>,
}

impl Role {
    /// Returns the role of a traced function, if it has one.
    pub fn of(site: &Site) -> Option<Role> {
        let future = site.captured.as_ref()?.future.as_ref()?;
        let values = future.values;
        let readable = |name: &str| calltap_names::demangle(name);
        let drops = match values {
            FutureValues::Dropped => {
                site.names().filter_map(|name| dropped(&readable(name)).map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        };
        let known = |name: &str| poll(&readable(name))?.1;
        let by_name = || [site.name.as_str()].into_iter().chain(site.names()).find_map(known);
        let name = by_name().or_else(|| future.name.clone());
        let key = site.name.split(".llvm.").next().unwrap_or_default().to_owned();
        Some(Role { values, key, name: name.unwrap_or_else(|| TASK.to_owned()), drops })
    }
}

/// The name of a task whose type is unknown.
const TASK: &str = "[tokio task]";

/// Whether a type stands for a thread of tokio's pool, which is polled once, for as long as the
/// worker or the blocking code in it runs.
pub(crate) fn is_pool_thread(name: &str) -> bool {
    name.starts_with("tokio::runtime::blocking::task::BlockingTask")
}

/// A poll or a drop of a future, or a waking of its task.
#[derive(Clone, Debug)]
pub(crate) struct FutureEvent {
    /// The process.
    pub process: u32,
    /// The polling thread.
    pub thread: ThreadId,
    /// The number of the function's [role](Role), see [`Joiner::role`].
    pub role: u32,
    /// Beginning and end, ticks.
    pub ticks: (u64, u64),
    /// Number of calls around it.
    pub depth: u32,
    /// Whether a panic left it.
    pub unwound: bool,
    /// Values captured at its beginning: the address, and the state.
    pub before: [Option<u64>; 2],
    /// Value captured at its end: the state, or the result.
    pub after: Option<u64>,
    /// Second value captured at its end: the number of [`FutureValues::Told`].
    pub told: Option<u64>,
    /// The traced function that called it, if any did.
    pub caller: Option<SiteId>,
}

/// How a future ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// The last poll returned `Ready`.
    Ready,
    /// The future was dropped before it was ready.
    Dropped,
    /// The last poll panicked.
    Panicked,
    /// An exception left the coroutine.
    Raised,
    /// The future had not ended when the recording did.
    Waiting,
    /// Unknown: another future had its address later, or no value reveals it.
    Unknown,
}

impl End {
    /// Returns the name, used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            End::Ready => "ready",
            End::Dropped => "dropped",
            End::Panicked => "panicked",
            End::Raised => "raised",
            End::Waiting => "waiting",
            End::Unknown => "unknown",
        }
    }
}

/// The life of a future as far as it was recorded. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Span {
    /// Unique number.
    pub id: u64,
    /// Name of the type.
    pub name: String,
    /// The process.
    pub process: u32,
    /// Address of the future.
    pub address: u64,
    /// Address of the task, if it was spawned as one.
    pub task: Option<u64>,
    /// The span of the future that polled it first.
    pub parent: Option<u64>,
    /// Beginning of the first recorded poll.
    pub start: u64,
    /// End of the last poll, or the time of the drop.
    pub end: u64,
    /// Whether it was polled before the recording began.
    pub began_earlier: bool,
    /// How it ended.
    pub how: End,
    /// Number of polls.
    pub polls: u64,
    /// Time in polls.
    pub busy: u64,
    /// Longest poll.
    pub longest_poll: u64,
    /// Time between polls.
    pub idle: u64,
    /// Longest time between polls.
    pub longest_idle: u64,
    /// The threads that polled it, in the order of their first polls.
    pub threads: Vec<ThreadId>,
    /// Part of the time between polls in which the task had been woken and no worker polled it.
    pub runnable: u64,
    /// Part of the time between polls after which the waker of the task is unknown.
    pub unknown: u64,
    /// The waking that ended the longest time between polls, if known.
    pub waking: Option<Waking>,
    /// Beginning, end and thread of each poll, if polls are kept.
    pub all_polls: Vec<(u64, u64, ThreadId)>,
    /// The times between polls, if polls are kept.
    pub waits: Vec<Wait>,
}

/// A time between two polls of a future, ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// End of the poll before.
    pub from: u64,
    /// Beginning of the next poll.
    pub to: u64,
    /// The first waking of the task since its poll before began, if known.
    pub waking: Option<Waking>,
}

/// A waking of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waking {
    /// Time, ticks.
    pub at: u64,
    /// The waking thread.
    pub thread: ThreadId,
    /// The innermost future that the thread polled then: numbers of its span and its type.
    pub future: Option<(u64, u32)>,
    /// The traced function that called the waker, if any did.
    pub caller: Option<SiteId>,
}
