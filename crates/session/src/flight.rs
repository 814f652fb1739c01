//! `record --snapshot-on`: a flight recorder, which writes nothing until a trigger fires, and then
//! the last seconds of all threads.
//!
//! The rings are read as for any recording, and the recorder keeps the newest events in its own
//! memory. They are compressed there, so that many more fit than in the rings. Every event, not
//! only those still in the rings, shows whether a call was slow; the governor knows the most
//! frequent functions; and taking a snapshot neither stops the process nor disables anything.

use crate::error::Error;
use crate::options::{Flight, Options, Trigger};
use crate::outcome::Outcome;
use crate::progress::ProgressReporter;
use crate::watch::{Watch, watch};
use calltap_collect::collector::Due;
use calltap_collect::kept::chosen::Chosen;
use calltap_collect::output::Consumer;
use calltap_collect::trace_file::TraceFile;
use calltap_names::{Word, demangle};
use calltap_process::clock;
use calltap_process::launch;
use calltap_trace::{
    Batch, Calls, ClockPair, End, Event, EventKind, History, Record, Session, Site, SiteId, Switch,
    ThreadEncoder, ThreadId, uses,
};
use nix::sys::resource::UsageWho;
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// How often old events are dropped, and open calls checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The reason for the next snapshot, until it is written.
#[derive(Default)]
struct PendingSnapshot {
    why: Mutex<Option<String>>,
    due: Due,
}

impl PendingSnapshot {
    /// Requests a snapshot. Of several reasons, the first is reported.
    fn ask(&self, why: String) {
        if let Ok(mut asked) = self.why.lock() {
            asked.get_or_insert(why);
        }
        self.due.ask();
    }

    fn take(&self) -> Option<String> {
        self.why.lock().ok()?.take()
    }
}

/// The record of an open call of a function that has a rule.
struct Mark {
    start: u64,
    /// Duration limit, nanoseconds.
    limit: u64,
    /// Whether it has requested a snapshot.
    reported: bool,
}

/// The open calls of a thread.
#[derive(Default)]
struct OpenCalls {
    calls: Calls<Option<Mark>>,
}

impl OpenCalls {
    /// Takes an event. Returns a call that ended with it and was too slow, with its duration in
    /// ticks.
    fn take(
        &mut self,
        event: &Event,
        limit: Option<u64>,
        is_slow: &dyn Fn(u64, u64) -> bool,
    ) -> Option<(SiteId, u64)> {
        if let Some(tail) = event.kind.enters() {
            let mark = limit.map(|limit| Mark { start: event.ticks, limit, reported: false });
            self.calls.enter(event.site, tail, mark);
            return None;
        }
        if event.kind == EventKind::Resumed {
            self.calls.resume(event.site, None);
            return None;
        }
        let closing = self.calls.end(event)?;
        let mut slow = None;
        while let Some((call, ending)) = self.calls.close(&closing) {
            let Some(mark) = call.data.filter(|mark| !mark.reported && !ending.is_cut()) else { continue };
            let took = event.ticks.saturating_sub(mark.start);
            if is_slow(took, mark.limit) {
                slow = Some((call.site, took));
            }
        }
        slow
    }
}

/// Keeps the newest events, and writes them on a trigger.
struct Recorder<'a> {
    flight: &'a Flight,
    output: &'a Path,
    asked: &'a PendingSnapshot,
    /// The events, from the session record on.
    history: Option<History>,
    began_ns: u64,
    names: HashMap<SiteId, String>,
    /// Duration limits, nanoseconds.
    limits: Chosen<u64>,
    /// Functions whose calls request a snapshot, as indices into `calls`.
    called: Chosen<usize>,
    /// Remaining number of calls that request one, for each function. None means all.
    calls: Vec<Option<i64>>,
    lanes: HashMap<ThreadId, OpenCalls>,
    first: Option<ClockPair>,
    ns_per_tick: f64,
    /// Time until which events were handed over, in ticks.
    at: u64,
    /// When the first call began that has requested the pending snapshot, in ticks.
    since: Option<u64>,
    files: Vec<PathBuf>,
    bytes: u64,
    left_out: u64,
    /// Error of the first snapshot that could not be written.
    failed: Option<calltap_trace::Error>,
}

