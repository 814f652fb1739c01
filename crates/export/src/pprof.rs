//! pprof's format: a gzipped protobuf message of call paths with their calls and times.

use super::proto::{bytes, message, number, varint};
use crate::labels::command;
use crate::options::Options;
use calltap_analysis::paths::{By, NodeOff, Of, Paths};
use calltap_analysis::{Error, Names, Progress, Source, Totals};
use calltap_trace::SiteId;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::{self, Write};

/// Field numbers of Profile.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Writes a sample per call path: `calls`, and if anything was timed, `time`, the own time of the
/// innermost function; if context switches were recorded, also its parts `cpu`, `runnable`,
/// `blocked`, `tracing` and `unknown`. With [`Options::by_thread`] samples have the label `thread`.
/// Paths beyond [`Options::max_paths`] count for their callers.
pub fn pprof(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (paths, totals) = crate::options::call_paths(source, options, progress)?;
    let names = Names::new(source.meta(), options.linker_names);
    let mut writer = Writer { source, names, strings: HashMap::new(), list: Vec::new(), buffer: Vec::new() };
    writer.string("");
    let mut out = GzEncoder::new(out, Compression::default());
    writer.types(source.has_time() && paths.nodes[0].total > 0, paths.off(0).is_some());
    writer.samples(&paths, &mut out)?;
    writer.functions(&paths);
    writer.about(&paths, &totals);
    out.write_all(&writer.buffer)?;
    out.finish()?;
    Ok(totals)
}

struct Writer<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    strings: HashMap<String, u64>,
    list: Vec<String>,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let new = self.list.len() as u64;
        self.strings.insert(text.to_owned(), new);
        self.list.push(text.to_owned());
        new
    }

    fn types(&mut self, timed: bool, switched: bool) {
        let mut types = vec![("calls", "count")];
        if timed {
            types.push(("time", "nanoseconds"));
        }
        let default = self.string(types[types.len() - 1].0);
        if timed && switched {
            types.extend(
                ["cpu", "runnable", "blocked", "tracing", "unknown"].map(|kind| (kind, "nanoseconds")),
            );
        }
        for &(kind, unit) in &types {
            let (kind, unit) = (self.string(kind), self.string(unit));
            message(&mut self.buffer, field::SAMPLE_TYPE, |value| {
                number(value, 1, kind);
                number(value, 2, unit);
            });
        }
        number(&mut self.buffer, field::DEFAULT_SAMPLE_TYPE, default);
    }

    fn samples(&mut self, paths: &Paths, out: &mut dyn Write) -> io::Result<()> {
        let timed = self.source.has_time() && paths.nodes[0].total > 0;
        let key = self.string("thread");
        let (mut sample, mut packed) = (Vec::new(), Vec::new());
        for (at, node) in paths.nodes.iter().enumerate().skip(1) {
            if node.calls == 0 && node.own == 0 {
                continue;
            }
            packed.clear();
            sample.clear();
            // The innermost function comes first.
            let mut up = at as u32;
            while let Of::Site(site) = paths.of(up) {
                varint(&mut packed, id(site));
                up = paths.nodes[up as usize].parent;
            }
            bytes(&mut sample, 1, &packed);
            packed.clear();
            varint(&mut packed, node.calls);
            if timed {
                varint(&mut packed, self.source.duration_ns(node.own));
            }
            if let Some(NodeOff { own, .. }) = paths.off(at as u32).filter(|_| timed) {
                let cpu = By::Cpu.of(node.own, &own);
                for ticks in [cpu, own.runnable, own.blocked, own.tracing, own.unknown] {
                    varint(&mut packed, self.source.duration_ns(ticks));
                }
            }
            bytes(&mut sample, 2, &packed);
            if let Of::Thread(thread) = paths.of(up) {
                let name = self.string(&self.names.task(thread));
                message(&mut sample, 3, |label| {
                    number(label, 1, key);
                    number(label, 2, name);
                });
            }
            bytes(&mut self.buffer, field::SAMPLE, &sample);
            if self.buffer.len() > 1 << 16 {
                out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    /// Writes the called functions, their locations, and the mapped files.
    fn functions(&mut self, paths: &Paths) {
        let meta = self.source.meta();
        let mut called = vec![false; meta.sites.len() + 1];
        for node in 1..paths.nodes.len() as u32 {
            if let Of::Site(site) = paths.of(node) {
                called[site.0 as usize] = true;
            }
        }
        for module in &meta.modules {
            let (file, build_id) =
                (self.string(&module.path), self.string(module.build_id.as_deref().unwrap_or("")));
            message(&mut self.buffer, field::MAPPING, |mapping| {
                number(mapping, 1, u64::from(module.id) + 1);
                number(mapping, 2, module.range.0);
                number(mapping, 3, module.range.1);
                number(mapping, 5, file);
                number(mapping, 6, build_id);
                number(mapping, 7, 1);
            });
        }
        for site in (0..called.len() as u32).map(SiteId).filter(|site| called[site.0 as usize]) {
            let name = self.names.function(site).to_owned();
            let name = self.string(&name);
            let linker = self.string(self.names.linker(site));
            message(&mut self.buffer, field::FUNCTION, |function| {
                number(function, 1, id(site));
                number(function, 2, name);
                number(function, 3, linker);
            });
            let described = meta.sites.get(site.0 as usize);
            let module = described.and_then(|site| meta.modules.get(site.module as usize));
            message(&mut self.buffer, field::LOCATION, |location| {
                number(location, 1, id(site));
                if let (Some(site), Some(module)) = (described, module) {
                    number(location, 2, u64::from(module.id) + 1);
                    number(location, 3, module.bias.wrapping_add(site.address));
                }
                message(location, 4, |line| number(line, 1, id(site)));
            });
        }
    }

    /// Writes times, comments about what is missing, and then all strings.
    fn about(&mut self, paths: &Paths, totals: &Totals) {
        let meta = self.source.meta();
        if let Some(session) = &meta.session {
            number(&mut self.buffer, field::TIME_NANOS, session.start_realtime_ns);
        }
        if let Some(end) = &meta.end {
            number(&mut self.buffer, field::DURATION_NANOS, end.wall_ns);
        }
        let mut comments = vec![command(self.source)];
        comments.extend(
            calltap_analysis::head::head_of_paths(self.source, totals)
                .lines()
                .map(|line| line.strip_prefix("# ").unwrap_or(line).to_owned()),
        );
        if paths.merged > 0 {
            comments.push(format!("{} calls by further paths are part of their callers", paths.merged));
        }
        for comment in comments {
            let comment = self.string(&comment);
            number(&mut self.buffer, field::COMMENT, comment);
        }
        for text in &self.list {
            bytes(&mut self.buffer, field::STRING_TABLE, text.as_bytes());
        }
    }
}

/// Returns the id of a function and its location; 0 means none.
fn id(site: SiteId) -> u64 {
    u64::from(site.0) + 1
}
