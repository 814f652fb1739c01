//! The call paths that lead to a function, with counts and times.

use super::cut::CutCalls;
use super::{EndedCall, QueryContext, Question};
use crate::paths::{NODES, Of, Paths};
use crate::units::{counted, duration, one_line};
use calltap_trace::SiteId;
use serde_json::{Value, json};

/// Sums of the calls on one path.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Number of calls with a duration.
    timed: u64,
    cut: CutCalls,
    total: u64,
    max: u64,
}

impl Sum {
    fn calls(&self) -> u64 {
        self.timed + self.cut.total()
    }
}

/// The answer to `stacks`.
pub struct Stacks {
    /// Call paths; a site here is the number of a function's name.
    paths: Paths,
    /// Sums by node, in ticks.
    sums: Vec<Sum>,
    limit: Option<usize>,
    /// Number of calls whose callers were unwound.
    unwound: u64,
    traced: u64,
}

impl Stacks {
    /// Makes an answer without calls; at most `limit` paths are shown.
    pub fn new(limit: Option<usize>) -> Stacks {
        Stacks { paths: Paths::new(NODES), sums: Vec::new(), limit, unwound: 0, traced: 0 }
    }

    /// Returns the note that precedes the answer if paths may lack functions.
    fn warning(&self) -> Option<String> {
        let what = match (self.traced, self.unwound) {
            (0, _) => return None,
            (_, 0) => "these paths have".to_owned(),
            (traced, _) => format!("the paths of {} have", counted(traced, "call")),
        };
        Some(format!(
            "# {what} the traced functions only, others are left out: name the functions ('stacks FUNCTION', or \
             'record -A FUNCTION@$callers') to have their callers unwound\n\n"
        ))
    }

    /// Returns the paths with calls, largest total time first.
    fn rows(&self) -> Vec<(Vec<u32>, Sum)> {
        let called = |(_, sum): &(u32, &Sum)| sum.calls() > 0;
        let mut rows: Vec<(Vec<u32>, Sum)> =
            (0..).zip(&self.sums).filter(called).map(|(node, sum)| (self.path(node), *sum)).collect();
        rows.sort_by(|a, b| {
            (b.1.total, b.1.calls()).cmp(&(a.1.total, a.1.calls())).then_with(|| a.0.cmp(&b.0))
        });
        rows
    }

    /// Returns the path of a node, outermost function first.
    fn path(&self, mut node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        while let Of::Site(SiteId(name)) = self.paths.of(node) {
            path.push(name);
            node = self.paths.nodes[node as usize].parent;
        }
        path.reverse();
        path
    }
}

impl Question for Stacks {
    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        *if ended.callers.is_some() { &mut self.unwound } else { &mut self.traced } += 1;
        let mut node = 0;
        for name in known.path(ended) {
            match self.paths.child(node, SiteId(name)) {
                Some(child) => node = child,
                None => {
                    self.paths.merged += 1;
                    break;
                }
            }
        }
        self.sums.resize(self.paths.nodes.len(), Sum::default());
        let sum = &mut self.sums[node as usize];
        if ended.call.ending.is_cut() {
            sum.cut.add(ended.call.ending);
            return;
        }
        sum.timed += 1;
        sum.total = sum.total.saturating_add(ended.call.total);
        sum.max = sum.max.max(ended.call.total);
    }

    fn text(&self, known: &QueryContext) -> String {
        let rows = self.rows();
        let shown = self.limit.unwrap_or(rows.len()).min(rows.len());
        let mut text = self.warning().unwrap_or_default();
        for (path, sum) in &rows[..shown] {
            let (total, max) = (known.ns(sum.total), known.ns(sum.max));
            let average = total.checked_div(sum.timed).unwrap_or(0);
            let calls = counted(sum.calls(), "call");
            text += &match sum.timed {
                0 => calls,
                _ => {
                    format!("{calls}, {}, avg {}, max {}", duration(total), duration(average), duration(max))
                }
            };
            text += &format!("{}\n", sum.cut.text());
            for name in path {
                text += &format!("    {}\n", one_line(known.word(*name)));
            }
            text += "\n";
        }
        if shown < rows.len() {
            text += &format!("# {} not shown\n", counted((rows.len() - shown) as u64, "path"));
        }
        if self.paths.merged > 0 {
            let merged = counted(self.paths.merged, "call");
            let limits = self.paths.limits_met();
            text += &format!("# {limits}: of {merged} only the beginning of the path is known\n");
        }
        if text.is_empty() { "no calls\n".to_owned() } else { text }
    }

    fn json(&self, known: &QueryContext) -> Value {
        let rows: Vec<Value> = self
            .rows()
            .iter()
            .take(self.limit.unwrap_or(usize::MAX))
            .map(|(path, sum)| {
                json!({
                    "path": path.iter().map(|name| known.word(*name)).collect::<Vec<_>>(),
                    "calls": sum.calls(),
                    "timed": sum.timed,
                    "unfinished": sum.cut.total(),
                    "without_duration": sum.cut.json(),
                    "total_ns": known.ns(sum.total),
                    "max_ns": known.ns(sum.max),
                })
            })
            .collect();
        json!({ "paths": rows, "cut_calls": self.paths.merged, "unwound_calls": self.unwound, "traced_callers_only": self.traced })
    }
}
