//! Explains slow futures: how long they were polled, the wakers of their tasks, how late workers
//! polled them then, and what the waking futures had waited for.

use super::explained::since_start;
use super::{SHOWN, Why, text};
use crate::error::Error;
use crate::future_spans::future_spans;
use crate::futures::{End, Role, Span, Wait, Waking, is_pool_thread};
use crate::head::disabled;
use crate::head::left_out;
use crate::names::Names;
use crate::sources::source::Source;
use crate::units::{counted, duration};
use calltap_names::{Word, is_named};
use calltap_trace::{FutureValues, Meta, Site, ThreadId};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;

/// Maximum number of wakers that are followed from one to the next.
const DEEP: usize = 4;
/// Maximum number of different wakers shown of a future.
const WAKERS: usize = 4;
/// Wakers are followed for waits of at least `1 / WORTH` of the slow future's time.
const WORTH: u64 = 10;
/// Maximum number of polls shown that kept workers busy.
const BUSY: usize = 2;

/// The waker of a task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Waker {
    /// The task was polled then, and woke itself.
    Itself,
    /// Another future, by its type.
    Future(String),
    /// A traced function outside of polls.
    Function(String),
    /// No traced function: a timer, the network, a thread without polls.
    Outside,
}

/// Waits of a future that one waker ended.
struct WaitGroup {
    waker: Waker,
    count: u64,
    /// Time until the wakings, ticks.
    ticks: u64,
    /// The longest of these waits, and its waking.
    longest: (u64, u64, Waking),
}

/// The time of a future within a window.
#[derive(Default)]
struct Activity {
    polled: u64,
    polls: u64,
    runnable: u64,
    unknown: u64,
    groups: Vec<WaitGroup>,
    /// The longest interval in which it was runnable.
    late: Option<(u64, u64)>,
}

/// The futures of a recording.
struct Futures<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    spans: Vec<Span>,
    /// Index by number of the span.
    index: HashMap<u64, usize>,
    /// The polls of outermost futures on each thread, in time: beginning, end, index of the span.
    polls: HashMap<ThreadId, Vec<(u64, u64, usize)>>,
}

/// Limits of a description: how many more wakers are followed, and the shortest wait, in ticks, for
/// which one is.
#[derive(Clone, Copy)]
struct Limits {
    deep: usize,
    shortest: u64,
}

impl Limits {
    fn of(span: &Span) -> Limits {
        Limits { deep: DEEP, shortest: (span.end - span.start) / WORTH }
    }

    /// Returns the limits for the waker of a wait, if it is followed.
    fn follow(self, ticks: u64) -> Option<Limits> {
        (self.deep > 0 && ticks >= self.shortest).then(|| Limits { deep: self.deep - 1, ..self })
    }
}

/// Returns the answer about futures, as text or as JSON. A future is named by its type, or by the
/// async function whose body it is.
pub fn why_futures(source: &dyn Source, why: &Why) -> Result<String, Error> {
    let futures = Futures::new(source, why.linker_names);
    let mut slow: Vec<&Span> = futures.spans.iter().filter(|span| futures.is_slow(span, why)).collect();
    slow.sort_by_key(|span| (std::cmp::Reverse(span.end - span.start), span.id));
    let (all, shown) = (slow.len(), why.limit.unwrap_or(SHOWN));
    slow.truncate(shown);
    let unknown = unknown(source.meta());
    if why.json {
        let shown: Vec<Value> = slow.iter().map(|span| futures.json(span)).collect();
        let object = json!({
            "calltap_why_futures": 1,
            "slow_futures": all,
            "unknown": unknown,
            disabled::KEY: disabled::functions(source.meta(), &Names::new(source.meta(), why.linker_names)),
            left_out::KEY: left_out::by_rules(source),
            "futures": shown,
        });
        return Ok(format!("{object:#}\n"));
    }
    let mut text = left_out::lines(source);
    unknown.iter().for_each(|line| text += &format!("# {line}\n"));
    if all > slow.len() {
        let _ = writeln!(text, "# {all} slow futures; these are the {} slowest", slow.len());
    } else if all == 0 {
        text += "# 0 slow futures\n";
    }
    for span in slow {
        futures.text(span, &mut text);
    }
    Ok(text)
}

