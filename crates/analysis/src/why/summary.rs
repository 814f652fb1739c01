//! Sums the time of all slow calls by cause.

use super::descriptions::{Cause, Descriptions, WakerDescription};
use super::explained::Explained;
use crate::units::{counted, duration, percent};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the causes with their ticks, most first.
fn causes(explained: &Explained, descriptions: &Descriptions<'_>) -> Vec<(String, u64)> {
    let mut causes = BTreeMap::<String, u64>::new();
    for (slow, chain) in &explained.chains {
        let mut add = |cause: String, ticks: u64| *causes.entry(cause).or_default() += ticks;
        descriptions
            .ran(chain)
            .into_iter()
            .for_each(|(function, ticks)| add(format!("ran {function}"), ticks));
        add("runnable: no processor".to_owned(), chain.runnable);
        if chain.is_goroutine {
            let unseen = descriptions.unseen(chain).into_iter();
            unseen.for_each(|(function, ticks)| add(format!("{NOT_WAITING}: {function}"), ticks));
        } else {
            add("unknown".to_owned(), chain.unknown);
        }
        for one in descriptions.alike(chain, Some(slow.call.site)) {
            add(cause(&one.cause), one.ticks);
        }
    }
    let mut causes: Vec<(String, u64)> = causes.into_iter().filter(|(_, ticks)| *ticks > 0).collect();
    causes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    causes
}

/// Cause of the time in which a goroutine does not wait.
pub(crate) const NOT_WAITING: &str = "unknown whether it ran, could run, or was in a system call";

/// Names a cause by functions, without threads, so that the causes of all threads are summed.
fn cause(cause: &Cause) -> String {
    let Cause { within, path, waker } = cause;
    let within = within.as_deref().unwrap_or("(the system call is not known)");
    let path: String = path.iter().map(|function| format!(" <- {function}")).collect();
    let waker = match waker {
        WakerDescription::NotRecorded => return format!("blocked in {within}{path}"),
        WakerDescription::Unknown => "an unknown waker".to_owned(),
        WakerDescription::GoRuntime { path } if path.is_empty() => "the Go runtime".to_owned(),
        WakerDescription::GoRuntime { path } => format!("the Go runtime in {}", path.join(" <- ")),
        WakerDescription::Interrupt => "an interrupt".to_owned(),
        WakerDescription::Recorder => return format!("calltap: time that tracing took, in {within}{path}"),
        WakerDescription::Stopped => "calltap, which stopped the thread".to_owned(),
        WakerDescription::StoppedOrChild => {
            "calltap, which stopped the thread or passed on the end of a traced child".to_owned()
        }
        WakerDescription::Other { pid, comm } if comm.is_empty() => format!("process {pid}"),
        WakerDescription::Other { comm, .. } | WakerDescription::Untraced { comm, .. } => comm.clone(),
        WakerDescription::Thread { path, .. } if path.is_empty() => {
            "a thread outside of traced calls".to_owned()
        }
        WakerDescription::Thread { path, .. } => path.join(" <- "),
    };
    format!("blocked in {within}{path}, until woken by {waker}")
}

/// Formats the causes as text.
pub(crate) fn text(explained: &Explained, descriptions: &Descriptions<'_>, limit: Option<usize>) -> String {
    let whole: u64 = explained.chains.iter().map(|(slow, _)| slow.call.total).sum();
    let mut text = format!(
        "# {}, {} together\n",
        counted(explained.chains.len() as u64, "slow call"),
        duration(descriptions.source.duration_ns(whole))
    );
    for (cause, ticks) in causes(explained, descriptions).into_iter().take(limit.unwrap_or(usize::MAX)) {
        let time = duration(descriptions.source.duration_ns(ticks));
        let _ = writeln!(text, "{:5.1} % {time:>12}  {cause}", percent(ticks, whole));
    }
    text
}

/// Returns the causes as JSON.
pub(crate) fn json(explained: &Explained, descriptions: &Descriptions<'_>) -> Value {
    let causes = causes(explained, descriptions).into_iter();
    let causes = causes
        .map(|(cause, ticks)| json!({ "cause": cause, "ns": descriptions.source.duration_ns(ticks) }))
        .collect();
    Value::Array(causes)
}
