//! Formats chains as text.

use super::chain::Chain;
use super::descriptions::{Cause, Descriptions, WaitGroup, WakerDescription};
use super::explained::{Explained, since_start};
use super::parks::PARK;
use super::summary::NOT_WAITING;
use crate::units::{counted, duration};
use calltap_trace::{Meta, SiteId};
use std::fmt::Write;

/// Number of running functions that are named.
const RAN: usize = 4;
/// Number of kinds of waits shown of a thread.
const WAITS: usize = 6;
/// Smallest share of a wait, in thousandths, from which a time is shown.
const SMALL: u64 = 10;

/// Returns a line about lost events, if there are any. `missing`: what they would have shown.
pub(crate) fn lost(meta: &Meta, missing: &str) -> Option<String> {
    let lost: u64 = meta.loss.iter().map(|loss| loss.lost_entries.saturating_add(loss.lost_exits)).sum();
    (lost > 0).then(|| format!("{} lost: {missing} are missing", counted(lost, "event")))
}

/// Returns a line for each kind of data that the recording lacks.
pub(crate) fn unknown(meta: &Meta, has_switches: bool, knows_wakers: bool) -> Vec<String> {
    let mut lines = Vec::from_iter(lost(meta, "calls"));
    // A thread that slept all the time has made no switch.
    let is_recorded = meta.scheduling.as_ref().is_some_and(|scheduling| scheduling.refused.is_none());
    if !has_switches && !is_recorded {
        lines.push("it was not recorded when threads ran and when they waited".to_owned());
    }
    if meta.threads.iter().any(|thread| thread.goroutine.is_some()) {
        let is_traced = meta.sites.iter().any(|site| site.name == PARK);
        if !is_traced {
            lines.push("it was not recorded when goroutines waited: runtime.gopark is not traced".to_owned());
        } else if !knows_wakers {
            lines.push("the waker of a goroutine is unknown, and its wait lasts until it runs again: runtime.ready is not traced, or not its goroutine".to_owned());
        }
    }
    match &meta.kernel_events {
        None => lines.push(
            "wakeups and system calls were not recorded ('record --events sched,syscalls' records them)"
                .to_owned(),
        ),
        Some(events) => {
            lines.extend(events.refused.iter().cloned());
            if !events.wakings && events.refused.is_empty() {
                lines.push("wakeups were not recorded ('record --events sched' records them)".to_owned());
            }
            if !events.system_calls && events.refused.is_empty() {
                lines.push("system calls were not recorded ('record --events syscalls' does)".to_owned());
            }
            if events.lost > 0 {
                let lost = counted(events.lost, "record");
                lines.push(format!("the kernel lost {lost}: their times are unknown"));
            }
        }
    }
    lines
}

/// Formats all chains.
pub(crate) fn chains(explained: &Explained, descriptions: &Descriptions<'_>) -> String {
    let mut text = String::new();
    for (slow, chain) in &explained.chains {
        let call = &slow.call;
        let at = since_start(descriptions.source, call.start);
        let open = if call.ending.is_cut() { ">" } else { "" };
        let _ = writeln!(
            text,
            "{open}{}  {}  {}  at {}.{:06} s",
            duration(descriptions.source.duration_ns(call.total)),
            descriptions.names.function(call.site),
            descriptions.thread(slow.thread),
            at / 1_000_000_000,
            at / 1000 % 1_000_000
        );
        let mut lines = Lines { descriptions, text: &mut text };
        lines.chain(chain, Some(call.site), 2, call.total);
        text.push('\n');
    }
    text
}

struct Lines<'a> {
    descriptions: &'a Descriptions<'a>,
    text: &'a mut String,
}

