//! The subject of a page: a trace file, one process, or several.

use super::api::{self, Query, Refusal};
use super::compare::Compared;
use crate::observed::ObservedProcess;
use crate::top::switches::State;
use calltap_analysis::explore::Explorer;
use calltap_analysis::units::one_line;
use calltap_trace::TraceReader;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// The subject of a page, which answers the page's questions.
pub trait Subject: Sync {
    /// Answers a question about recorded calls.
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal>;

    /// Returns how far the events are read, while some are not read yet.
    fn progress(&self) -> Option<Value>;

    /// Returns the name of the trace that this one is compared with, if there is one.
    fn base(&self) -> Option<Value> {
        None
    }

    /// Returns id and name of each process, if there are several; `process=` names one of them.
    fn processes(&self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// Returns the present state of a running process; `None` for other subjects.
    fn live(&self, query: &Query<'_>) -> Result<Option<Value>, Refusal>;

    /// Switches a function of the process.
    fn switch(&self, query: &Query<'_>) -> Result<Value, Refusal>;
}

/// Answers a question of any kind. `post`: the request's method is POST.
pub fn answer(subject: &dyn Subject, name: &str, query: &str, post: bool) -> Result<String, Refusal> {
    let query = Query(query);
    match (name, post) {
        ("switch", true) => subject.switch(&query).map(|value| value.to_string()),
        ("switch", false) | (_, true) => Err(Refusal::new(405, "not in this way")),
        ("progress", _) => Ok(subject.progress().unwrap_or(Value::Null).to_string()),
        ("processes", _) => Ok(json!(subject.processes()).to_string()),
        ("base", _) => Ok(subject.base().unwrap_or(Value::Null).to_string()),
        ("live", _) => subject.live(&query).map(|live| live.unwrap_or(Value::Null).to_string()),
        _ => subject.ask(name, &query),
    }
}

/// A trace file. Its page is served while its events are being read; until they are, questions
/// about them are refused.
pub struct File {
    read: OnceLock<(Explorer<TraceReader>, Option<Compared>)>,
    path: PathBuf,
    events: u64,
    /// Number of events read so far.
    done: AtomicU64,
}

impl File {
    /// Returns a file that has, with its base, `events` events, none of which is read yet.
    pub fn new(path: PathBuf, events: u64) -> File {
        File { read: OnceLock::new(), path, events, done: AtomicU64::new(0) }
    }

    /// Sets the number of events read so far.
    pub fn has_read(&self, events: u64) {
        self.done.store(events, Relaxed);
    }

    /// Sets the calls, once all events are read.
    pub fn complete(&self, explorer: Explorer<TraceReader>, base: Option<Compared>) {
        // The cell is set only once.
        let _ = self.read.set((explorer, base));
    }

    /// Whether all events are read.
    pub fn is_read(&self) -> bool {
        self.read.get().is_some()
    }
}

impl Subject for File {
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal> {
        let Some((explorer, base)) = self.read.get() else {
            return Err(Refusal::new(
                503,
                "the events of the trace are not all read yet: ask for 'progress'",
            ));
        };
        match base {
            Some(base) if name == "compare" => base.flame(explorer, query).map(|flame| flame.to_string()),
            _ => api::explore(explorer, &self.path.display().to_string(), name, query),
        }
    }

    fn base(&self) -> Option<Value> {
        let (explorer, base) = self.read.get()?;
        Some(base.as_ref()?.describe(explorer))
    }

    fn progress(&self) -> Option<Value> {
        let (title, done) = (self.path.display().to_string(), self.done.load(Relaxed));
        (!self.is_read()).then(|| json!({ "title": title, "done": done, "events": self.events }))
    }

    fn live(&self, _: &Query<'_>) -> Result<Option<Value>, Refusal> {
        Ok(None)
    }

    fn switch(&self, _: &Query<'_>) -> Result<Value, Refusal> {
        Err(Refusal::new(409, "functions of a recording cannot be disabled or enabled"))
    }
}

/// A watched process.
pub struct Process {
    /// The observed calls and state.
    pub seen: ObservedProcess,
    /// Whether the process is no longer watched.
    pub ended: AtomicBool,
    /// Process id.
    pub pid: u32,
}

impl Subject for Process {
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal> {
        let explorer = self
            .seen
            .explorer(query.is_set("fresh"))
            .map_err(|error| Refusal::new(500, &error.to_string()))?;
        let title = format!("{} ({})", one_line(&self.seen.switches.status().name), self.pid);
        api::explore(&explorer, &title, name, query)
    }

    fn progress(&self) -> Option<Value> {
        None
    }

    fn live(&self, _: &Query<'_>) -> Result<Option<Value>, Refusal> {
        let (switches, status) = (&self.seen.switches, self.seen.switches.status());
        let interval = self.seen.interval().unwrap_or_default();
        let row = |row: &calltap_analysis::intervals::FunctionCalls| {
            let f = row.sites.first().map_or(0, |site| site.0);
            let state = match switches.state(row) {
                State::On => "on",
                State::Off => "off",
                State::DisabledByLimit => "governed",
            };
            let (rate, share) = (interval.rate(row.calls), interval.percent(row.total_ns));
            let of_ended = |ns: u64| (row.ended > 0).then_some(ns);
            let (avg, max) = (of_ended(row.avg_ns), of_ended(row.max_ns));
            json!([f, row.function, row.module, rate, avg, max, share, state, row.is_partial])
        };
        Ok(Some(json!({
            "number": self.seen.intervals(),
            "ended": self.ended.load(Acquire),
            "events": interval.rate(interval.events),
            "lost": interval.lost,
            "on": status.functions.0,
            "known": status.functions.1,
            "cost": status.cost,
            "rows": interval.rows.iter().map(row).collect::<Vec<_>>(),
        })))
    }

    fn switch(&self, query: &Query<'_>) -> Result<Value, Refusal> {
        if self.ended.load(Acquire) {
            return Err(Refusal::new(409, "the process is watched no more"));
        }
        let (f, on) = (query.number::<u32>("f")?, query.is_set("on"));
        let interval = self.seen.interval().unwrap_or_default();
        let row = interval.rows.iter().find(|row| row.sites.iter().any(|site| site.0 == f));
        let row = row.ok_or_else(|| Refusal::new(404, "no such function was called"))?;
        self.seen.switches.switch(&row.sites, on);
        Ok(json!({ "on": on }))
    }
}

/// Several processes, of which each question names one.
impl Subject for Vec<Process> {
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal> {
        one(self, query)?.ask(name, query)
    }

    fn progress(&self) -> Option<Value> {
        None
    }

    fn processes(&self) -> Vec<(u32, String)> {
        let name = |process: &Process| one_line(&process.seen.switches.status().name).into_owned();
        self.iter().map(|process| (process.pid, name(process))).collect()
    }

    fn live(&self, query: &Query<'_>) -> Result<Option<Value>, Refusal> {
        one(self, query)?.live(query)
    }

    fn switch(&self, query: &Query<'_>) -> Result<Value, Refusal> {
        one(self, query)?.switch(query)
    }
}

/// Returns the process that a question names, or else the first.
fn one<'a>(all: &'a [Process], query: &Query<'_>) -> Result<&'a Process, Refusal> {
    let found = match query.number::<u32>("process") {
        Ok(pid) => all.iter().find(|process| process.pid == pid),
        Err(_) => all.first(),
    };
    found.ok_or_else(|| Refusal::new(404, "no such process is watched"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partly_read_file_answers_progress_only() {
        let file = File::new("big.data".into(), 1000);
        file.has_read(250);
        for name in ["summary", "functions", "timeline", "overview", "flame", "nothing"] {
            let refusal = answer(&file, name, "from=0&to=1", false).expect_err("no answer");
            assert_eq!(refusal.code, 503, "{name}: {}", refusal.why);
        }
        let progress = answer(&file, "progress", "", false).unwrap_or_default();
        assert_eq!(progress, r#"{"done":250,"events":1000,"title":"big.data"}"#);
        assert_eq!(answer(&file, "live", "", false).unwrap_or_default(), "null");
        assert_eq!(answer(&file, "switch", "f=0&on=1", true).err().map(|refusal| refusal.code), Some(409));
    }
}
