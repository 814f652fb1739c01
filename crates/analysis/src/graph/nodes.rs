//! Writes a call tree as a JSON list of nodes.

use super::Options;
use crate::head::{disabled, facts};
use crate::names::Names;
use crate::paths::{By, NodeOff, Of, Paths};
use crate::sources::source::Source;
use crate::units::percent;
use calltap_trace::SiteId;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::{self, Write};

pub(super) struct Nodes<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    options: &'a Options,
    nodes: Vec<Value>,
    /// Functions that were disabled by the overhead limit.
    disabled: HashSet<SiteId>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(source: &'a dyn Source, names: &'a Names<'a>, options: &'a Options) -> Self {
        let disabled = disabled::sites(source.meta());
        Self { source, names, options, nodes: Vec::new(), disabled }
    }

    /// Adds everything below the root, callers before callees; `whole` ticks are 100 %. `which`
    /// marks the nodes as callers or callees of a function.
    pub(super) fn add(&mut self, paths: &Paths, which: Option<&str>, whole: u64) {
        let timed = self.source.has_time() && whole > 0;
        let first = self.nodes.len();
        // Index in the list and depth of each node; `None` if it is hidden.
        let mut places: Vec<Option<(usize, u32)>> = vec![None; paths.nodes.len()];
        for node in 1..paths.nodes.len() as u32 {
            let numbers = &paths.nodes[node as usize];
            let above = places[numbers.parent as usize];
            let depth = above.map_or(0, |(_, depth)| depth + 1);
            let is_hidden = (numbers.parent != 0 && above.is_none())
                || (self.options.depth > 0 && depth >= self.options.depth)
                || (timed && percent(numbers.total, whole) < self.options.min_percent);
            if is_hidden {
                continue;
            }
            places[node as usize] = Some((self.nodes.len() - first, depth));
            let parent = above.map(|(place, _)| first + place);
            let row = self.node(paths, node, (parent, depth), which, timed);
            self.nodes.push(row);
        }
    }

    fn node(
        &self,
        paths: &Paths,
        node: u32,
        (parent, depth): (Option<usize>, u32),
        which: Option<&str>,
        timed: bool,
    ) -> Value {
        let numbers = &paths.nodes[node as usize];
        let ns = |ticks: u64| self.source.duration_ns(ticks);
        let time = |ticks: u64| timed.then(|| ns(ticks));
        let NodeOff { total: off, .. } = paths.off(node).unwrap_or_default();
        let is_known = timed && paths.off(node).is_some() && off.unknown == 0;
        let state = |by: By| is_known.then(|| ns(by.of(numbers.total, &off)));
        let (function, module, thread) = match paths.of(node) {
            Of::Site(site) => (Some(self.names.function(site)), Some(self.names.module(site)), None),
            Of::Thread(thread) => (None, None, Some(self.names.task(thread))),
            Of::Root => (None, None, None),
        };
        let mut row = json!({
            "parent": parent,
            "depth": depth,
            "function": function,
            "module": module,
            "calls": numbers.calls,
            "total_ns": time(numbers.total),
            "cpu_ns": state(By::Cpu),
            "runnable_ns": state(By::Runnable),
            "blocked_ns": state(By::Blocked),
            "tracing_ns": state(By::Tracing),
        });
        if which != Some("callers") {
            row["self_ns"] = json!(time(numbers.own));
            row["cut"] = json!(numbers.cut);
            row["lost_calls"] = json!(numbers.lost);
        }
        if let Some(which) = which {
            row["of"] = json!(which);
        }
        if matches!(paths.of(node), Of::Site(site) if self.disabled.contains(&site)) {
            row[disabled::KEY] = json!(true);
        }
        if let Some(thread) = thread {
            row["thread"] = json!(thread);
        }
        row
    }

    /// Writes the list, one node to a line, behind facts about the trace.
    pub(super) fn write(&self, facts: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
        let mut list = facts::List::begin(out, ("calltap_graph", "nodes"), facts)?;
        self.nodes.iter().try_for_each(|node| write!(list.next()?, "{node}"))?;
        list.end()
    }
}
