//! The explanation of one call for a timeline: its JSON, and the intervals to highlight.

use super::chain::{Chain, Chains, Span, Waker};
use super::descriptions::Descriptions;
use super::json::did;
use super::text;
use crate::error::Error;
use crate::names::Names;
use crate::sources::source::Source;
use calltap_trace::{SiteId, ThreadId};
use serde_json::{Value, json};

/// The call to explain. Times are nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub struct CallToExplain {
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The called function, if known.
    pub site: Option<SiteId>,
    /// Beginning of the call.
    pub from_ns: u64,
    /// End of the call.
    pub to_ns: u64,
}

/// Explains the duration of a call: `did`, as in [`super::why`]'s JSON, and `links`, one for each
/// thread of the chain: beginning and length of its part in the chain, and its waits there, each
/// with beginning, length, and the thread that ended it, or null. Times of links count from
/// `origin`.
pub fn why_call(source: &dyn Source, asked: CallToExplain, origin: u64) -> Result<Value, Error> {
    let names = Names::new(source.meta(), false);
    let (from, to) = (ticks_at(source, asked.from_ns), ticks_at(source, asked.to_ns));
    let mut chains = Chains::new(source);
    let chain = chains.chain(asked.thread, from, to)?;
    chains.stacks.answer(source)?;
    let unknown = text::unknown(source.meta(), source.has_switches(), chains.know_wakers()?);
    let descriptions = Descriptions::new(source, &names, &chains.stacks);
    let mut links = Vec::new();
    add_links(source, &chain, origin, &mut links);
    Ok(json!({
        "unknown": unknown,
        "did": did(&descriptions, &chain, asked.site),
        "links": links,
    }))
}

fn add_links(source: &dyn Source, chain: &Chain, origin: u64, links: &mut Vec<Value>) {
    let at = |ticks| source.to_ns(ticks).saturating_sub(origin);
    let Span { start, end } = chain.time;
    let waits = chain.waits.iter().map(|waited| {
        let waker = match &waited.waker {
            Waker::Thread(thread, _) if !waited.is_tracing => Some(thread.0),
            _ => None,
        };
        json!([at(waited.time.start), at(waited.time.end) - at(waited.time.start), waker])
    });
    let waits: Vec<Value> = waits.collect();
    links.push(
        json!({ "thread": chain.thread.0, "start": at(start), "length": at(end) - at(start), "waits": waits }),
    );
    let meanwhile = chain.waits.iter().filter_map(|waited| waited.meanwhile.as_ref());
    meanwhile.for_each(|chain| add_links(source, chain, origin, links));
}

/// Returns the first tick that is no earlier than `ns`.
fn ticks_at(source: &dyn Source, ns: u64) -> u64 {
    let (mut low, mut high) = (0, u64::MAX >> 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if source.to_ns(middle) < ns { low = middle + 1 } else { high = middle }
    }
    low
}
