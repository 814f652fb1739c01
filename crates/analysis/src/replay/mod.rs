//! Prints the events of a trace one by one, as ftrace does, or as JSON objects.
//!
//! The function_graph layout has the thread (`comm-tid`) where the kernel has the processor; the
//! function layout is `comm-tid  time: function <-caller`. Threads are merged by time, with a
//! banner at every change.

mod function_text;
mod graph_text;
mod json_text;
mod merge;
mod spent;
mod waits;

use crate::error::Error;
use crate::head::left_out;
use crate::head::{clock, damage, forked, part};
use crate::names::Names;
use crate::sources::drive::{Progress, checked_site, tell};
use crate::sources::source::Source;
use crate::stamp::Stamp;
use crate::tree::{Call, Ending, Enter, Stack, Totals, Visitor};
use calltap_trace::{Event, EventKind, Meta, SiteId, ThreadId, TracerKind};
use function_text::FunctionText;
use graph_text::{EventDetails, GraphText};
use json_text::JsonText;
use merge::{Merge, Next};
use spent::{Rules, Spent};
use std::collections::BTreeMap;
use std::io::Write;
use waits::{Wait, Waits};

/// Scope and form of the replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The threads shown; empty: all, merged by time.
    pub threads: Vec<ThreadId>,
    /// Layout of the lines.
    pub layout: Layout,
    /// Whether closing braces are followed by the function's name.
    pub tail: bool,
    /// Form of the time that begins every line of the graph layout, if any. The function layout
    /// defaults to seconds of CLOCK_MONOTONIC.
    pub time: Option<Stamp>,
    /// Whether intervals in which threads did not run are left out.
    pub no_sched: bool,
    /// Whether they are shown within calls alone, as the source has chosen calls.
    pub within_calls: bool,
    /// Whether the header is left out.
    pub no_header: bool,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether names are shortened to what distinguishes them.
    pub short_names: bool,
    /// Whether names in text have the colours of their modules, for a terminal.
    pub colour: bool,
    /// Characters of a line: names of the graph layout that are longer are fitted. None: no limit.
    pub width: Option<usize>,
    /// Returns the source line of a function, which the graph layout shows behind each call.
    pub source_line: Option<SourceLine>,
}

/// Returns the source line of a function of a trace, as text. `None`: unknown.
pub type SourceLine = fn(&Meta, SiteId) -> Option<String>;

/// Layout of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// The function layout if only `function` tracers recorded, else the graph layout.
    #[default]
    Auto,
    /// The layout of the kernel's function_graph tracer.
    Graph,
    /// The layout of the kernel's function tracer.
    Function,
    /// A JSON object for each event.
    Json,
}

/// The printable effects of an event.
pub(crate) enum Effect {
    Enter(Enter),
    Close(Closed),
    Mark(Enter),
    Lost { entries: u32, exits: u32 },
    Orphan { site: SiteId, depth: u32 },
}

/// The printed fields of a call that ended, as in [`Call`].
pub(crate) struct Closed {
    site: SiteId,
    end: u64,
    total: u64,
    self_ticks: u64,
    depth: u32,
    ending: Ending,
}

/// Collects the effects of one event.
#[derive(Default)]
struct Effects(Vec<Effect>);

impl Visitor for Effects {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.0.push(Effect::Enter(*enter));
    }

    fn close(&mut self, _: ThreadId, call: &Call) {
        let Call { site, end, total, self_ticks, depth, ending, .. } = *call;
        self.0.push(Effect::Close(Closed { site, end, total, self_ticks, depth, ending }));
    }

    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        self.0.push(Effect::Mark(*enter));
    }

    fn lost(&mut self, _: ThreadId, _: u64, entries: u32, exits: u32) {
        self.0.push(Effect::Lost { entries, exits });
    }

    fn orphan(&mut self, _: ThreadId, site: SiteId, _: u64, depth: u32) {
        self.0.push(Effect::Orphan { site, depth });
    }
}

/// The state of a thread during the replay.
#[derive(Default)]
struct Replayed {
    stack: Stack,
    /// Whether the innermost call was printed as a leaf, so that its end needs no line.
    leaf: bool,
    spent: Spent,
    waits: Waits,
}

