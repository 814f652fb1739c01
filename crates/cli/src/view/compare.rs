//! The page's questions about the differences between a trace and another one, its base.

use super::api::{Query, Refusal};
use calltap_analysis::Source;
use calltap_analysis::explore::{Base, Calls, ComparedBox, ComparedFlame, Explorer, Width};
use calltap_analysis::paths::By;
use calltap_trace::{SiteId, TraceReader};
use serde_json::{Value, json};

/// Width of the narrowest box of a flame graph, as a share of the graph's width.
const MIN_BOX_WIDTH: f64 = 1.0 / 3000.0;

/// A base that was read.
pub struct Compared {
    /// Path of the trace.
    pub title: String,
    /// Calls of the trace.
    pub base: Base<TraceReader>,
}

impl Compared {
    /// Answers the question whether there is a base.
    pub fn describe<S: Source>(&self, explorer: &Explorer<S>) -> Value {
        json!({ "title": self.title, "switched": self.base.has_switches(explorer) })
    }

    /// Answers `by=wall&base=0&root=0`, or `f=1&callers=0` instead of a root: a flame graph of the
    /// differences. With `base=1` the widths are those of the base.
    pub fn flame<S: Source>(&self, explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
        self.flame_from(explorer, query, MIN_BOX_WIDTH)
    }

    /// Answers as [`Compared::flame`] does, with boxes down to a share of the width.
    pub fn flame_from<S: Source>(
        &self,
        explorer: &Explorer<S>,
        query: &Query<'_>,
        narrowest: f64,
    ) -> Result<Value, Refusal> {
        let by = query.text("by").unwrap_or("wall");
        let by: By =
            by.parse().map_err(|why: calltap_analysis::NotOneOf| Refusal::new(400, &why.to_string()))?;
        if by != By::Wall && !self.base.has_switches(explorer) {
            return Err(Refusal::new(409, "one of the traces does not say when threads ran"));
        }
        let calls = match query.text("f") {
            None => Calls::All(query.number("root")?),
            Some(_) => {
                let function = explorer.function(SiteId(query.number("f")?));
                let function = function.ok_or_else(|| Refusal::new(404, "no such function was called"))?;
                Calls::Of { function, callers: query.is_set("callers") }
            }
        };
        let width = Width { by, of_base: query.is_set("base"), narrowest };
        let flame = self.base.flame(explorer, calls, width);
        let flame =
            flame.ok_or_else(|| Refusal::new(404, "it is in none of the call paths that were kept"))?;
        Ok(answer(&flame))
    }
}

/// Returns the graph. A box begins with the numbers of a box of one trace; behind them are calls,
/// weight and own weight of the base, and the name of a function that the base alone calls.
fn answer(ComparedFlame { boxes, below, timed, merged, alone }: &ComparedFlame) -> Value {
    let boxed = |one: &ComparedBox| {
        let ComparedBox { node, site, name, left, width, level, calls, weight, own } = one;
        let of_base = [calls[0], weight[0], own[0]];
        json!([node, site.map(|site| site.0), left, width, level, calls[1], weight[1], own[1], of_base, name])
    };
    json!({
        "boxes": boxes.iter().map(boxed).collect::<Vec<_>>(),
        "below": below,
        "timed": timed,
        "merged": merged,
        "alone": alone,
    })
}
