//! Speedscope's own format: a profile of entries and returns for each thread.

use crate::labels::command;
use crate::options::Options;
use calltap_analysis::bytes::{drain, push_decimal};
use calltap_analysis::{
    Call, Enter, Error, Names, Progress, Source, Totals, Visitor, run_by_thread, threads_with_events,
};
use calltap_trace::{SiteId, ThreadId};
use serde_json::json;
use std::io::{self, Write};

/// Writes a profile per thread: an opening and a closing event per call, in nanoseconds since the
/// first event of all threads; a counter clock's ticks have no unit. Calls without duration, and
/// losses (`[LOST]`), take no time.
pub fn speedscope(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let starts = threads_with_events(source).into_iter().filter_map(|thread| source.thread_span(thread));
    let start = starts.map(|(first, _)| source.to_ns(first)).min().unwrap_or(0);
    let sites = source.meta().sites.len();
    let mut exporter = Exporter {
        source,
        names: Names::new(source.meta(), options.linker_names),
        out,
        start,
        buffer: b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n".to_vec(),
        frames: vec![None; sites + 2],
        used: Vec::new(),
        span: None,
        profiles: 0,
    };
    let exporter_name = concat!("calltap ", env!("CARGO_PKG_VERSION"));
    write!(
        exporter.buffer,
        "\"exporter\":\"{exporter_name}\",\"name\":{},\n\"profiles\":[",
        json!(command(source))
    )?;
    let totals = run_by_thread(source, &mut exporter, progress)?;
    exporter.finish()?;
    Ok(totals)
}

struct Exporter<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    out: &'a mut dyn Write,
    /// Time of the first event, subtracted from all times: Speedscope's numbers are floating point,
    /// and small ones are exact.
    start: u64,
    buffer: Vec<u8>,
    /// Index in `used` of each site, of the unknown site, and of losses.
    frames: Vec<Option<u32>>,
    used: Vec<usize>,
    /// First and last time of the thread, once it has an event.
    span: Option<(u64, u64)>,
    profiles: u64,
}

impl Visitor for Exporter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.event(thread, b'O', enter.site.0 as usize, enter.ticks);
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.event(thread, b'C', call.site.0 as usize, call.end);
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.event(thread, b'O', enter.site.0 as usize, enter.ticks);
        self.event(thread, b'C', enter.site.0 as usize, enter.ticks);
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, _: u32, _: u32) {
        let lost = self.frames.len() - 1;
        self.event(thread, b'O', lost, ticks);
        self.event(thread, b'C', lost, ticks);
    }

    fn batch_end(&mut self) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        if let Some((first, last)) = self.span.take() {
            write!(self.buffer, "\n],\"startValue\":{first},\"endValue\":{last}}}")?;
        }
        drain(&mut self.buffer, self.out, false)
    }
}

impl Exporter<'_> {
    fn event(&mut self, thread: ThreadId, kind: u8, frame: usize, ticks: u64) {
        let at = self.source.to_ns(ticks).saturating_sub(self.start);
        match &mut self.span {
            Some((_, last)) => {
                *last = at;
                self.buffer.push(b',');
            }
            None => {
                self.span = Some((at, at));
                self.begin(thread);
            }
        }
        let used = &mut self.used;
        let frame = *self.frames[frame].get_or_insert_with(|| {
            used.push(frame);
            used.len() as u32 - 1
        });
        self.buffer.extend_from_slice(b"\n{\"type\":\"");
        self.buffer.push(kind);
        self.buffer.extend_from_slice(b"\",\"frame\":");
        push_decimal(&mut self.buffer, u64::from(frame));
        self.buffer.extend_from_slice(b",\"at\":");
        push_decimal(&mut self.buffer, at);
        self.buffer.push(b'}');
    }

    fn begin(&mut self, thread: ThreadId) {
        let unit = if self.source.has_time() { "nanoseconds" } else { "none" };
        let comma = if self.profiles > 0 { "," } else { "" };
        self.profiles += 1;
        let name = json!(self.names.task(thread));
        let text =
            format!("{comma}\n{{\"type\":\"evented\",\"name\":{name},\"unit\":\"{unit}\",\"events\":[");
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Writes the data that all profiles share, which is complete only now: the functions that were
    /// called.
    fn finish(mut self) -> io::Result<()> {
        write!(self.buffer, "],\n\"shared\":{{\"frames\":[")?;
        for (at, &frame) in self.used.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let site = SiteId(frame as u32);
            let frame = if frame == self.frames.len() - 1 {
                json!({ "name": "[LOST]" })
            } else {
                json!({ "name": self.names.function(site), "file": self.names.module(site) })
            };
            write!(self.buffer, "{comma}\n{frame}")?;
        }
        writeln!(self.buffer, "]}}}}")?;
        drain(&mut self.buffer, self.out, true)
    }
}
