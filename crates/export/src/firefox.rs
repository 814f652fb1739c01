//! The Firefox Profiler's format: samples of call paths over time.
//!
//! The profiler keeps all samples in memory, and so does the crate that writes them, so that a
//! sample per call would be too many. The time of each thread is cut into slices; a sample is the
//! own time of a call path in a slice. Sums are exact; times are as fine as the slices, which are
//! longer where many paths occur in one, for about [`SAMPLES`] samples in all.

use crate::labels::command;
use crate::labels::pid_tid;
use crate::options::Options;
use calltap_analysis::paths::Paths;
use calltap_analysis::states::{State, states};
use calltap_analysis::{
    Call, Enter, Error, Names, Progress, Source, Totals, Visitor, incidents, run_by_thread,
    threads_with_events,
};
use calltap_trace::{Incident, RunState, SiteId, ThreadId};
use fxprof_processed_profile as fx;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// Approximate number of samples of all threads.
const SAMPLES: u64 = 1 << 18;
/// Maximum number of slices of a thread's time.
const SLICES: u64 = 4096;
/// Maximum number of call paths of a thread.
const PATHS: usize = 1 << 18;

/// Writes samples weighted with milliseconds, or with calls if nothing was timed.
pub fn firefox(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let threads = threads_with_events(source);
    let starts = threads.iter().filter_map(|&thread| source.thread_span(thread));
    let start = starts.map(|(first, _)| source.to_ns(first)).min().unwrap_or(0);
    let mut exporter = Exporter {
        source,
        names: Names::new(source.meta(), options.linker_names),
        profile: profile(source, start),
        processes: vec![None; source.meta().processes.len() + 1],
        start,
        share: (SAMPLES / (threads.len() as u64).max(1)).max(64),
        weights: Vec::new(),
        merged: 0,
        current: None,
        states: Vec::new(),
        left_out: 0,
        incidents: Vec::new(),
        incidents_left_out: 0,
    };
    for &thread in &threads {
        let mut all = source.incidents(thread)?.entries;
        // Times before the first event, at which the profile begins, would be negative.
        all.retain(|incident| source.to_ns(incident.at) >= start);
        exporter.incidents_left_out += all.len().saturating_sub(MARKERS) as u64;
        all.truncate(MARKERS);
        exporter.incidents.push((thread, all));
        exporter.states.push((thread, markers(source, thread)?));
    }
    let totals = run_by_thread(source, &mut exporter, progress)?;
    exporter.write(&totals, out)?;
    Ok(totals)
}

/// Makes an empty profile; `start` is the time of CLOCK_MONOTONIC at its zero.
fn profile(source: &dyn Source, start: u64) -> fx::Profile {
    let session = source.meta().session.as_ref();
    let since_epoch = session.map_or(0, |session| {
        session.start_realtime_ns.saturating_add(start.saturating_sub(session.start_monotonic_ns))
    });
    let moment = SystemTime::UNIX_EPOCH + Duration::from_nanos(since_epoch);
    let mut profile = fx::Profile::new(&command(source), moment.into(), fx::SamplingInterval::from_millis(1));
    profile.set_symbolicated(true);
    profile
}

struct Exporter<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    profile: fx::Profile,
    processes: Vec<Option<fx::ProcessHandle>>,
    start: u64,
    /// Approximate number of samples of a thread.
    share: u64,
    /// Ticks and calls of each sample. The crate's weights are 32-bit integers: they are indices
    /// into this list, and are replaced at the end.
    weights: Vec<(u64, u64)>,
    /// Number of calls on paths beyond the limit.
    merged: u64,
    current: Option<Thread>,
    /// Off-CPU intervals of the threads to come.
    states: Vec<(ThreadId, Markers)>,
    /// Number of intervals left out as too short.
    left_out: u64,
    /// Incidents of the threads to come.
    incidents: Vec<(ThreadId, Vec<Incident>)>,
    /// Number of incidents left out as too many.
    incidents_left_out: u64,
}

/// Intervals of a thread, and the number of those left out.
type Markers = (Vec<State>, u64);

/// Maximum number of markers of a thread.
const MARKERS: usize = 1 << 15;

/// Returns the longest intervals in which a thread did not run, in order.
fn markers(source: &dyn Source, thread: ThreadId) -> Result<Markers, Error> {
    let mut all = states(source, thread)?;
    all.retain(|state| !matches!(state.state, RunState::Running | RunState::Unknown));
    let number = all.len();
    if number > MARKERS {
        all.sort_by_key(|state| std::cmp::Reverse(state.to - state.from));
        all.truncate(MARKERS);
        all.sort_by_key(|state| state.from);
    }
    let left_out = (number - all.len()) as u64;
    Ok((all, left_out))
}

/// A marker for an interval in which a thread did not run.
struct Waited {
    name: fx::StringHandle,
}

