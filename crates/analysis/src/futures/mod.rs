//! Joins the polls of one future (Rust) into one span: from its first poll to when it was ready, or dropped.
//!
//! A future is its type and its address in a process, until it is over: then another may have the same address. Async bodies tell by themselves how far they are (their state, before and after each
//! poll); of others what the poll has returned is looked at, as far as that tells anything.

mod join;
mod rows;
#[cfg(test)]
mod tests;

pub use join::Joiner;
pub use rows::{Row, Rows};

use calltap_names::{dropped, poll};
use calltap_trace::{FutureValues, Site, ThreadId};

/// Not polled yet,
const NEW: u64 = 0;
/// ready,
const READY: u64 = 1;
/// or panicked; larger states are places where it waits.
const PANICKED: u64 = 2;

/// What a traced function does to futures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// How it tells which.
    pub values: FutureValues,
    /// What is the same for the same type: a type's function may have several copies.
    pub key: String,
    /// The type.
    pub name: String,
    /// Types that it drops.
    pub drops: Vec<String>,
}

impl Role {
    /// That of a traced function, if it has one.
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

/// What a task is called of which nothing else is known.
const TASK: &str = "[tokio task]";

/// A poll of a future, or what else is done to it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// In which process,
    pub process: u32,
    /// by whom,
    pub thread: ThreadId,
    /// by a function with this [role](Role) ([`Joiner::role`]).
    pub role: u32,
    /// When it began and ended, ticks.
    pub ticks: (u64, u64),
    /// Calls below it.
    pub depth: u32,
    /// It was left by a panic.
    pub unwound: bool,
    /// What was read when it began: the address, and the state.
    pub before: [Option<u64>; 2],
    /// And when it had ended: the state, or the result,
    pub after: Option<u64>,
    /// and the number by which that is known.
    pub told: Option<u64>,
}

/// How a future ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// It was polled until it was ready.
    Ready,
    /// It was dropped before that.
    Dropped,
    /// Its poll has panicked.
    Panicked,
    /// It had not ended when the recording did.
    Waiting,
    /// Another had its address later, or nothing tells.
    Unknown,
}

impl End {
    /// For people and programs.
    pub fn name(self) -> &'static str {
        match self {
            End::Ready => "ready",
            End::Dropped => "dropped",
            End::Panicked => "panicked",
            End::Waiting => "waiting",
            End::Unknown => "unknown",
        }
    }
}

/// The life of a future, as far as it was seen. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Span {
    /// Unique.
    pub id: u64,
    /// The type.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Where it lies.
    pub address: u64,
    /// The task that it is, by its address: it was spawned.
    pub task: Option<u64>,
    /// The future that polled it first.
    pub parent: Option<u64>,
    /// The beginning of its first poll that was seen,
    pub start: u64,
    /// and the end of the last one, or when it was dropped.
    pub end: u64,
    /// It had been polled before.
    pub began_earlier: bool,
    /// How it ended.
    pub how: End,
    /// Polls,
    pub polls: u64,
    /// the time that they took,
    pub busy: u64,
    /// and the longest.
    pub longest_poll: u64,
    /// Time between polls,
    pub idle: u64,
    /// and the longest.
    pub longest_idle: u64,
    /// The threads that polled it, in the order of their first polls.
    pub threads: Vec<ThreadId>,
    /// Beginnings and ends of its polls, if they are kept.
    pub all_polls: Vec<(u64, u64, ThreadId)>,
}
