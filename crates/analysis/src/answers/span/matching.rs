//! Matches beginnings and ends, in time order, into spans.

use super::super::buckets::{Buckets, bars};
use super::super::latency::PERMILLES;
use super::{QueryContext, Side};
use crate::histogram::Quantiles;
use crate::units::{count, counted, duration, one_line};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Key of a span: the process, and the text of the value.
type Shared = (u32, Box<str>);

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Task {
    pub(super) tid: u32,
    /// The number of its name, see [`QueryContext::word`].
    pub(super) name: u32,
}

/// The beginning or end of a span.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) ticks: u64,
    pub(super) begins: bool,
    pub(super) thread: Task,
    pub(super) value: Shared,
}

/// A span that ended; spans compare by duration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Span {
    ns: u64,
    start: Reverse<u64>,
    value: Box<str>,
    threads: [Task; 2],
}

/// Sums and open spans.
#[derive(Clone)]
pub(super) struct Matches {
    buckets: Buckets,
    limit: usize,
    open: HashMap<Shared, (u64, Task)>,
    spans: u64,
    total: u64,
    min: u64,
    max: u64,
    counts: BTreeMap<u64, u64>,
    quantiles: Quantiles,
    /// The slowest spans, the shortest of them on top.
    slowest: BinaryHeap<Reverse<Span>>,
    unknown: u64,
    without_start: u64,
    begun_again: u64,
}

