//! Futures of Rust programs, by type: how often and how long they were polled, how long they
//! waited, how they ended.

use super::{EndedCall, Function, QueryContext, Question};
use crate::columns::{self, Fitting, Leavable};
use crate::futures::{End, FutureEvent, FutureSums, Joiner, Role, Span, SumsByType, Waking};
use crate::tree::Ending;
use crate::units::{count, duration, one_line};
use crate::values::FormattedValue;
use calltap_names::Glob;
use calltap_trace::ThreadId;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Columns of the table left out where names do not fit, in this order.
const LEAVABLE: [usize; 7] = [9, 5, 4, 3, 7, 1, 10];

/// Titles of the columns in front of the name.
const TITLES: [&str; 11] = [
    "Futures",
    "Tasks",
    "Polls",
    "Ready",
    "Dropped",
    "Waiting",
    "Busy",
    "Longest poll",
    "Idle",
    "Longest idle",
    "Runnable",
];

/// How much later than the events of other threads those of a thread may arrive, nanoseconds.
const LATE: u64 = 2_000_000_000;

/// The answer to `futures`: joins polls into futures and sums them by type.
pub struct Futures {
    joiner: Joiner,
    roles: HashMap<Function, Option<u32>>,
    rows: SumsByType,
    /// Form of the line written for every future; `None`: sums only.
    lines: Option<super::Form>,
    text: String,
    limit: Option<usize>,
    /// Characters of a line of the table; `None`: no limit.
    width: Option<usize>,
    /// Globs of the types shown; empty: all types.
    types: Vec<Glob>,
    /// Ticks by which events of a thread may arrive later than those of other threads. `None`:
    /// polls are joined only at the end.
    late: Option<u64>,
    made: Vec<Span>,
    /// Kernel thread ids, kept here because a thread that ended is no longer in `QueryContext`.
    tids: HashMap<ThreadId, u32>,
    /// Ends, in ticks, of the newest poll, and of the newest poll when polls were last joined.
    newest: [u64; 2],
}

impl Futures {
    /// Selects futures of `types` (empty: all) and shows at most `limit` rows, or with `lines` a
    /// line for every future. `live`: the answer is shown before the end of the recording.
    pub fn new(types: Vec<Glob>, limit: Option<usize>, lines: Option<super::Form>, live: bool) -> Futures {
        Futures {
            joiner: Joiner::default(),
            roles: HashMap::new(),
            rows: SumsByType::default(),
            lines,
            text: String::new(),
            limit,
            width: None,
            types,
            late: live.then_some(LATE),
            made: Vec::new(),
            tids: HashMap::new(),
            newest: [0; 2],
        }
    }

    /// Makes a table of such lines: columns are left out where names have no room.
    pub fn fitting(mut self, width: Option<usize>) -> Futures {
        self.width = width;
        self
    }

    /// Returns the whole lines made since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    fn is_wanted(&self, span: &Span) -> bool {
        self.types.is_empty() || self.types.iter().any(|glob| glob.matches(&span.name))
    }

    /// Returns the sums of all futures, including those that have not ended.
    fn all(&self) -> SumsByType {
        let mut rows = self.rows.clone();
        self.joiner.open().filter(|span| self.is_wanted(span)).for_each(|span| rows.add(span));
        rows
    }

    /// Formats the waker that ended the longest time between two polls.
    fn woken_by(&self, known: &QueryContext, span: &Span) -> String {
        let Some(waking) = span.waking else { return String::new() };
        let tid = self.tids.get(&waking.thread).copied().unwrap_or(0);
        let waker = match (waking.future, waking.caller) {
            (Some((_, kind)), _) => self.joiner.type_name(kind).to_owned(),
            (None, Some(caller)) => known.name(known.function_of(caller).0).to_owned(),
            (None, None) => "no future".to_owned(),
        };
        format!(", woken by {waker} in thread {tid}")
    }

    /// Returns the waking that ended the longest time between two polls; null if unknown.
    fn waking_object(&self, known: &QueryContext, span: &Span) -> Value {
        let object = |waking: Waking| {
            json!({
                "at_ns": known.since_start(waking.at),
                "tid": self.tids.get(&waking.thread),
                "future": waking.future.map(|(_, kind)| self.joiner.type_name(kind)),
                "future_id": waking.future.map(|(id, _)| id),
                "caller": waking.caller.map(|caller| known.name(known.function_of(caller).0)),
            })
        };
        span.waking.map(object).into()
    }

    fn end(&mut self, known: &QueryContext, span: &Span) {
        if !self.is_wanted(span) {
            return;
        }
        self.rows.add(span);
        let Some(form) = self.lines else { return };
        let tid = |thread: &ThreadId| self.tids.get(thread).copied().unwrap_or(0);
        let tids: Vec<u32> = span.threads.iter().map(tid).collect();
        let line = match form {
            super::Form::Text => {
                one_line(&line(known, &tids, span, &self.woken_by(known, span))).into_owned()
            }
            super::Form::Json(version) => {
                let mut object = object(known, &tids, span);
                object["woken_by"] = self.waking_object(known, span);
                object[version] = 1.into();
                object.to_string()
            }
        };
        self.text += &line;
        self.text += "\n";
    }
}

