//! Explains slow calls: what their threads did, which threads ended their waits, and what these had
//! done meanwhile.

pub(crate) mod chain;
mod descriptions;
mod explained;
mod futures;
mod json;
pub(crate) mod lane;
mod lit;
mod locks;
pub(crate) mod parks;
mod runs;
mod slow;
pub(crate) mod stacks;
mod summary;
mod system_calls;
mod text;

pub use futures::{is_called, why_futures};
pub use lit::{CallToExplain, why_call};
pub use locks::locks;
pub use slow::Rule;

use crate::error::Error;
use crate::head;
use crate::head::disabled;
use crate::head::left_out;
use crate::names::Names;
use crate::sources::source::Source;
use crate::units::{counted, duration};
use chain::Chains;
use descriptions::Descriptions;
use explained::Explained;
use serde_json::json;

/// Maximum number of calls in a summary.
const SUMMED: usize = 10_000;
/// Default number of explained calls.
const SHOWN: usize = 10;

/// The question.
#[derive(Clone, Debug)]
pub struct Why {
    /// Rules that say which calls are slow.
    pub rules: Vec<Rule>,
    /// Number of the slowest calls, or of causes, that are shown.
    pub limit: Option<usize>,
    /// Whether the causes of all slow calls are summed up, instead of explaining each call.
    pub summary: bool,
    /// Whether the answer is JSON.
    pub json: bool,
    /// Whether functions keep their linker symbols.
    pub linker_names: bool,
}

/// Returns the answer, as text or as JSON.
pub fn why(source: &dyn Source, why: &Why) -> Result<String, Error> {
    let names = Names::new(source.meta(), why.linker_names);
    let most = if why.summary { SUMMED } else { why.limit.unwrap_or(SHOWN) };
    let found = slow::find(source, &names, &why.rules, most)?;
    let mut chains = Chains::new(source);
    let mut explained = Explained { chains: Vec::new() };
    for slow in &found.slowest {
        let chain = chains.chain(slow.thread, slow.call.start, slow.call.end)?;
        explained.chains.push((*slow, chain));
    }
    chains.stacks.answer(source)?;
    let unknown = text::unknown(source.meta(), source.has_switches(), chains.know_wakers()?);
    let descriptions = Descriptions::new(source, &names, &chains.stacks);
    if why.json {
        let mut object = json!({
            "calltap_why": 1,
            "slow_calls": found.calls,
            "total_ns": source.duration_ns(found.ticks),
            "unknown": unknown,
            disabled::KEY: disabled::functions(source.meta(), &names),
            left_out::KEY: left_out::by_rules(source),
        });
        if why.summary {
            object["causes"] = summary::json(&explained, &descriptions);
        } else {
            object["calls"] = json::chains(&explained, &descriptions);
        }
        return Ok(format!("{object:#}\n"));
    }
    let mut text = head::head(source, &found.totals);
    unknown.iter().for_each(|line| text += &format!("# {line}\n"));
    let (slow, shown) = (counted(found.calls, "slow call"), explained.chains.len() as u64);
    if shown < found.calls {
        text += &format!("# {slow}; these are the {shown} slowest\n");
    } else if found.calls == 0 {
        let rules = why.rules.iter().map(|rule| format!("{} > {}", rule.function, duration(rule.ns)));
        text += &format!("# {slow} ({})\n", crate::units::one_line(&rules.collect::<Vec<_>>().join(", ")));
    }
    text += &if why.summary {
        summary::text(&explained, &descriptions, why.limit)
    } else {
        text::chains(&explained, &descriptions)
    };
    Ok(text)
}