/// Merges overlapping losses into ascending intervals.
fn merged(losses: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = losses.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Whether events were lost between two times.
fn is_doubtful(losses: &[(u64, u64)], from: u64, to: u64) -> bool {
    let at = losses.partition_point(|(_, end)| *end < from);
    losses.get(at).is_some_and(|(begin, _)| *begin <= to)
}

impl Matches {
    pub(super) fn new(buckets: Buckets, limit: usize) -> Matches {
        Matches {
            buckets,
            limit,
            open: HashMap::new(),
            spans: 0,
            total: 0,
            min: 0,
            max: 0,
            counts: BTreeMap::new(),
            quantiles: Quantiles::default(),
            slowest: BinaryHeap::new(),
            unknown: 0,
            without_start: 0,
            begun_again: 0,
        }
    }

    /// Takes moments in time order.
    pub(super) fn take(&mut self, known: &QueryContext, moments: &[Moment], losses: &[(u64, u64)]) {
        let losses = merged(losses);
        for moment in moments {
            if moment.begins {
                let before = self.open.insert(moment.value.clone(), (moment.ticks, moment.thread));
                match before {
                    Some((start, _)) if is_doubtful(&losses, start, moment.ticks) => self.unknown += 1,
                    Some(_) => self.begun_again += 1,
                    None => {}
                }
                continue;
            }
            match self.open.remove(&moment.value) {
                Some((start, _)) if is_doubtful(&losses, start, moment.ticks) => self.unknown += 1,
                Some((start, thread)) => {
                    let (ns, value) = (known.ns(moment.ticks - start), moment.value.1.clone());
                    self.add(Span { ns, start: Reverse(start), value, threads: [thread, moment.thread] });
                }
                None => self.without_start += 1,
            }
        }
    }

    fn add(&mut self, span: Span) {
        self.min = if self.spans == 0 { span.ns } else { self.min.min(span.ns) };
        self.max = self.max.max(span.ns);
        self.spans += 1;
        self.total = self.total.saturating_add(span.ns);
        *self.counts.entry(self.buckets.place(span.ns)).or_default() += 1;
        self.quantiles.record(span.ns);
        self.slowest.push(Reverse(span));
        if self.slowest.len() > self.limit {
            self.slowest.pop();
        }
    }

    fn permilles(&self) -> [u64; 4] {
        self.quantiles.permilles(PERMILLES.map(|(permille, ..)| permille), self.min, self.max)
    }

    /// Returns the slowest spans, slowest first.
    fn slowest(&self) -> Vec<&Span> {
        let mut slowest: Vec<&Span> = self.slowest.iter().map(|Reverse(span)| span).collect();
        slowest.sort_by(|a, b| b.cmp(a));
        slowest
    }

    /// Returns the number of open spans, the number of spans that may be open, and the beginning of
    /// the oldest open one.
    fn open(&self, losses: &[(u64, u64)]) -> (u64, u64, Option<u64>) {
        let losses = merged(losses);
        let is_known = |start: u64| !is_doubtful(&losses, start, u64::MAX);
        let known = || self.open.values().map(|(start, _)| *start).filter(|start| is_known(*start));
        let open = known().count();
        (open as u64, (self.open.len() - open) as u64, known().min())
    }

    pub(super) fn text(&self, known: &QueryContext, sides: &[Side; 2], losses: &[(u64, u64)]) -> String {
        let spans = counted(self.spans, "span");
        let mut text = one_line(&format!("{} .. {}: {spans}", sides[0].text, sides[1].text)).into_owned();
        if let Some(average) = self.total.checked_div(self.spans) {
            let [average, min, max] = [average, self.min, self.max].map(duration);
            let one = |((_, name, _), ns): (&(u32, &str, &str), u64)| format!("{name} {}", duration(ns));
            let permilles: Vec<String> = PERMILLES.iter().zip(self.permilles()).map(one).collect();
            text += &format!(", avg {average}, min {min}, max {max}\n  {}\n", permilles.join(", "));
            bars(self.buckets, &self.counts, &mut text);
            text += "\nslowest:\n";
            text += &format!("{:>16} {:>13}  {:<20}  THREADS\n", "START", "DURATION", "VALUE");
        } else {
            text += "\n";
        }
        for span in self.slowest() {
            let (start, value) = (known.stamp(span.start.0), one_line(&span.value));
            let [from, to] = span.threads.map(|thread| known.word(thread.name));
            let threads = if from == to { from.to_owned() } else { format!("{from} .. {to}") };
            text += &format!("{start:>16} {:>13}  {value:<20}  {}\n", duration(span.ns), one_line(&threads));
        }
        let (open, doubtful, oldest) = self.open(losses);
        if let Some(oldest) = oldest {
            text += &format!("# {} open, the oldest since {}\n", counted(open, "span"), known.stamp(oldest));
        }
        let unknown = self.unknown + doubtful;
        let notes = [
            (unknown, "unknown: events were lost while open"),
            (self.without_start, "ended without an observed begin"),
            (self.begun_again, "begun again before the end: the end of the first is unknown"),
        ];
        for (number, note) in notes.into_iter().filter(|(number, _)| *number > 0) {
            text += &format!("# {} {note}\n", count(number));
        }
        text
    }

    pub(super) fn json(&self, known: &QueryContext, sides: &[Side; 2], losses: &[(u64, u64)]) -> Value {
        let (open, doubtful, oldest) = self.open(losses);
        let bucket = |(place, spans): (&u64, &u64)| {
            let (from, to) = self.buckets.bounds(*place);
            json!({ "from_ns": from, "to_ns": to, "spans": spans })
        };
        let span = |span: &&Span| {
            json!({
                "start_ns": known.since_start(span.start.0),
                "start_epoch_ns": known.since_epoch(span.start.0),
                "duration_ns": span.ns,
                "value": span.value,
                "start_tid": span.threads[0].tid,
                "end_tid": span.threads[1].tid,
            })
        };
        let some = self.spans > 0;
        let mut object = json!({
            "start": sides[0].text,
            "end": sides[1].text,
            "spans": self.spans,
            "total_ns": self.total,
            "min_ns": some.then_some(self.min),
            "max_ns": some.then_some(self.max),
            "buckets": self.counts.iter().map(bucket).collect::<Vec<_>>(),
            "slowest": self.slowest().iter().map(span).collect::<Vec<_>>(),
            "unfinished": open,
            "unfinished_since_ns": oldest.map(|oldest| known.since_start(oldest)),
            "unknown": self.unknown + doubtful,
            "ended_without_start": self.without_start,
            "begun_again": self.begun_again,
        });
        for ((.., key), ns) in PERMILLES.into_iter().zip(self.permilles()) {
            object[key] = some.then_some(ns).into();
        }
        object
    }
}