impl Lines<'_> {
    fn time(&self, ticks: u64) -> String {
        duration(self.descriptions.source.duration_ns(ticks))
    }

    fn line(&mut self, indent: usize, ticks: u64, what: &str) {
        let time = self.time(ticks);
        let _ = writeln!(self.text, "{:indent$}{time:>11}  {what}", "");
    }

    fn more(&mut self, indent: usize, what: &str) {
        let _ = writeln!(self.text, "{:indent$}{what}", "", indent = indent + 13);
    }

    /// Appends the activity of a thread; paths begin within `from`.
    fn chain(&mut self, chain: &Chain, from: Option<SiteId>, indent: usize, whole: u64) {
        let is_small = |ticks: u64| ticks == 0 || ticks.saturating_mul(1000) < whole.saturating_mul(SMALL);
        if !is_small(chain.ran) || (from.is_some() && chain.ran > 0) {
            let ran = self.ran(chain);
            self.line(indent, chain.ran, &ran);
        }
        let alike = self.descriptions.alike(chain, from);
        let shown = alike.iter().filter(|one| !is_small(one.ticks)).count().min(WAITS);
        for one in &alike[..shown] {
            self.wait(one, indent);
        }
        let rest = &alike[shown..];
        let ticks: u64 = rest.iter().map(|one| one.ticks).sum();
        if !is_small(ticks) || (from.is_some() && ticks > 0) {
            let waits = counted(rest.iter().map(|one| one.count).sum(), "other wait");
            self.line(indent, ticks, &format!("blocked in {waits}"));
        }
        if !is_small(chain.runnable) || (from.is_some() && chain.runnable > 0) {
            let lacked = if chain.is_goroutine { "no thread or no processor" } else { "no processor" };
            self.line(indent, chain.runnable, &format!("runnable: it could run, and had {lacked}"));
        }
        if chain.is_goroutine && chain.unknown > 0 {
            let functions = self.functions(self.descriptions.unseen(chain));
            self.line(indent, chain.unknown, &format!("{NOT_WAITING}{functions}"));
        } else if chain.unknown > 0 {
            self.line(indent, chain.unknown, "unknown: it is not recorded whether it ran");
        }
    }

    fn ran(&self, chain: &Chain) -> String {
        format!("ran{}", self.functions(self.descriptions.ran(chain)))
    }

    /// Formats functions with their times after a colon; empty without functions.
    fn functions(&self, times: Vec<(String, u64)>) -> String {
        let mut shown: Vec<String> =
            times.iter().take(RAN).map(|(name, ticks)| format!("{name} {}", self.time(*ticks))).collect();
        if times.len() > RAN {
            shown.push(format!("{} more", times.len() - RAN));
        }
        if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) }
    }

    fn wait(&mut self, one: &WaitGroup<'_>, indent: usize) {
        let Cause { within, path, waker } = &one.cause;
        let times = if one.count > 1 { format!(" {} times", one.count) } else { String::new() };
        let within = match within {
            Some(within) => format!("in {within}"),
            None => "(the system call is not known)".to_owned(),
        };
        let path: String = path.iter().map(|function| format!(" <- {function}")).collect();
        self.line(indent, one.ticks, &format!("blocked{times} {within}{path}"));
        if *waker == WakerDescription::NotRecorded {
            return;
        }
        self.more(indent, &waker_text(self.descriptions, waker));
        if let (Some(meanwhile), WakerDescription::Thread { thread, .. }) = (&one.longest.meanwhile, waker) {
            let thread = self.descriptions.thread(*thread);
            let which = if one.count > 1 {
                format!(" (of the longest, {})", self.time(one.longest.ticks))
            } else {
                String::new()
            };
            self.more(indent, &format!("meanwhile {thread}{which}:"));
            self.chain(meanwhile, None, indent + 13, one.longest.ticks);
        }
    }
}

/// Formats a waker: `woken by worker-2 in evict <- handle`.
pub(crate) fn waker_text(descriptions: &Descriptions<'_>, waker: &WakerDescription) -> String {
    match waker {
        WakerDescription::Unknown | WakerDescription::NotRecorded => "its waker is unknown".to_owned(),
        WakerDescription::GoRuntime { path } => {
            let path = if path.is_empty() { String::new() } else { format!(" in {}", path.join(" <- ")) };
            format!("woken by the Go runtime (a timer, the network, the garbage collector){path}")
        }
        WakerDescription::Interrupt => "woken by an interrupt (a timer, a device, the network)".to_owned(),
        WakerDescription::Recorder => "woken by calltap: this is time that tracing took".to_owned(),
        WakerDescription::Stopped => "interrupted by calltap, which stopped the thread".to_owned(),
        WakerDescription::StoppedOrChild => {
            "woken by calltap, which stopped the thread or passed on the end of a traced child".to_owned()
        }
        WakerDescription::Other { pid, comm } if comm.is_empty() => format!("woken by process {pid}"),
        WakerDescription::Other { pid, comm } => format!("woken by {comm} (process {pid})"),
        WakerDescription::Untraced { tid, comm } => format!("woken by {comm}-{tid}"),
        WakerDescription::Thread { thread, path } if path.is_empty() => {
            format!("woken by {}, outside of traced calls", descriptions.thread(*thread))
        }
        WakerDescription::Thread { thread, path } => {
            format!("woken by {} in {}", descriptions.thread(*thread), path.join(" <- "))
        }
    }
}
