//! The time between two calls that share a value: `handle@arg1 .. finish@arg1`, `accept@retval .. close@arg1`.
//!
//! An argument is known when its call begins, a result when it returns: these are the moments between which a span lies. They are matched in
//! the order of time, whatever the threads. Where anything was lost while a span was open, an end or another beginning of it may be
//! missing: such a span is unknown.

mod matching;

use super::{Buckets, Entered, Known, Over, Question};
use crate::tree::Ending;
use crate::values::Shown;
use calltap_trace::ThreadId;
use matching::{Matches, Moment, Task};
use serde_json::Value;

/// Moments that wait to be matched, at most: of more, the older half is.
const WAITING: usize = 1 << 20;

/// One of the two ends of spans.
#[derive(Clone, Debug)]
pub struct Side {
    /// As the user wrote it, `FUNCTION@ITEM`.
    pub text: String,
    /// The value, without its form.
    pub item: String,
    /// It is read when the call returns.
    pub returns: bool,
}

/// Keeps spans. The functions of the beginning are those of the first glob that is asked about, those of the end of the second.
pub struct Spans {
    sides: [Side; 2],
    waiting: Vec<Moment>,
    /// Events were lost between these times, ticks.
    losses: Vec<(u64, u64)>,
    matches: Matches,
    /// What was before this is matched already.
    settled: u64,
    /// A loss became known after spans of its time had been matched.
    late: bool,
    unread: u64,
}

impl Spans {
    /// None yet; the slowest `limit` are shown each.
    pub fn new(sides: [Side; 2], buckets: Buckets, limit: usize) -> Spans {
        let matches = Matches::new(buckets, limit);
        Spans { sides, waiting: Vec::new(), losses: Vec::new(), matches, settled: 0, late: false, unread: 0 }
    }

    fn moment(&mut self, known: &mut Known, side: usize, thread: ThreadId, ticks: u64, values: &[Shown]) {
        let item = &self.sides[side].item;
        let named = values.iter().find(|shown| shown.name == *item);
        match named.filter(|shown| !shown.json.is_null()) {
            Some(shown) => {
                let value = (known.process_of(thread), shown.text.as_str().into());
                // The thread is forgotten when it ends.
                let thread = Task { tid: known.tid(thread), name: known.number_of(known.task(thread)) };
                self.waiting.push(Moment { ticks, begins: side == 0, thread, value });
                if self.waiting.len() >= WAITING {
                    self.settle(known);
                }
            }
            None => self.unread += 1,
        }
    }

    /// The older half of what waits is matched.
    fn settle(&mut self, known: &Known) {
        self.waiting.sort_by_key(|moment| moment.ticks);
        let half = self.waiting.len() / 2;
        self.settled = self.waiting[half].ticks;
        let older: Vec<Moment> = self.waiting.drain(..half).collect();
        self.matches.take(known, &older, &self.losses);
    }

    /// All there is by now, matched.
    fn matched(&self, known: &Known) -> Matches {
        let (mut waiting, mut matches) = (self.waiting.clone(), self.matches.clone());
        waiting.sort_by_key(|moment| moment.ticks);
        matches.take(known, &waiting, &self.losses);
        matches
    }
}

impl Question for Spans {
    fn entered(&mut self, known: &mut Known, entered: &Entered<'_>) {
        for side in 0..2 {
            if !self.sides[side].returns && known.is_named_by(entered.function, side) {
                self.moment(known, side, entered.thread, entered.ticks, entered.arguments);
            }
        }
    }

    fn over(&mut self, known: &mut Known, over: &Over<'_>) {
        for side in 0..2 {
            if self.sides[side].returns && known.is_named_by(over.function, side) {
                match over.call.ending {
                    Ending::Running | Ending::Detached => {}
                    _ => self.moment(known, side, over.thread, over.call.end, over.results),
                }
            }
        }
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.late |= from < self.settled;
        self.losses.push((from, to));
    }

    fn text(&self, known: &Known) -> String {
        let matches = self.matched(known);
        let mut text = matches.text(known, &self.sides, &self.losses);
        if self.unread > 0 {
            text +=
                &format!("# the value could not be read of {}\n", crate::units::counted(self.unread, "call"));
        }
        if self.late {
            let time = known.stamp(self.settled);
            text += &format!(
                "# events were lost before {time}, which became known late: spans until then may be wrong\n"
            );
        }
        text
    }

    fn json(&self, known: &Known) -> Value {
        let mut object = self.matched(known).json(known, &self.sides, &self.losses);
        object["unread"] = self.unread.into();
        object["lost_late"] = self.late.into();
        object
    }
}