impl Replayed {
    fn new(source: &dyn Source, options: &Options, thread: ThreadId) -> Result<Replayed, Error> {
        let waits = || Waits::of(source, thread, options.within_calls);
        let waits = if options.no_sched { Waits::default() } else { waits()? };
        Ok(Replayed { waits, ..Replayed::default() })
    }
}

enum Text<'a> {
    Graph(GraphText<'a>),
    Function(FunctionText<'a>),
    Json(JsonText<'a>),
}

/// Properties of the recording that all lines depend on.
struct Recording<'a> {
    source: &'a dyn Source,
    rules: Option<Rules>,
    /// Number of described sites.
    sites: u32,
}

impl<'a> Text<'a> {
    /// Makes the text of a source, in the layout that the options name.
    fn new(source: &'a dyn Source, names: &'a Names<'a>, options: &Options) -> Text<'a> {
        match layout(source, options.layout) {
            Layout::Function => Text::Function(FunctionText::new(source, names, options.time)),
            Layout::Json => Text::Json(JsonText::new(source, names, options.source_line)),
            _ => Text::Graph(GraphText::new(source, names, options)),
        }
    }

    fn header(&self, source: &dyn Source, buffer: &mut Vec<u8>) {
        if !matches!(self, Text::Json(_)) {
            buffer.extend_from_slice(left_out::lines(source).as_bytes());
            buffer.extend_from_slice(part(source).as_bytes());
            buffer.extend_from_slice(clock(source).as_bytes());
        }
        match self {
            Text::Graph(text) => text.header(buffer),
            Text::Function(text) => text.header(buffer),
            Text::Json(text) => text.header(buffer),
        }
    }

    /// Writes what is known after the last event.
    fn finish(&self, source: &dyn Source, buffer: &mut Vec<u8>, totals: &Totals) -> Result<(), Error> {
        if let Text::Json(text) = self {
            text.totals(buffer, totals);
            return Ok(());
        }
        buffer.extend_from_slice(forked(source).as_bytes());
        write_totals(buffer, totals)
    }

    /// Prints that a thread did not run.
    fn wait(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, wait: &Wait) {
        match self {
            Text::Graph(text) => text.wait(buffer, thread, wait),
            Text::Function(text) => text.wait(buffer, thread, wait),
            Text::Json(text) => text.wait(buffer, thread, wait),
        }
    }

    /// Prints and clears the effects of an event. `waits`: the thread does not run for some time
    /// before its next event.
    fn print(
        &mut self,
        buffer: &mut Vec<u8>,
        recording: &Recording<'_>,
        replayed: &mut Replayed,
        effects: &mut Effects,
        event: &Next<'_>,
        waits: bool,
    ) {
        let Next { thread, values, next, .. } = event;
        let now = replayed.stack.now();
        let text = match self {
            Text::Function(text) => {
                for effect in effects.0.drain(..) {
                    text.line(buffer, *thread, now, &effect, values);
                }
                return;
            }
            Text::Json(text) => {
                for effect in effects.0.drain(..) {
                    text.line(buffer, *thread, now, &effect, values);
                }
                return;
            }
            Text::Graph(text) => text,
        };
        let first = usize::from(std::mem::take(&mut replayed.leaf));
        for (number, effect) in effects.0.iter().enumerate() {
            let rules = recording.rules.as_ref();
            let spent = rules.map(|rules| replayed.spent.take(rules, recording.source, effect));
            if number < first {
                continue;
            }
            let leaf = match effect {
                Effect::Enter(enter) if !waits && !enter.is_rest => {
                    leaf_end(&replayed.stack, next.as_ref(), recording.sites)
                }
                _ => None,
            };
            replayed.leaf = leaf.is_some();
            let spent = spent.unwrap_or_default();
            text.line(buffer, *thread, now, effect, &EventDetails { values, leaf, spent: &spent });
        }
        effects.0.clear();
    }
}

/// Writes the replay. Holds one batch of each live thread in memory.
pub fn write(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    mut progress: Progress<'_>,
) -> Result<Totals, Error> {
    let names = if options.short_names { Names::short } else { Names::new };
    let names = names(source.meta(), options.linker_names).coloured(options.colour);
    let mut text = Text::new(source, &names, options);
    let mut merge = Merge::new(source, &options.threads);
    let mut totals = Totals { threads: merge.threads() as u64, ..Totals::default() };
    let mut threads: Vec<Option<Box<Replayed>>> = Vec::new();
    threads.resize_with(source.meta().threads.len(), || None);
    let sites = source.meta().sites.len() as u32;
    let recording = Recording { source, rules: Rules::of(source), sites };
    let mut effects = Effects::default();
    let mut buffer = Vec::new();
    if !options.no_header {
        text.header(source, &mut buffer);
    }
    // Waits that begin before the next event of their thread, by time.
    let mut waits: BTreeMap<(u64, ThreadId), Wait> = BTreeMap::new();
    while let Some(mut next) = merge.next() {
        totals.events += 1;
        next.event.site = checked_site(next.event.site, sites);
        let Some(slot) = threads.get_mut(next.thread.0 as usize) else { continue };
        let replayed = match slot {
            Some(replayed) => replayed,
            None => slot.insert(Box::new(Replayed::new(source, options, next.thread)?)),
        };
        replayed.stack.feed(next.thread, &next.event, &mut effects, &mut totals);
        while !waits.is_empty()
            && let Some(first) = waits.first_entry().filter(|first| first.key().0 <= replayed.stack.now())
        {
            let ((_, thread), wait) = first.remove_entry();
            text.wait(&mut buffer, thread, &wait);
        }
        let until = next.next.as_ref().map(|(event, _)| event.ticks);
        let coming = replayed.waits.until(replayed.stack.now(), until, replayed.stack.depth());
        text.print(&mut buffer, &recording, replayed, &mut effects, &next, !coming.is_empty());
        if !coming.is_empty() {
            waits.extend(coming.into_iter().map(|wait| ((wait.from, next.thread), wait)));
        }
        if next.next.is_none() {
            totals.unfinished += replayed.stack.unfinished();
            *slot = None;
        }
        if totals.events & 0xfff == 0 {
            tell(&mut progress, totals.events);
        }
        crate::bytes::drain(&mut buffer, out, false)?;
    }
    waits.iter().for_each(|((_, thread), wait)| text.wait(&mut buffer, *thread, wait));
    merge.damage.report(&mut totals);
    text.finish(source, &mut buffer, &totals)?;
    crate::bytes::drain(&mut buffer, out, true)?;
    tell(&mut progress, totals.events);
    Ok(totals)
}

/// Writes the lines after the events: unreadable parts, and numbers of calls without an end.
fn write_totals(out: &mut Vec<u8>, totals: &Totals) -> Result<(), Error> {
    out.extend_from_slice(damage(totals).as_bytes());
    if totals.outside > 0 {
        let calls = crate::units::counted(totals.outside, "call");
        writeln!(out, "# {calls} cut: begun before the part, or going on after it")?;
    }
    if totals.unfinished > 0 {
        writeln!(out, "# {} unfinished", crate::units::counted(totals.unfinished, "call"))?;
    }
    Ok(())
}

/// Returns the end of the innermost call and its results, if the thread's next event ends it.
fn leaf_end<'a>(stack: &Stack, next: Option<&(Event, &'a [u8])>, sites: u32) -> Option<(u64, &'a [u8])> {
    let (next, results) = next?;
    let EventKind::Exit { pops } = next.kind else { return None };
    let ends = stack.is_ended_by(checked_site(next.site, sites), pops);
    // The return of a caller that has jumped to the innermost function has the caller's results.
    let own = if stack.top() == Some(next.site) { results } else { &[][..] };
    ends.then(|| (next.ticks.max(stack.now()), own))
}

fn layout(source: &dyn Source, asked: Layout) -> Layout {
    let tracers = source.meta().session.as_ref().map_or(&[][..], |session| &session.tracers);
    match asked {
        Layout::Auto if !tracers.is_empty() && tracers.iter().all(|t| t.kind == TracerKind::Function) => {
            Layout::Function
        }
        Layout::Auto => Layout::Graph,
        asked => asked,
    }
}