impl<'a> Recorder<'a> {
    fn new(flight: &'a Flight, output: &'a Path, asked: &'a PendingSnapshot) -> Recorder<'a> {
        let rule = |trigger: &Trigger| match trigger {
            Trigger::Slow(rule) => Some((Word::new(&rule.function), rule.ns)),
            _ => None,
        };
        let call = |trigger: &Trigger| match trigger {
            Trigger::Called { function, count } => Some((Word::new(function), *count)),
            _ => None,
        };
        let (functions, calls): (Vec<Word>, Vec<Option<i64>>) = flight.on.iter().filter_map(call).unzip();
        Recorder {
            called: Chosen::new(functions.into_iter().enumerate().map(|(place, word)| (word, place))),
            calls,
            flight,
            output,
            asked,
            history: None,
            began_ns: clock::monotonic_ns(),
            names: HashMap::new(),
            limits: Chosen::new(flight.on.iter().filter_map(rule)),
            lanes: HashMap::new(),
            first: None,
            ns_per_tick: 1.0,
            at: 0,
            since: None,
            files: Vec::new(),
            bytes: 0,
            left_out: 0,
            failed: None,
        }
    }

    fn now(&mut self, pair: ClockPair) {
        let first = *self.first.get_or_insert(pair);
        let (ticks, ns) =
            (pair.ticks.saturating_sub(first.ticks), pair.monotonic_ns.saturating_sub(first.monotonic_ns));
        if ticks > 0 {
            self.ns_per_tick = ns as f64 / ticks as f64;
        }
    }

    /// Writes a snapshot, unless the maximum number of files is written.
    fn snapshot(&mut self, why: String) {
        self.forget(Duration::ZERO);
        self.since = None;
        let Some(history) = &self.history else { return };
        if self.files.len() as u64 >= u64::from(self.flight.files) {
            self.left_out += 1;
            return;
        }
        let mut name = self.output.as_os_str().to_owned();
        name.push(format!(".{}", self.files.len() + 1));
        let path = PathBuf::from(name);
        let file = match TraceFile::create(&path) {
            Ok(file) => file,
            Err(error) => {
                self.failed.get_or_insert(error);
                return;
            }
        };
        let end = End {
            status: why,
            wall_ns: clock::monotonic_ns().saturating_sub(self.began_ns),
            cpu_ns: 0,
            recorder_cpu_ns: launch::cpu_ns(UsageWho::RUSAGE_SELF),
        };
        match history.write(file.path(), end) {
            Ok(size) => {
                file.keep();
                self.bytes += size;
                self.files.push(path);
            }
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }

    /// Forgets what is older than the period to keep, and than `more`. The period ends where the
    /// call begins that requests a snapshot.
    fn forget(&mut self, more: Duration) {
        let age = (self.flight.last + more).as_nanos() as f64 / self.ns_per_tick;
        let end = self.since.map_or(self.at, |since| since.min(self.at));
        self.history.iter_mut().for_each(|history| history.forget_before(end.saturating_sub(age as u64)));
    }

    /// Returns how long after its begin a call may request a snapshot.
    fn delay(&self) -> Duration {
        let limit = |trigger: &Trigger| match trigger {
            Trigger::Slow(rule) => Some(Duration::from_nanos(rule.ns)),
            _ => None,
        };
        2 * LOOK_INTERVAL + self.flight.on.iter().filter_map(limit).max().unwrap_or_default()
    }

    fn check_triggers(&mut self, batch: &Batch) {
        let (limits, called, calls) = (&self.limits, &self.called, &mut self.calls);
        let (per_tick, mut since) = (self.ns_per_tick, self.since);
        let mut begins = |at: u64| since = Some(since.map_or(at, |since| since.min(at)));
        let lane = self.lanes.entry(batch.thread).or_default();
        let is_slow = |ticks: u64, limit: u64| ticks as f64 * per_tick > limit as f64;
        for event in &batch.events {
            if let Some(call) = called.of(event.site).filter(|_| event.kind.begins_call())
                && uses(&mut calls[call])
            {
                let name = self.names.get(&event.site).map_or("?", String::as_str);
                begins(event.ticks);
                self.asked.ask(format!("snapshot: {name} was called"));
            }
            if let Some((site, ticks)) = lane.take(event, limits.of(event.site), &is_slow) {
                let name = self.names.get(&site).map_or("?", String::as_str);
                begins(event.ticks.saturating_sub(ticks));
                self.asked.ask(format!("snapshot: {name} took {:.3} ms", ticks as f64 * per_tick / 1e6));
            }
        }
        self.since = since;
    }

    /// Requests a snapshot for each open call that has taken too long already.
    fn look_at_open(&mut self, now: u64) {
        for lane in self.lanes.values_mut() {
            // A call that may have ended already is not reported as running.
            for call in lane.calls.open_mut().iter_mut().filter(|call| call.cut.is_none()) {
                let Some(mark) = call.data.as_mut().filter(|mark| !mark.reported) else { continue };
                let ns = now.saturating_sub(mark.start) as f64 * self.ns_per_tick;
                // Most calls end within this margin, and are then in the snapshot as a whole.
                if ns > mark.limit as f64 + LOOK_INTERVAL.as_nanos() as f64 {
                    mark.reported = true;
                    self.since = Some(self.since.map_or(mark.start, |since| since.min(mark.start)));
                    let name = self.names.get(&call.site).map_or("?", String::as_str);
                    self.asked.ask(format!("snapshot: {name} has been running for {:.3} ms", ns / 1e6));
                }
            }
        }
    }
}

impl Consumer for Recorder<'_> {
    fn record(&mut self, record: &Record) -> Result<(), calltap_trace::Error> {
        self.limits.record(record);
        self.called.record(record);
        match record {
            Record::Session(session) => {
                let session: Session = session.clone();
                self.history = Some(History::new(session, self.flight.memory)?);
            }
            Record::Clock(pair) => self.now(*pair),
            Record::Sites { sites } => {
                let is_named =
                    |site: &&Site| self.limits.of(site.id).is_some() || self.called.of(site.id).is_some();
                self.names.extend(sites.iter().filter(is_named).map(|site| (site.id, demangle(&site.name))));
            }
            _ => {}
        }
        self.history.iter_mut().for_each(|history| history.record(record));
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), calltap_trace::Error> {
        let Some(mut history) = self.history.take() else { return Ok(()) };
        let watches = !self.limits.is_empty() || !self.called.is_empty();
        let taken = history.events(encoder, &mut |batch| {
            if watches {
                self.check_triggers(batch);
            }
        });
        self.history = Some(history);
        taken
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), calltap_trace::Error> {
        self.lanes.remove(&thread);
        self.history.iter_mut().for_each(|history| history.end(thread));
        Ok(())
    }

    fn switches(
        &mut self,
        thread: ThreadId,
        switches: &[Switch],
        until: u64,
    ) -> Result<(), calltap_trace::Error> {
        self.history.iter_mut().try_for_each(|history| history.switches(thread, switches, until))
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), calltap_trace::Error> {
        self.now(at);
        self.look_at_open(at.ticks);
        self.history.iter_mut().try_for_each(History::flush)?;
        self.at = at.ticks;
        self.forget(self.delay());
        if let Some(why) = self.asked.take() {
            self.snapshot(why);
        }
        Ok(())
    }
}

/// Records a subject and writes a file for each trigger.
pub(crate) fn record(options: &Options, flight: &Flight) -> Result<Outcome, Error> {
    let asked = PendingSnapshot::default();
    let sent = launch::flag_for_snapshots(flight.on.contains(&Trigger::Signal))?;
    let mut recorder = Recorder::new(flight, &options.output, &asked);
    let mut progress = ProgressReporter::new(&options.subject, options.reports.recording);
    let mut outcome = watch(
        options,
        Watch {
            consumer: &mut recorder,
            interval: LOOK_INTERVAL,
            settled: true,
            over: &|| false,
            meanwhile: &mut |controls| {
                progress.report(controls.calls());
                if sent.swap(false, AcqRel) {
                    asked.ask("snapshot: requested by SIGUSR1".to_owned());
                }
            },
            mailbox: None,
            due: Some(&asked.due),
        },
    )?;
    // The last request may not have been written yet.
    let why = asked.take().or_else(|| {
        let on = |trigger| flight.on.contains(&trigger);
        let crashed = outcome.status.is_some_and(|status| status.signal().is_some());
        let ended = outcome.ended && (on(Trigger::Exit) || crashed && on(Trigger::Crash));
        ended.then(|| outcome.status.map_or_else(|| "ended".to_owned(), launch::describe))
    });
    why.into_iter().for_each(|why| recorder.snapshot(why));
    let Recorder { files, bytes, left_out, failed, .. } = recorder;
    if left_out > 0 {
        let more = format!("{left_out} more snapshots were not written: --snapshots allows {}", flight.files);
        outcome.notes.push(more);
    }
    outcome.failed = outcome.failed.or(failed);
    Ok(Outcome {
        session: outcome,
        dropped: 0,
        file: options.output.clone(),
        file_size: bytes,
        snapshots: Some(files),
    })
}