/// Returns a line for each kind of data that the recording lacks.
fn unknown(meta: &Meta) -> Vec<String> {
    let mut lines = Vec::from_iter(text::lost(meta, "polls and wakings"));
    let is_waker = |site: &Site| Role::of(site).is_some_and(|role| role.values == FutureValues::Woken);
    if !meta.sites.iter().any(is_waker) {
        lines.push("wakeups of tasks were not recorded".to_owned());
    }
    lines
}

impl<'a> Futures<'a> {
    fn new(source: &'a dyn Source, linker_names: bool) -> Futures<'a> {
        let mut spans = future_spans(source);
        let ends = spans.iter().flat_map(|span| &span.all_polls).map(|(_, end, _)| *end);
        let end = ends.max().unwrap_or(0);
        // A future that still waits has done so until the recording ended.
        for span in spans.iter_mut().filter(|span| span.how == End::Waiting && span.end < end) {
            span.waits.push(Wait { from: span.end, to: end, waking: None });
            span.end = end;
        }
        let index = spans.iter().enumerate().map(|(n, span)| (span.id, n)).collect();
        let mut polls: HashMap<ThreadId, Vec<(u64, u64, usize)>> = HashMap::new();
        let outermost =
            spans.iter().enumerate().filter(|(_, span)| span.parent.is_none() && !is_pool_thread(&span.name));
        for (n, span) in outermost {
            for (start, end, thread) in &span.all_polls {
                polls.entry(*thread).or_default().push((*start, *end, n));
            }
        }
        polls.values_mut().for_each(|polls| polls.sort_unstable());
        Futures { source, names: Names::new(source.meta(), linker_names), spans, index, polls }
    }

    fn is_slow(&self, span: &Span, why: &Why) -> bool {
        let length = self.source.duration_ns(span.end - span.start);
        let is_slow = |rule: &super::Rule| length > rule.ns && is_called(&span.name, &rule.function);
        why.rules.iter().any(is_slow)
    }

    fn span(&self, id: u64) -> Option<&Span> {
        Some(&self.spans[*self.index.get(&id)?])
    }

    /// Returns the number of the outermost future that a future was polled in.
    fn outermost(&self, mut id: u64) -> u64 {
        while let Some(parent) = self.span(id).and_then(|span| span.parent) {
            id = parent;
        }
        id
    }

    fn waker(&self, of: &Span, waking: &Waking) -> Waker {
        match (waking.future, waking.caller) {
            (Some((id, _)), _) if self.outermost(id) == self.outermost(of.id) => Waker::Itself,
            (Some((id, _)), _) => {
                Waker::Future(self.span(id).map_or_else(String::new, |span| span.name.clone()))
            }
            (None, Some(site)) => Waker::Function(self.names.function(site).to_owned()),
            (None, None) => Waker::Outside,
        }
    }

    /// Returns the activity of a future from one time to another.
    fn activity(&self, span: &Span, (from, to): (u64, u64)) -> Activity {
        let mut activity = Activity::default();
        for (start, end, _) in &span.all_polls {
            let ticks = overlap((*start, *end), (from, to));
            activity.polled += ticks;
            activity.polls += u64::from(*end >= from && *start < to);
        }
        for Wait { from: start, to: end, waking } in &span.waits {
            let Some(waking) = waking else {
                activity.unknown += overlap((*start, *end), (from, to));
                continue;
            };
            let woken = waking.at.clamp(*start, *end);
            let late = (woken.max(from), (*end).min(to));
            let ticks = late.1.saturating_sub(late.0);
            activity.runnable += ticks;
            if activity.late.is_none_or(|(start, end)| ticks > end - start) && ticks > 0 {
                activity.late = Some(late);
            }
            let waited = overlap((*start, woken), (from, to));
            if waited > 0 {
                activity.add(self.waker(span, waking), waited, ((*start).max(from), woken.min(to), *waking));
            }
        }
        activity.groups.sort_by(|a, b| b.ticks.cmp(&a.ticks).then_with(|| a.waker.cmp(&b.waker)));
        activity
    }

    /// Returns the longest polls of other tasks that kept workers busy in an interval.
    fn busy(&self, span: &Span, interval: (u64, u64)) -> Vec<(u64, &Span, ThreadId)> {
        let own = self.outermost(span.id);
        let mut polls: Vec<(u64, &Span, ThreadId)> = Vec::new();
        for (thread, all) in &self.polls {
            let first = all.partition_point(|(_, end, _)| *end <= interval.0);
            let within = all[first..].iter().take_while(|(start, ..)| *start < interval.1);
            let others =
                within.map(|(start, end, n)| (overlap((*start, *end), interval), &self.spans[*n], *thread));
            polls.extend(others.filter(|(ticks, other, _)| *ticks > 0 && other.id != own));
        }
        polls.sort_by_key(|(ticks, other, _)| (std::cmp::Reverse(*ticks), other.id));
        polls.truncate(BUSY);
        polls
    }

    fn time(&self, ticks: u64) -> String {
        duration(self.source.duration_ns(ticks))
    }

    fn text(&self, span: &Span, text: &mut String) {
        let at = since_start(self.source, span.start);
        let task = span.task.map(|task| format!("  task {task:#x}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}  {}{task}  at {}.{:06} s: {}{}",
            self.time(span.end - span.start),
            span.name,
            at / 1_000_000_000,
            at / 1000 % 1_000_000,
            span.how.name(),
            if span.began_earlier { ", polled before the recording" } else { "" },
        );
        self.lines(span, (span.start, span.end), 2, Limits::of(span), text);
        text.push('\n');
    }

    /// Appends what a future did from one time to another, and what its wakers did meanwhile.
    fn lines(&self, span: &Span, window: (u64, u64), indent: usize, limits: Limits, text: &mut String) {
        let activity = self.activity(span, window);
        let mut line = |ticks: u64, what: &str| {
            let time = self.time(ticks);
            let _ = writeln!(text, "{:indent$}{time:>11}  {what}", "");
        };
        line(activity.polled, &format!("in {}", counted(activity.polls, "poll")));
        if activity.runnable > 0 {
            let busy = self.busy(span, activity.late.unwrap_or_default());
            let one = |(ticks, other, thread): &(u64, &Span, ThreadId)| {
                format!(
                    "; {} polled {} for {} meanwhile",
                    self.names.task(*thread),
                    other.name,
                    self.time(*ticks)
                )
            };
            let busy: String = busy.iter().map(one).collect();
            line(activity.runnable, &format!("runnable: it was woken, and no worker polled it yet{busy}"));
        }
        if activity.unknown > 0 {
            line(
                activity.unknown,
                "waiting or runnable: no waking is known, or none came until the recording ended",
            );
        }
        let rest: u64 = activity.groups.iter().skip(WAKERS).map(|group| group.ticks).sum();
        if rest > 0 {
            line(rest, "waiting for others");
        }
        for group in activity.groups.iter().take(WAKERS) {
            self.group(group, indent, limits, text);
        }
    }

    fn group(&self, group: &WaitGroup, indent: usize, limits: Limits, text: &mut String) {
        let WaitGroup { waker, count, ticks, longest: (from, to, waking) } = group;
        let thread = self.names.task(waking.thread);
        let times = if *count > 1 { format!(" {count} times") } else { String::new() };
        let by = match waker {
            Waker::Itself => "itself".to_owned(),
            Waker::Future(name) => format!("{name} on {thread}"),
            Waker::Function(name) => format!("{name}, outside of futures, on {thread}"),
            Waker::Outside => format!("no future, on {thread}: a timer, the network, or other code"),
        };
        let time = self.time(*ticks);
        let _ = writeln!(text, "{:indent$}{time:>11}  waiting{times}, until it was woken by {by}", "");
        if let (Some(other), Some(limits)) = (self.other(group), limits.follow(to - from)) {
            let longest = if *count > 1 {
                format!(" in the longest wait ({})", self.time(to - from))
            } else {
                String::new()
            };
            let _ = writeln!(text, "{:indent$}which{longest} was", "", indent = indent + 13);
            self.lines(other, (*from, *to), indent + 13, limits, text);
        }
    }

    /// Returns the span of the future of another task that ended the longest wait of a group.
    fn other(&self, group: &WaitGroup) -> Option<&Span> {
        let (id, _) = group.longest.2.future.filter(|_| matches!(group.waker, Waker::Future(_)))?;
        self.span(id)
    }

    fn json(&self, span: &Span) -> Value {
        let mut object = self.activity_json(span, (span.start, span.end), Limits::of(span));
        object["future"] = span.name.clone().into();
        object["id"] = span.id.into();
        object["task"] = span.task.map(|task| format!("{task:#x}")).into();
        object["start_ns"] = since_start(self.source, span.start).into();
        object["duration_ns"] = self.source.duration_ns(span.end - span.start).into();
        object["began_earlier"] = span.began_earlier.into();
        object["end"] = span.how.name().into();
        object
    }

    fn activity_json(&self, span: &Span, window: (u64, u64), limits: Limits) -> Value {
        let activity = self.activity(span, window);
        let ns = |ticks: u64| self.source.duration_ns(ticks);
        let busy = |(ticks, other, thread): (u64, &Span, ThreadId)| json!({ "future": other.name, "id": other.id, "tid": self.names.tid(thread), "polled_ns": ns(ticks) });
        let busy: Vec<Value> = match activity.late {
            Some(late) => self.busy(span, late).into_iter().map(busy).collect(),
            None => Vec::new(),
        };
        let waits: Vec<Value> =
            activity.groups.iter().map(|group| self.group_json(span, group, limits)).collect();
        json!({
            "polls": activity.polls,
            "polled_ns": ns(activity.polled),
            "runnable_ns": ns(activity.runnable),
            "workers_polled": busy,
            "unknown_ns": ns(activity.unknown),
            "wait_groups": waits,
        })
    }

    fn group_json(&self, span: &Span, group: &WaitGroup, limits: Limits) -> Value {
        let WaitGroup { waker, count, ticks, longest: (from, to, waking) } = group;
        let (future, function) = match waker {
            Waker::Itself => (Some(span.name.as_str()), None),
            Waker::Future(name) => (Some(name.as_str()), None),
            Waker::Function(name) => (None, Some(name.as_str())),
            Waker::Outside => (None, None),
        };
        let followed = self.other(group).zip(limits.follow(to - from));
        json!({
            "waits": count,
            "waited_ns": self.source.duration_ns(*ticks),
            "max_ns": self.source.duration_ns(to - from),
            "woken_by": {
                "itself": *waker == Waker::Itself,
                "future": future,
                "id": waking.future.map(|(id, _)| id),
                "function": function,
                "thread": self.names.task(waking.thread),
                "tid": self.names.tid(waking.thread),
            },
            "meanwhile": followed.map(|(other, limits)| self.activity_json(other, (*from, *to), limits)),
        })
    }
}

impl Activity {
    fn add(&mut self, waker: Waker, ticks: u64, wait: (u64, u64, Waking)) {
        match self.groups.iter_mut().find(|group| group.waker == waker) {
            Some(group) => {
                group.count += 1;
                group.ticks += ticks;
                if wait.1 - wait.0 > group.longest.1 - group.longest.0 {
                    group.longest = wait;
                }
            }
            None => self.groups.push(WaitGroup { waker, count: 1, ticks, longest: wait }),
        }
    }
}

/// Whether a word names a future: its type, or the async function whose body it is.
pub fn is_called(future: &str, word: &str) -> bool {
    let word = Word::new(word);
    let of = future.rsplit_once("::").filter(|(_, last)| last.starts_with('{')).map(|(function, _)| function);
    [Some(future), of].into_iter().flatten().any(|name| is_named(&word, [name].into_iter(), None))
}

fn overlap((start, end): (u64, u64), (from, to): (u64, u64)) -> u64 {
    end.min(to).saturating_sub(start.max(from))
}