impl fx::StaticSchemaMarker for Waited {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "calltap thread state";
    const DESCRIPTION: Option<&'static str> =
        Some("The thread had no processor (runnable), slept (blocked), or was held by calltap (tracing).");
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        fx::CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.name
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// A marker for an incident of a thread.
struct IncidentMarker {
    name: fx::StringHandle,
    text: fx::StringHandle,
}

impl fx::StaticSchemaMarker for IncidentMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "calltap incident";
    const DESCRIPTION: Option<&'static str> = Some("A page fault, a signal, or a move to another processor.");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[fx::StaticSchemaMarkerField {
        key: "text",
        label: "What",
        format: fx::MarkerFieldFormat::String,
        flags: fx::MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        fx::CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// The thread being read.
struct Thread {
    handle: fx::ThreadHandle,
    paths: Paths,
    /// Stack handle of each path in the profile, and its ticks and calls in the current slice.
    nodes: Vec<(Option<fx::StackHandle>, u64, u64)>,
    /// Paths that occur in the current slice.
    touched: Vec<u32>,
    /// Paths of the open calls.
    open: Vec<u32>,
    /// Ticks of the newest event, and the ends of the slice and of the thread.
    now: u64,
    slice: u64,
    end: u64,
    /// Length of the shortest slice.
    shortest: u64,
    /// Number of samples that remain for the thread.
    left: u64,
}

impl Thread {
    /// Adds the time up to `ticks` to the innermost call.
    #[inline]
    fn advance(&mut self, ticks: u64) {
        if let Some(&top) = self.open.last() {
            self.touch(top, ticks.saturating_sub(self.now), 0);
        }
        self.now = ticks;
    }

    #[inline]
    fn touch(&mut self, node: u32, ticks: u64, calls: u64) {
        let (_, spent, called) = &mut self.nodes[node as usize];
        if *spent == 0 && *called == 0 && ticks + calls > 0 {
            self.touched.push(node);
        }
        *spent += ticks;
        *called += calls;
    }

    fn call(&mut self, site: SiteId) -> Option<u32> {
        let top = self.open.last().copied().unwrap_or(0);
        let node = self.paths.child(top, site);
        self.nodes.resize(self.paths.nodes.len(), (None, 0, 0));
        node.inspect(|&node| self.touch(node, 0, 1))
    }
}

impl Visitor for Exporter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        let current = self.at(thread, enter.ticks);
        let node = current.call(enter.site);
        let top = current.open.last().copied().unwrap_or(0);
        current.open.push(node.unwrap_or(top));
        self.merged += u64::from(node.is_none());
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.at(thread, call.end).open.pop();
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let node = self.at(thread, enter.ticks).call(enter.site);
        self.merged += u64::from(node.is_none());
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        if let Some(mut current) = self.current.take() {
            self.flush(&mut current);
        }
        Ok(())
    }
}

