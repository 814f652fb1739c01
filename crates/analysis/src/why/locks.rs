//! Addresses at which threads waited for each other (futexes): the waiters, how long they waited,
//! and their wakers.

use super::chain::{Chains, Waker};
use super::descriptions::Descriptions;
use super::lane::Within;
use super::stacks::Moment;
use crate::error::Error;
use crate::head::disabled;
use crate::head::left_out;
use crate::names::Names;
use crate::sources::source::{Source, threads_with_events};
use crate::units::duration;
use calltap_trace::ThreadId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Number of paths of waiters and of wakers that the text shows.
const SHOWN: usize = 3;

/// A wait, with its open questions.
struct Wait {
    ticks: u64,
    thread: ThreadId,
    at: Moment,
    waker: Waker,
}

/// A lock with its text forms.
struct Lock {
    place: String,
    process: u32,
    address: u64,
    recorder: bool,
    waits: u64,
    total: u64,
    longest: u64,
    /// Ticks by path, longest first.
    waiters: Vec<(Path, u64)>,
    wakers: Vec<(Path, u64)>,
}

/// The calls in which a thread waited, or woke another, innermost first; or one text that says who
/// did so.
type Path = Vec<String>;

/// Returns the answer to `locks`, as text or JSON.
pub fn locks(
    source: &dyn Source,
    linker_names: bool,
    limit: Option<usize>,
    as_json: bool,
) -> Result<String, Error> {
    let names = Names::new(source.meta(), linker_names);
    let mut chains = Chains::new(source);
    let mut waits = BTreeMap::<(u32, u64), Vec<Wait>>::new();
    for thread in threads_with_events(source) {
        let process = source.meta().threads.get(thread.0 as usize).map_or(0, |thread| thread.process);
        for (wait, end) in chains.lane(thread)?.waits() {
            let Within::SystemCall(number, Some(arguments)) = &wait.within else { continue };
            let Some(futex) = calltap_trace::futex(*number, arguments).filter(|futex| futex.waits) else {
                continue;
            };
            let at = chains.stacks.moment(thread, wait.since);
            let waker = chains.waker(thread, wait.waking.as_ref())?;
            let ticks = end.saturating_sub(wait.since);
            waits.entry((process, futex.address)).or_default().push(Wait { ticks, thread, at, waker });
        }
    }
    let waits = by_object(source, waits);
    chains.stacks.answer(source)?;
    let unknown = super::text::unknown(source.meta(), source.has_switches(), chains.know_wakers()?);
    let descriptions = Descriptions::new(source, &names, &chains.stacks);
    let is_known = source.has_switches()
        && source.meta().kernel_events.as_ref().is_some_and(|events| events.system_calls);
    let mut locks: Vec<Lock> = waits.into_iter().map(|(at, waits)| lock(&descriptions, at, &waits)).collect();
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.total));
    locks.truncate(limit.unwrap_or(usize::MAX));
    if as_json {
        let rows: Vec<Value> = locks.iter().map(|lock| row(&descriptions, lock)).collect();
        let object = json!({
            "calltap_locks": 1,
            "locks": Some(rows).filter(|rows| is_known || !rows.is_empty()),
            "unknown": unknown,
            disabled::KEY: disabled::functions(source.meta(), &names),
            left_out::KEY: left_out::by_rules(source),
        });
        return Ok(format!("{object:#}\n"));
    }
    let mut text = left_out::lines(source);
    text.extend(unknown.iter().map(|line| format!("# {line}\n")));
    if locks.is_empty() {
        text += if is_known { "no waits\n" } else { "waits are not known\n" };
        return Ok(text);
    }
    let _ = writeln!(text, "{:>8} {:>12} {:>12}  LOCK", "WAITS", "TOTAL", "LONGEST");
    for lock in &locks {
        let time = |ticks| duration(source.duration_ns(ticks));
        let (total, longest) = (time(lock.total), time(lock.longest));
        let own = if lock.recorder { " (waits for calltap)" } else { "" };
        let _ = writeln!(text, "{:>8} {total:>12} {longest:>12}  {}{own}", lock.waits, lock.place);
        for (what, paths) in [("waits in", &lock.waiters), ("woken in", &lock.wakers)] {
            for (path, ticks) in paths.iter().take(SHOWN) {
                let _ = writeln!(text, "{:>22} {what} {}", time(*ticks), path.join(" <- "));
            }
            if let Some(more) = paths.len().checked_sub(SHOWN + 1) {
                let _ = writeln!(text, "{:>22} {what} {} more", "", more + 1);
            }
        }
    }
    Ok(text)
}

