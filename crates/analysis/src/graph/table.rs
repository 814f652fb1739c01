//! Writes a call tree as indented lines with numbers in front.

use super::Options;
use crate::head::disabled;
use crate::names::Names;
use crate::paths::{By, NodeOff, Of, Paths};
use crate::sources::source::Source;
use crate::units::{count, duration, one_line, percent};
use calltap_trace::SiteId;
use std::collections::HashSet;
use std::io::{self, Write};

/// Characters of names and their indentation for which columns of states are left out.
const NAMES: usize = 36;

/// Columns of states in the order in which they are left out where names have no room.
const LEAVABLE: [By; 4] = [By::Runnable, By::Tracing, By::Cpu, By::Blocked];

pub(super) struct Table<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    depth: u32,
    min_percent: f64,
    width: Option<usize>,
    /// Functions that were disabled by the overhead limit.
    disabled: HashSet<SiteId>,
    /// Columns that were left out in some table.
    pub(super) left_out: Vec<By>,
    /// Number of hidden paths so far, without those below them.
    pub(super) hidden: u64,
}

impl<'a> Table<'a> {
    pub(super) fn new(source: &'a dyn Source, names: &'a Names<'a>, options: &Options) -> Self {
        let depth = if options.depth == 0 { u32::MAX } else { options.depth };
        let Options { min_percent, width, .. } = *options;
        let disabled = disabled::sites(source.meta());
        Self { source, names, depth, min_percent, width, disabled, left_out: Vec::new(), hidden: 0 }
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
        let shown = if timed && paths.off(0).is_some() { self.fitting(paths, callers) } else { Vec::new() };
        let states: String = shown.iter().map(|by| format!(" {:>11}", by.name().to_uppercase())).collect();
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
            let is_partial = matches!(paths.of(node), Of::Site(site) if self.disabled.contains(&site));
            if timed {
                let total = duration(self.source.duration_ns(numbers.total));
                write!(out, "{:>11}", disabled::at_least(is_partial, total))?;
                if !callers {
                    write!(out, " {:>11}", duration(self.source.duration_ns(numbers.own)))?;
                }
                self.states(paths, node, &shown, out)?;
                write!(out, " {share:>7.2}")?;
            }
            let gap = if timed { " " } else { "" };
            let name = match paths.of(node) {
                Of::Site(site) => self.names.shown(site),
                Of::Thread(thread) => one_line(&self.names.task(thread)).into_owned(),
                Of::Root => String::new(),
            };
            let indent = 2 * depth as usize;
            let calls = disabled::at_least(is_partial, count(numbers.calls));
            write!(out, "{gap}{calls:>11}  {:indent$}{}", "", name)?;
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

    /// Returns the columns of states that leave room for names, and notes the others.
    fn fitting(&mut self, paths: &Paths, callers: bool) -> Vec<By> {
        let mut shown = vec![By::Cpu, By::Runnable, By::Blocked];
        let is_held = |node| paths.off(node).is_some_and(|off| off.total.tracing > 0);
        shown.extend((0..paths.nodes.len() as u32).any(is_held).then_some(By::Tracing));
        let numbers = if callers { 34 } else { 46 };
        for by in LEAVABLE {
            if self.width.is_none_or(|width| numbers + 12 * shown.len() + NAMES <= width) {
                break;
            }
            let before = shown.len();
            shown.retain(|other| *other != by);
            if shown.len() < before && !self.left_out.contains(&by) {
                self.left_out.push(by);
            }
        }
        shown
    }

    /// Writes how much of the total time the threads ran, were runnable, blocked, and held by
    /// calltap, if that was recorded.
    fn states(&self, paths: &Paths, node: u32, shown: &[By], out: &mut Vec<u8>) -> io::Result<()> {
        let Some(NodeOff { total: off, .. }) = paths.off(node) else { return Ok(()) };
        for by in shown {
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
