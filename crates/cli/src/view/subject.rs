//! What the page shows: a file, or a process.

use super::api::{self, Query, Refusal};
use crate::seen::Seen;
use crate::top::switches::State;
use calltap_analysis::explore::Explorer;
use calltap_analysis::units::one_line;
use calltap_trace::TraceReader;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// What questions are answered from.
pub trait Subject: Sync {
    /// Answers what is asked of recorded calls.
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal>;

    /// What there is to say of a process that runs, if it is one.
    fn live(&self) -> Option<Value>;

    /// Switches a function of the process.
    fn switch(&self, query: &Query<'_>) -> Result<Value, Refusal>;
}

/// Answers a question.
pub fn answer(subject: &dyn Subject, name: &str, query: &str, post: bool) -> Result<String, Refusal> {
    let query = Query(query);
    match (name, post) {
        ("switch", true) => subject.switch(&query).map(|value| value.to_string()),
        ("switch", false) | (_, true) => Err(Refusal::new(405, "not in this way")),
        ("live", _) => Ok(subject.live().unwrap_or(Value::Null).to_string()),
        _ => subject.ask(name, &query),
    }
}

/// A trace file.
pub struct File {
    /// Its content.
    pub explorer: Explorer<TraceReader>,
    /// Where it is.
    pub path: PathBuf,
}

impl Subject for File {
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal> {
        let title = self.path.display().to_string();
        api::explore(&self.explorer, &title, name, query)
    }

    fn live(&self) -> Option<Value> {
        None
    }

    fn switch(&self, _: &Query<'_>) -> Result<Value, Refusal> {
        Err(Refusal::new(409, "a recording has nothing to switch"))
    }
}

/// A process that is watched.
pub struct Process<'a> {
    /// What was seen of it.
    pub seen: &'a Seen,
    /// It is watched no more.
    pub ended: &'a AtomicBool,
    /// Its id.
    pub pid: u32,
}

impl Subject for Process<'_> {
    fn ask(&self, name: &str, query: &Query<'_>) -> Result<String, Refusal> {
        let explorer = self
            .seen
            .explorer(query.is_set("fresh"))
            .map_err(|error| Refusal::new(500, &error.to_string()))?;
        let title = format!("{} ({})", one_line(&self.seen.switches.status().name), self.pid);
        api::explore(&explorer, &title, name, query)
    }

    fn live(&self) -> Option<Value> {
        let (switches, status) = (&self.seen.switches, self.seen.switches.status());
        let interval = self.seen.interval().unwrap_or_default();
        let row = |row: &calltap_analysis::live::Row| {
            let f = row.sites.first().map_or(0, |site| site.0);
            let state = match switches.state(row) {
                State::On => "on",
                State::Off => "off",
                State::OverLimit => "governed",
            };
            let (rate, share) = (interval.rate(row.calls), interval.percent(row.total_ns));
            json!([f, row.function, row.module, rate, row.avg_ns, row.max_ns, share, state])
        };
        Some(json!({
            "number": self.seen.intervals(),
            "ended": self.ended.load(Acquire),
            "events": interval.rate(interval.events),
            "lost": interval.lost,
            "on": status.functions.0,
            "known": status.functions.1,
            "cost": status.cost,
            "rows": interval.rows.iter().map(row).collect::<Vec<_>>(),
        }))
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
