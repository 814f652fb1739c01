//! Spans of `tracing` and calls of functions on one timeline, in Chrome's format, which Perfetto
//! and `chrome://tracing` read.
//!
//! ```no_run
//! use calltap::timeline::Timeline;
//! use tracing_subscriber::prelude::*;
//!
//! let timeline = Timeline::new(1_000_000);
//! tracing_subscriber::registry().with(timeline.layer()).init();
//! let functions = timeline.functions(["my_crate::parse*"])?;
//! // ... the program's work ...
//! drop(functions);
//! timeline.write(&mut std::fs::File::create("timeline.json")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::call::Call;
use crate::error::Error;
use crate::ops::{Ops, Registration, register};
use crate::returns;
use crate::returns::Return;
use crate::table::Function;
use crate::trampoline::InLibrary;
use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_core::{Metadata, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A call or span of a thread.
struct Event {
    what: What,
    thread: i32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    start: u64,
    end: u64,
}

enum What {
    Call(&'static Function),
    Span(&'static Metadata<'static>),
}

/// The calls and spans so far, in memory that was reserved for them: callbacks do not allocate.
struct TimelineEvents {
    events: Mutex<Vec<Event>>,
    lost: AtomicU64,
}

impl TimelineEvents {
    fn add(&self, what: What, start: u64, end: u64) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == events.capacity() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        events.push(Event { what, thread: thread(), start, end });
    }
}

/// Returns the kernel's id of this thread.
fn thread() -> i32 {
    thread_local!(static OWN: Cell<i32> = const { Cell::new(0) });
    if OWN.get() == 0 {
        OWN.set(returns::thread());
    }
    OWN.get()
}

/// A timeline. Copies of it share their contents.
#[derive(Clone)]
pub struct Timeline(Arc<TimelineEvents>);

impl Timeline {
    /// Creates a timeline with memory for `capacity` calls and spans. Those that do not fit are
    /// counted as [lost](Timeline::lost).
    pub fn new(capacity: usize) -> Timeline {
        Timeline(Arc::new(TimelineEvents {
            events: Mutex::new(Vec::with_capacity(capacity)),
            lost: AtomicU64::new(0),
        }))
    }

    /// Records calls of these functions, until the registration is dropped. A call is recorded when
    /// it returns.
    pub fn functions<S: AsRef<str>>(
        &self,
        filter: impl IntoIterator<Item = S>,
    ) -> Result<Registration, Error> {
        let seen = Arc::clone(&self.0);
        register(Ops::new("timeline", |_: &Call| ()).filter(filter).on_return(move |call: &Return| {
            if let Some(function) = call.function() {
                let (start, end) = call.interval();
                seen.add(What::Call(function), start, end);
            }
        }))
    }

    /// Returns a layer of a subscriber, which records spans, each time from entering to leaving
    /// one.
    pub fn layer(&self) -> Spans {
        Spans(self.clone())
    }

    /// Returns the number of calls and spans for which there was no room.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Writes the contents so far.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        // The allocator and the writer may be traced themselves.
        let _inside = InLibrary::enter();
        let events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order: Vec<&Event> = events.iter().collect();
        // An event that contains another begins first, or ends last.
        order.sort_by_key(|event| (event.start, std::cmp::Reverse(event.end)));
        let process = std::process::id();
        let mut text = format!("{{\"otherData\":{{\"lost\":{}}},\"traceEvents\":[", self.lost());
        for (n, Event { what, thread, start, end }) in order.into_iter().enumerate() {
            let (name, category) = match what {
                What::Call(function) => (function.name(), "function"),
                What::Span(metadata) => (metadata.name(), "span"),
            };
            let (at, long) = (micros(*start), micros(end.saturating_sub(*start)));
            let comma = if n == 0 { "" } else { "," };
            text += &format!(
                "{comma}\n{{\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},\"ts\":{at},\"dur\":{long},\"cat\":\"{category}\",\"name\":{}}}",
                quoted(name)
            );
        }
        to.write_all(text.as_bytes())?;
        to.write_all(b"\n]}\n")
    }
}

/// Converts nanoseconds to the format's unit, exactly.
fn micros(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// Returns a JSON string.
fn quoted(text: &str) -> String {
    let mut all = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => all.extend(['\\', c]),
            c if c.is_control() => all += &format!("\\u{:04x}", c as u32),
            c => all.push(c),
        }
    }
    all + "\""
}

/// A layer that records spans on a [`Timeline`].
pub struct Spans(Timeline);

/// The threads that have entered a span, and when.
struct Entered(Vec<(i32, u64)>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        let Some(_inside) = InLibrary::enter() else { return };
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let entered = (thread(), returns::now());
        match extensions.get_mut::<Entered>() {
            Some(all) => all.0.push(entered),
            None => extensions.insert(Entered(vec![entered])),
        }
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        let Some(_inside) = InLibrary::enter() else { return };
        let end = returns::now();
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(all) = extensions.get_mut::<Entered>() else { return };
        let own = thread();
        if let Some(n) = all.0.iter().rposition(|(thread, _)| *thread == own) {
            let (_, start) = all.0.swap_remove(n);
            self.0.0.add(What::Span(span.metadata()), start, end);
        }
    }
}
