//! Writes a call tree as indented lines with numbers in front.

use super::Options;
use crate::names::Names;
use crate::paths::{By, NodeOff, Of, Paths};
use crate::sources::source::Source;
use crate::units::{count, duration, one_line, percent};
use std::io::{self, Write};

pub(super) struct Table<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    depth: u32,
    min_percent: f64,
    /// Number of hidden paths so far, without those below them.
    pub(super) hidden: u64,
}

impl<'a> Table<'a> {
    pub(super) fn new(source: &'a dyn Source, names: &'a Names<'a>, options: &Options) -> Self {
        let depth = if options.depth == 0 { u32::MAX } else { options.depth };
        Self { source, names, depth, min_percent: options.min_percent, hidden: 0 }
    }

    /// Writes everything below the root; `whole` ticks are 100 %. Times are shown if there are any.
    pub(super) fn write(
        &mut self,
        paths: &Paths,
        callers: bool,
        whole: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let timed = self.source.has_time() && whole > 0;
        let states =
            if timed && paths.off(0).is_some() { "         CPU    RUNNABLE     BLOCKED" } else { "" };
        match (timed, callers) {
            (true, false) => writeln!(out, "      TOTAL        SELF{states}       %       CALLS  FUNCTION")?,
            (true, true) => writeln!(out, "      TOTAL{states}       %       CALLS  FUNCTION")?,
            (false, _) => writeln!(out, "      CALLS  FUNCTION")?,
        }
        let children = paths.children();
        let mut pending: Vec<(u32, u32)> = Vec::new();
        self.push_children(paths, children.of(0), 0, &mut pending);
        while let Some((node, depth)) = pending.pop() {
            let numbers = &paths.nodes[node as usize];
            let share = percent(numbers.total, whole);
            if depth >= self.depth || (timed && share < self.min_percent) {
                self.hidden += 1;
                continue;
            }
            if timed {
                write!(out, "{:>11}", duration(self.source.duration_ns(numbers.total)))?;
                if !callers {
                    write!(out, " {:>11}", duration(self.source.duration_ns(numbers.own)))?;
                }
                self.states(paths, node, out)?;
                write!(out, " {share:>7.2}")?;
            }
            let gap = if timed { " " } else { "" };
            let name = match paths.of(node) {
                Of::Site(site) => self.names.marked(site).into_owned(),
                Of::Thread(thread) => self.names.task(thread),
                Of::Root => String::new(),
            };
            let indent = 2 * depth as usize;
            write!(out, "{gap}{:>11}  {:indent$}{}", count(numbers.calls), "", one_line(&name))?;
            if numbers.cut > 0 && !callers {
                write!(out, "  [{} cut]", count(numbers.cut))?;
            }
            if numbers.lost > 0 && !callers {
                write!(out, "  [LOST {} EVENTS]", count(numbers.lost))?;
            }
            writeln!(out)?;
            self.push_children(paths, children.of(node), depth + 1, &mut pending);
        }
        Ok(())
    }

    /// Writes how much of the total time the threads ran, were runnable and blocked, if that was
    /// recorded.
    fn states(&self, paths: &Paths, node: u32, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(NodeOff { total: off, .. }) = paths.off(node) else { return Ok(()) };
        for by in [By::Cpu, By::Runnable, By::Blocked] {
            let known = (off.unknown == 0).then(|| by.of(paths.nodes[node as usize].total, &off));
            let text = known.map_or("?".to_owned(), |ticks| duration(self.source.duration_ns(ticks)));
            write!(out, " {text:>11}")?;
        }
        Ok(())
    }

    /// Pushes children so that the longest pops first.
    fn push_children(&self, paths: &Paths, children: &[u32], depth: u32, pending: &mut Vec<(u32, u32)>) {
        let start = pending.len();
        pending.extend(children.iter().map(|&child| (child, depth)));
        let key = |node: u32| {
            let numbers = &paths.nodes[node as usize];
            let total = if self.source.has_time() { numbers.total } else { 0 };
            (total, numbers.calls, std::cmp::Reverse(node))
        };
        pending[start..].sort_unstable_by_key(|&(node, _)| key(node));
    }
}