impl Exporter<'_> {
    /// Advances the thread to `ticks`, begins it if necessary, and begins a new slice at the end of
    /// one.
    #[inline]
    fn at(&mut self, thread: ThreadId, ticks: u64) -> &mut Thread {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin(thread, ticks),
        };
        current.advance(ticks);
        if ticks >= current.slice {
            self.flush(&mut current);
        }
        self.current.insert(current)
    }

    #[cold]
    fn begin(&mut self, thread: ThreadId, ticks: u64) -> Thread {
        let meta = self.source.meta();
        let index = meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process as usize);
        let described = meta.processes.get(index);
        let at = self.time(ticks);
        let (profile, slot) = (&mut self.profile, index.min(self.processes.len() - 1));
        let (name, pid) = described.map_or(("", 0), |process| (process.comm.as_str(), process.pid));
        let process = *self.processes[slot].get_or_insert_with(|| profile.add_process(name, pid, at));
        let tid = pid_tid(self.source, thread).1;
        let handle = profile.add_thread(process, tid, at, tid == pid);
        profile.set_thread_name(handle, &self.names.title(thread));
        self.add_markers(thread, handle);
        let (first, end) = self.source.thread_span(thread).unwrap_or((ticks, ticks));
        let shortest = (end - first) / SLICES + 1;
        Thread {
            handle,
            paths: Paths::new(PATHS),
            nodes: vec![(None, 0, 0)],
            touched: Vec::new(),
            open: Vec::new(),
            now: ticks,
            slice: ticks.saturating_add(shortest),
            end,
            shortest,
            left: self.share,
        }
    }

    fn add_markers(&mut self, thread: ThreadId, handle: fx::ThreadHandle) {
        let Some(at) = self.states.iter().position(|(own, _)| *own == thread) else { return };
        let (_, (states, left_out)) = self.states.swap_remove(at);
        self.left_out += left_out;
        let marks = self.incidents.iter().position(|(own, _)| *own == thread);
        for Incident { at, what } in marks.map(|at| self.incidents.swap_remove(at).1).unwrap_or_default() {
            let at = self.time(at);
            let name = self.profile.intern_string(what.name());
            let text = self.profile.intern_string(&incidents::text(&what));
            self.profile.add_marker(handle, fx::MarkerTiming::Instant(at), IncidentMarker { name, text });
        }
        for State { from, to, state } in states {
            let timing = fx::MarkerTiming::Interval(self.time(from), self.time(to));
            let name = self.profile.intern_string(state.name());
            self.profile.add_marker(handle, timing, Waited { name });
        }
    }

    fn time(&self, ticks: u64) -> fx::Timestamp {
        fx::Timestamp::from_nanos_since_reference(self.source.to_ns(ticks).saturating_sub(self.start))
    }

    /// Writes a sample for each path of the slice, and begins the next slice.
    fn flush(&mut self, thread: &mut Thread) {
        let (now, before) = (self.time(thread.now), self.weights.len() as u64);
        for node in std::mem::take(&mut thread.touched) {
            let stack = self.stack(thread, node);
            let (_, ticks, calls) = &mut thread.nodes[node as usize];
            let place = self.weights.len() as i32;
            self.weights.push((std::mem::take(ticks), std::mem::take(calls)));
            self.profile.add_sample(thread.handle, now, stack, fx::CpuDelta::ZERO, place);
        }
        self.profile.set_thread_end_time(thread.handle, now);
        // The remaining samples reach to the end of the thread if all slices have as many as this
        // one.
        let samples = self.weights.len() as u64 - before;
        thread.left = thread.left.saturating_sub(samples);
        let rest = u128::from(thread.end.saturating_sub(thread.now));
        let length = rest * u128::from(samples) / u128::from(thread.left.max(1));
        let length = u64::try_from(length).unwrap_or(u64::MAX).max(thread.shortest);
        thread.slice = thread.now.saturating_add(length);
    }

    /// Returns the stack handle of a path in the profile.
    fn stack(&mut self, thread: &mut Thread, node: u32) -> Option<fx::StackHandle> {
        let mut missing = Vec::new();
        let (mut at, mut parent) = (node, None);
        while at != 0 && parent.is_none() {
            parent = thread.nodes[at as usize].0;
            if parent.is_none() {
                missing.push(at);
                at = thread.paths.nodes[at as usize].parent;
            }
        }
        for node in missing.into_iter().rev() {
            let name = match thread.paths.of(node) {
                calltap_analysis::paths::Of::Site(site) => self.names.function(site),
                _ => "",
            };
            let frame = fx::FrameInfo {
                frame: fx::Frame::Label(self.profile.intern_string(name)),
                category_pair: fx::CategoryHandle::OTHER.into(),
                flags: fx::FrameFlags::empty(),
            };
            let frame = self.profile.intern_frame(thread.handle, frame);
            let stack = self.profile.intern_stack(thread.handle, parent, frame);
            thread.nodes[node as usize].0 = Some(stack);
            parent = Some(stack);
        }
        parent
    }

    fn write(self, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
        let timed = self.source.has_time() && self.weights.iter().any(|&(ticks, _)| ticks > 0);
        let mut profile = serde_json::to_value(&self.profile)?;
        // The profiler shows these notes with the profile's other data.
        let mut notes: Vec<String> = calltap_analysis::head::head_of_paths(self.source, totals)
            .lines()
            .map(|line| line.replace("# ", ""))
            .collect();
        if self.merged > 0 {
            notes.push(format!("{} calls by further paths are part of their callers", self.merged));
        }
        if self.left_out > 0 {
            notes.push(format!("{} times when threads did not run are too short for markers", self.left_out));
        }
        if self.incidents_left_out > 0 {
            let left_out = self.incidents_left_out;
            notes.push(format!("{left_out} page faults, signals and moves are too many for markers"));
        }
        let entries =
            notes.iter().map(|note| json!({ "label": "calltap", "format": "string", "value": note }));
        let entries: Vec<Value> = entries.collect();
        profile["meta"]["extra"] = json!([{ "label": "Recording", "entries": entries }]);
        let threads = profile["threads"].as_array_mut().into_iter().flatten();
        // Rounded values would add up to an error, as there are many samples.
        let ms_per_tick = self.source.duration_ns(1 << 32) as f64 / (1u64 << 32) as f64 / 1e6;
        for samples in threads.map(|thread| &mut thread["samples"]) {
            // The profiler would show a processor time that is always 0 as idleness.
            samples.as_object_mut().and_then(|samples| samples.remove("threadCPUDelta"));
            samples["weightType"] = if timed { "tracing-ms".into() } else { "samples".into() };
            for weight in samples["weight"].as_array_mut().into_iter().flatten() {
                let place = weight.as_u64().and_then(|place| self.weights.get(place as usize));
                let &(ticks, calls) = place.unwrap_or(&(0, 0));
                *weight = if timed { (ticks as f64 * ms_per_tick).into() } else { calls.into() };
            }
        }
        serde_json::to_writer(&mut *out, &profile)?;
        writeln!(out)
    }
}