/// Joins the waits at several addresses of one object, as the two of a condition variable.
fn by_object(source: &dyn Source, waits: BTreeMap<(u32, u64), Vec<Wait>>) -> BTreeMap<(u32, u64), Vec<Wait>> {
    let known = &source.meta().addresses;
    let objects: BTreeMap<(u32, u64), u64> =
        known.iter().map(|address| ((address.process, address.address), address.object())).collect();
    let mut first = BTreeMap::new();
    let mut joined: BTreeMap<(u32, u64), Vec<Wait>> = BTreeMap::new();
    for ((process, address), waits) in waits {
        let object = objects.get(&(process, address)).copied().unwrap_or(address);
        let address = *first.entry((process, object)).or_insert(address);
        joined.entry((process, address)).or_default().extend(waits);
    }
    joined
}

fn lock(descriptions: &Descriptions<'_>, (process, address): (u32, u64), waits: &[Wait]) -> Lock {
    let (mut waiters, mut wakers) = (BTreeMap::<Path, u64>::new(), BTreeMap::<Path, u64>::new());
    for wait in waits {
        let calls = |thread: ThreadId, at: Moment| match descriptions.path(at, None) {
            path if path.is_empty() => {
                vec![format!("{}, outside of traced calls", descriptions.thread(thread))]
            }
            path => path,
        };
        let waiter = calls(wait.thread, wait.at);
        let waker = match &wait.waker {
            Waker::Unknown | Waker::NotRecorded => vec!["(unknown)".to_owned()],
            Waker::GoRuntime(_) => vec!["the Go runtime".to_owned()],
            Waker::Interrupt => vec!["an interrupt".to_owned()],
            Waker::Recorder => vec!["calltap".to_owned()],
            Waker::Other { pid, comm } => vec![format!("{comm} (process {pid})")],
            Waker::Untraced { tid, comm } => vec![format!("{comm}-{tid}")],
            Waker::Thread(thread, at) => calls(*thread, *at),
        };
        *waiters.entry(waiter).or_default() += wait.ticks;
        *wakers.entry(waker).or_default() += wait.ticks;
    }
    let sorted = |paths: BTreeMap<Path, u64>| {
        let mut paths: Vec<(Path, u64)> = paths.into_iter().collect();
        paths.sort_by_key(|(_, ticks)| std::cmp::Reverse(*ticks));
        paths
    };
    let recorder = descriptions.address(process, address).is_some_and(|address| address.recorder);
    Lock {
        place: descriptions.place(process, address),
        process,
        address,
        recorder,
        waits: waits.len() as u64,
        total: waits.iter().map(|wait| wait.ticks).sum(),
        longest: waits.iter().map(|wait| wait.ticks).max().unwrap_or(0),
        waiters: sorted(waiters),
        wakers: sorted(wakers),
    }
}

fn row(descriptions: &Descriptions<'_>, lock: &Lock) -> Value {
    let ns = |ticks: u64| descriptions.source.duration_ns(ticks);
    let paths = |paths: &[(Path, u64)]| -> Vec<Value> {
        let entry =
            |(path, ticks): &(Path, u64)| json!({ "function": path.first(), "path": path, "ns": ns(*ticks) });
        paths.iter().map(entry).collect()
    };
    let pid = descriptions.source.meta().processes.get(lock.process as usize).map(|process| process.pid);
    json!({
        "lock": lock.place,
        "symbol": descriptions.address(lock.process, lock.address).and_then(|address| address.name.as_deref()),
        "address": Some(lock.address).filter(|address| *address != calltap_trace::SEVERAL_FUTEXES),
        "pid": pid,
        "recorder": lock.recorder,
        "waits": lock.waits,
        "total_ns": ns(lock.total),
        "max_ns": ns(lock.longest),
        "waits_in": paths(&lock.waiters),
        "woken_in": paths(&lock.wakers),
    })
}