/// Formats a future on one line:
///
/// ```text
/// NAME at 0x7f12: ready after 3 polls in 12.1 ms, busy 81.2 us (longest 40.1 us), idle 12.0 ms
/// (longest 11.0 ms, woken by OTHER in thread 12), runnable 1.2 ms, threads 12, 13
/// ```
fn line(known: &QueryContext, tids: &[u32], span: &Span, woken_by: &str) -> String {
    let time = |ticks| duration(known.ns(ticks));
    let threads: Vec<String> = tids.iter().map(u32::to_string).collect();
    let task = span.task.map(|task| format!(", task {task:#x}")).unwrap_or_default();
    let earlier = if span.began_earlier { " (polled before)" } else { "" };
    format!(
        "{} at {:#x}{task}{earlier}: {} after {} polls in {}, busy {} (longest {}), idle {} (longest {}{woken_by}), {}, threads {}",
        span.name,
        span.address,
        span.how.name(),
        count(span.polls),
        time(span.end - span.start),
        time(span.busy),
        time(span.longest_poll),
        time(span.idle),
        time(span.longest_idle),
        match (span.runnable, span.unknown) {
            (runnable, 0) => format!("runnable {}", time(runnable)),
            (0, _) => "not known how long runnable".to_owned(),
            (runnable, unknown) => format!("runnable {} (not known for {})", time(runnable), time(unknown)),
        },
        threads.join(", ")
    )
}

fn object(known: &QueryContext, tids: &[u32], span: &Span) -> Value {
    json!({
        "id": span.id,
        "future": span.name,
        "pid": known.pid_of(span.process),
        "address": format!("{:#x}", span.address),
        "task": span.task.map(|task| format!("{task:#x}")),
        "parent": span.parent,
        "start_ns": known.since_start(span.start),
        "end_ns": known.since_start(span.end),
        "began_earlier": span.began_earlier,
        "end": span.how.name(),
        "polls": span.polls,
        "busy_ns": known.ns(span.busy),
        "max_poll_ns": known.ns(span.longest_poll),
        "idle_ns": known.ns(span.idle),
        "max_idle_ns": known.ns(span.longest_idle),
        "runnable_ns": known.ns(span.runnable),
        "unknown_idle_ns": known.ns(span.unknown),
        "threads": tids,
    })
}

/// Returns the value as a number, if it is one.
pub(crate) fn number(shown: &FormattedValue) -> Option<u64> {
    let from_hex = || u64::from_str_radix(shown.json.as_str()?.strip_prefix("0x")?, 16).ok();
    shown.json.as_u64().or_else(from_hex)
}

/// Decodes what an ended call of a function with `role` reports about a future.
pub(crate) fn seen(known: &QueryContext, ended: &EndedCall<'_>, role: u32) -> FutureEvent {
    let argument = |n: usize| ended.arguments.get(n).and_then(number);
    FutureEvent {
        process: known.process_of(ended.thread),
        thread: ended.thread,
        role,
        ticks: (ended.call.start, ended.call.end),
        depth: ended.call.depth,
        unwound: ended.call.ending == Ending::Left,
        before: [argument(0), argument(1)],
        after: ended.results.first().and_then(number),
        told: ended.results.get(1).and_then(number),
        caller: ended.call.caller,
    }
}

