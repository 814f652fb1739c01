//! The shares of callees in the time of slow calls, printed where these end, for recordings of slow
//! calls.

use super::{Closed, Effect};
use crate::names::Names;
use crate::sources::source::Source;
use crate::units::percent;
use calltap_names::Word;
use calltap_trace::{Site, SiteId};

/// Maximum number of shares printed for a call.
const SAID: usize = 3;
/// Smallest share printed, percent.
const MIN_PERCENT: f64 = 1.0;
/// Calls print shares if they take at least `1 / WORTH` of the smallest limit around them.
const WORTH: u64 = 10;

/// A share of a call's time.
pub(super) struct Share {
    /// The callee; `None`: the call itself.
    pub(super) site: Option<SiteId>,
    pub(super) calls: u64,
    pub(super) percent: f64,
}

/// The limits beyond which calls are slow.
pub(super) struct Rules {
    /// Limit by site, nanoseconds.
    limits: Vec<Option<u64>>,
}

impl Rules {
    /// Returns the rules of a recording; most recordings have none.
    pub(super) fn of(source: &dyn Source) -> Option<Rules> {
        let meta = source.meta();
        let names = Names::new(meta, false);
        let rules: Vec<(Word, u64)> =
            meta.slow.iter().map(|rule| (Word::new(&rule.function), rule.ns)).collect();
        let limit =
            |site: &Site| rules.iter().filter(|(word, _)| names.is(site.id, word)).map(|(_, ns)| *ns).min();
        let limits = || meta.sites.iter().map(limit).collect();
        (!rules.is_empty() && source.has_time()).then(|| Rules { limits: limits() })
    }
}

/// An open call.
struct Open {
    /// The smallest limit of the call and those around it, nanoseconds.
    limit: Option<u64>,
    /// Callees with numbers of calls and ticks.
    called: Vec<(SiteId, u64, u64)>,
}

/// The open calls of a thread.
#[derive(Default)]
pub(super) struct Spent(Vec<Open>);

impl Spent {
    /// Processes an effect of an event, and returns the shares to print if it ends a slow call.
    pub(super) fn take(&mut self, rules: &Rules, source: &dyn Source, effect: &Effect) -> Vec<Share> {
        match effect {
            Effect::Enter(enter) => {
                let around = self.0.last().and_then(|open| open.limit);
                let own = rules.limits.get(enter.site.0 as usize).copied().flatten();
                let limit = [around, own].into_iter().flatten().min();
                self.0.push(Open { limit, called: Vec::new() });
            }
            Effect::Close(call) => {
                let Some(open) = self.0.pop() else { return Vec::new() };
                if let Some(caller) = self.0.last_mut().filter(|caller| caller.limit.is_some()) {
                    caller.add(call);
                }
                let enough = |limit: u64| source.duration_ns(call.total) >= (limit / WORTH).max(1);
                if open.limit.is_some_and(enough) && !open.called.is_empty() {
                    return open.shares(call);
                }
            }
            _ => {}
        }
        Vec::new()
    }
}

impl Open {
    fn add(&mut self, call: &Closed) {
        match self.called.iter_mut().find(|(site, ..)| *site == call.site) {
            Some((_, calls, ticks)) => (*calls, *ticks) = (*calls + 1, *ticks + call.total),
            None => self.called.push((call.site, 1, call.total)),
        }
    }

    fn shares(self, call: &Closed) -> Vec<Share> {
        let share = |site, calls, ticks| Share { site, calls, percent: percent(ticks, call.total) };
        let called = self.called.into_iter().map(|(site, calls, ticks)| share(Some(site), calls, ticks));
        let mut all: Vec<Share> = called.chain([share(None, 1, call.self_ticks)]).collect();
        all.sort_by(|a, b| b.percent.total_cmp(&a.percent));
        all.truncate(SAID);
        all.retain(|share| share.percent >= MIN_PERCENT);
        all
    }
}
