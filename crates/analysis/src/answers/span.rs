//! The time between two calls that share a value: `handle@arg1 .. finish@arg1`,
//! `accept@retval .. close@arg1`.
//!
//! An argument is known when its call begins, a result when its call returns: a span lies between
//! these moments. Moments are matched in time order across threads. If events were lost while a
//! span was open, its end or a second beginning may be missing, so that span counts as unknown.

mod matching;

use super::{Buckets, EndedCall, Entered, QueryContext, Question};
use crate::tree::Ending;
use crate::values::FormattedValue;
use calltap_trace::ThreadId;
use matching::{Matches, Moment, Task};
use serde_json::Value;

/// Maximum number of waiting moments; when it is reached, the older half is matched.
const WAITING: usize = 1 << 20;

/// The beginning or the end of spans.
#[derive(Clone, Debug)]
pub struct Side {
    /// The user's text, `FUNCTION@ITEM`.
    pub text: String,
    /// Name of the value, without its format.
    pub item: String,
    /// Whether the value is a result, read when the call returns.
    pub returns: bool,
}

/// The answer to `span`. The first glob asked about names the functions that begin spans, the
/// second those that end them.
pub struct Spans {
    sides: [Side; 2],
    waiting: Vec<Moment>,
    /// Intervals, in ticks, in which events were lost.
    losses: Vec<(u64, u64)>,
    matches: Matches,
    /// Moments before this time, in ticks, are matched already.
    settled: u64,
    /// Whether a loss was reported after spans of its time had been matched.
    late: bool,
    unread: u64,
    /// Calls whose result would begin a span, and is -1: they have failed.
    failed: u64,
}

/// Whether a result is -1 of some width, by which functions report errors (MAP_FAILED, too).
fn is_error(result: &FormattedValue) -> bool {
    let unsigned = [u64::from(u32::MAX), u64::MAX];
    result.json.as_i64() == Some(-1) || result.json.as_u64().is_some_and(|result| unsigned.contains(&result))
}

impl Spans {
    /// Makes an answer without spans; the slowest `limit` are shown one by one.
    pub fn new(sides: [Side; 2], buckets: Buckets, limit: usize) -> Spans {
        let matches = Matches::new(buckets, limit);
        let (waiting, losses) = (Vec::new(), Vec::new());
        Spans { sides, waiting, losses, matches, settled: 0, late: false, unread: 0, failed: 0 }
    }

    fn moment(
        &mut self,
        known: &mut QueryContext,
        side: usize,
        thread: ThreadId,
        ticks: u64,
        values: &[FormattedValue],
    ) {
        let item = &self.sides[side].item;
        let named = values.iter().find(|shown| shown.name == *item);
        match named.filter(|shown| !shown.json.is_null()) {
            Some(shown) if side == 0 && self.sides[side].returns && is_error(shown) => self.failed += 1,
            Some(shown) => {
                let value = (known.process_of(thread), shown.text.as_str().into());
                // A thread is removed from `QueryContext` when it ends, so its name is taken now.
                let thread = Task { tid: known.tid(thread), name: known.number_of(known.task(thread)) };
                self.waiting.push(Moment { ticks, begins: side == 0, thread, value });
                if self.waiting.len() >= WAITING {
                    self.settle(known);
                }
            }
            None => self.unread += 1,
        }
    }

    /// Matches the older half of the waiting moments.
    fn settle(&mut self, known: &QueryContext) {
        self.waiting.sort_by_key(|moment| moment.ticks);
        let half = self.waiting.len() / 2;
        self.settled = self.waiting[half].ticks;
        let older: Vec<Moment> = self.waiting.drain(..half).collect();
        self.matches.take(known, &older, &self.losses);
    }

    /// Returns the matches of all moments so far, including the waiting ones.
    fn matched(&self, known: &QueryContext) -> Matches {
        let (mut waiting, mut matches) = (self.waiting.clone(), self.matches.clone());
        waiting.sort_by_key(|moment| moment.ticks);
        matches.take(known, &waiting, &self.losses);
        matches
    }
}

impl Question for Spans {
    fn entered(&mut self, known: &mut QueryContext, entered: &Entered<'_>) {
        for side in 0..2 {
            if !self.sides[side].returns && known.is_named_by(entered.function, side) {
                self.moment(known, side, entered.thread, entered.ticks, entered.arguments);
            }
        }
    }

    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        for side in 0..2 {
            if self.sides[side].returns && known.is_named_by(ended.function, side) {
                match ended.call.ending {
                    Ending::Running | Ending::Detached => {}
                    _ => self.moment(known, side, ended.thread, ended.call.end, ended.results),
                }
            }
        }
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.late |= from < self.settled;
        self.losses.push((from, to));
    }

    fn text(&self, known: &QueryContext) -> String {
        let matches = self.matched(known);
        let mut text = matches.text(known, &self.sides, &self.losses);
        if self.unread > 0 {
            text +=
                &format!("# the value could not be read of {}\n", crate::units::counted(self.unread, "call"));
        }
        if self.failed > 0 {
            text +=
                &format!("# {} returned -1, and began no span\n", crate::units::counted(self.failed, "call"));
        }
        if self.late {
            let time = known.stamp(self.settled);
            text += &format!(
                "# events were lost before {time}, which became known late: spans until then may be wrong\n"
            );
        }
        text
    }

    fn json(&self, known: &QueryContext) -> Value {
        let mut object = self.matched(known).json(known, &self.sides, &self.losses);
        object["unread_values"] = self.unread.into();
        object["failed"] = self.failed.into();
        object["lost_late"] = self.late.into();
        object
    }
}