impl Question for Futures {
    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        let number = |role: &Role| self.joiner.role(role);
        let role = self.roles.entry(ended.function).or_insert_with(|| known.role(ended.function).map(number));
        let Some(role) = *role else { return };
        self.tids.entry(ended.thread).or_insert_with(|| known.tid(ended.thread));
        let [newest, joined] = &mut self.newest;
        *newest = (*newest).max(ended.call.end);
        self.joiner.seen(seen(known, ended, role));
        let Some(late) = self.late.map(|late| known.ticks(late)) else { return };
        if *newest - *joined > late / 2 {
            *joined = *newest;
            self.joiner.settle(newest.saturating_sub(late), &mut |span| self.made.push(span));
            let made = std::mem::take(&mut self.made);
            made.iter().for_each(|span| self.end(known, span));
        }
    }

    fn finish(&mut self, known: &QueryContext) {
        self.joiner.finish(&mut |span| self.made.push(span));
        let made = std::mem::take(&mut self.made);
        made.iter().for_each(|span| self.end(known, span));
    }

    fn text(&self, known: &QueryContext) -> String {
        let rows = self.all();
        let rows = rows.sorted();
        if rows.is_empty() {
            return "no polls\n".to_owned();
        }
        let time = |ticks| duration(known.ns(ticks));
        let has_raised = rows.iter().any(|row| row.ended(End::Raised) > 0);
        let cells = |row: &&FutureSums| {
            let mut cells = vec![
                count(row.futures),
                count(row.tasks),
                count(row.polls),
                count(row.ended(End::Ready)),
                count(row.ended(End::Dropped)),
                count(row.ended(End::Waiting)),
                time(row.busy),
                time(row.longest_poll),
                time(row.idle),
                time(row.longest_idle),
                match (row.runnable, row.unknown) {
                    (runnable, 0) => time(runnable),
                    (0, _) => "?".to_owned(),
                    (runnable, _) => format!(">{}", time(runnable)),
                },
            ];
            cells.extend(has_raised.then(|| count(row.ended(End::Raised))));
            cells.push(one_line(&row.name).into_owned());
            cells
        };
        let shown: Vec<Vec<String>> = rows.iter().take(self.limit.unwrap_or(usize::MAX)).map(cells).collect();
        let mut titles = TITLES.to_vec();
        titles.extend(has_raised.then_some("Raised"));
        titles.push("Future");
        let mut text = Vec::new();
        let leavable = LEAVABLE.map(|at| Leavable::usual(vec![at]));
        let fitting = Fitting { width: self.width, leavable: &leavable, flags: "--full-names" };
        let _ = columns::write_fitting(&mut text, &titles, titles.len() - 1, shown, fitting);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn json(&self, known: &QueryContext) -> Value {
        let row = |row: &&FutureSums| {
            json!({
                "future": row.name,
                "futures": row.futures,
                "tasks": row.tasks,
                "moved": row.moved,
                "polls": row.polls,
                "ready": row.ended(End::Ready),
                "dropped": row.ended(End::Dropped),
                "panicked": row.ended(End::Panicked),
                "raised": row.ended(End::Raised),
                "waiting": row.ended(End::Waiting),
                "unknown": row.ended(End::Unknown),
                "busy_ns": known.ns(row.busy),
                "max_poll_ns": known.ns(row.longest_poll),
                "idle_ns": known.ns(row.idle),
                "max_idle_ns": known.ns(row.longest_idle),
                "runnable_ns": known.ns(row.runnable),
                "unknown_idle_ns": known.ns(row.unknown),
                "max_life_ns": known.ns(row.longest_life),
            })
        };
        let rows = self.all();
        let rows = rows.sorted();
        let shown: Vec<Value> = rows.iter().take(self.limit.unwrap_or(usize::MAX)).map(row).collect();
        json!({ "futures": shown })
    }
}
