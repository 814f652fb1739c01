//! The records of all processors, in the order of their times.
//!
//! A thread leaves one processor and comes back on another, whose ring is read earlier or later. So what was read waits until all rings must
//! have shown what happened before.

use crate::happened::Happened;
use crate::records::Item;
use calltap_trace::{Switch, SystemCall, Waking};

/// A record that is older than this when the rings are read is in its ring by then: the kernel writes it with interrupts disabled.
pub(crate) const SETTLED_NS: u64 = 1_000_000;

/// Something that has a time, in nanoseconds of CLOCK_MONOTONIC.
pub trait Timed {
    /// The time.
    fn at(&self) -> u64;
}

impl Timed for Switch {
    fn at(&self) -> u64 {
        self.at
    }
}

impl Timed for Waking {
    fn at(&self) -> u64 {
        self.at
    }
}

impl Timed for SystemCall {
    fn at(&self) -> u64 {
        self.at
    }
}

impl Timed for Happened {
    fn at(&self) -> u64 {
        self.at
    }
}

/// What a ring held.
pub(crate) struct Taken<T> {
    /// Its records, oldest first.
    pub(crate) items: Vec<Item<T>>,
    /// There was no room for another.
    pub(crate) was_full: bool,
}

/// What the kernel says of threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<T> {
    /// This happened to the thread of this id.
    Of(u32, T),
    /// Records were lost.
    Lost {
        /// What happened to any thread from here on is not known:
        from: u64,
        /// up to here.
        to: u64,
    },
}

/// A record, or a stretch of time in which records are missing.
#[derive(Clone, Debug)]
enum Waiting<T> {
    Of(u32, T),
    Gap { from: u64, to: u64 },
}

impl<T: Timed> Waiting<T> {
    fn at(&self) -> u64 {
        match self {
            Self::Of(_, what) => what.at(),
            Self::Gap { from, .. } => *from,
        }
    }
}

/// Puts records in order.
pub(crate) struct Order<T> {
    waiting: Vec<Waiting<T>>,
    /// By ring: its newest record.
    newest: Vec<u64>,
    /// Single records before this tell nothing: others are missing.
    blind_until: u64,
    /// Everything before this was handed out.
    until: u64,
    /// Records that were lost.
    pub(crate) lost: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { waiting: Vec::new(), newest: Vec::new(), blind_until: 0, until: 0, lost: 0 }
    }
}

impl<T: Timed + Clone> Order<T> {
    /// Takes what the rings held at `now`, and hands out what is complete. Until when it is.
    pub(crate) fn take(&mut self, rings: Vec<Taken<T>>, now: u64, give: &mut dyn FnMut(Change<T>)) -> u64 {
        let mut until = now.saturating_sub(SETTLED_NS);
        self.newest.resize(rings.len(), 0);
        for (newest, Taken { items, was_full }) in self.newest.iter_mut().zip(rings) {
            for item in items {
                let at = match item {
                    Item::Of(tid, what) => {
                        let at = what.at();
                        self.waiting.push(Waiting::Of(tid, what));
                        at
                    }
                    Item::Lost { at, lost } => {
                        self.lost += lost;
                        self.waiting.push(Waiting::Gap { from: *newest, to: at });
                        at
                    }
                };
                *newest = at.max(*newest);
            }
            if was_full {
                // What is missing since is told by the ring's next record.
                until = until.min(*newest);
            }
        }
        self.until = until.max(self.until);
        self.waiting.sort_by_key(Waiting::at);
        let rest = self.waiting.split_off(self.waiting.partition_point(|item| item.at() <= self.until));
        for item in std::mem::replace(&mut self.waiting, rest) {
            hand_out(&item, &mut self.blind_until, give);
        }
        self.until
    }

    /// Hands out what waits of a thread that has ended.
    pub(crate) fn rest_of(&mut self, ended: u32, give: &mut dyn FnMut(Change<T>)) {
        let mut blind_until = self.blind_until;
        self.waiting.retain(|item| match item {
            Waiting::Of(tid, _) if *tid != ended => true,
            Waiting::Of(..) => {
                hand_out(item, &mut blind_until, give);
                false
            }
            Waiting::Gap { .. } => {
                hand_out(item, &mut blind_until, &mut |_| ());
                true
            }
        });
    }
}

fn hand_out<T: Timed + Clone>(item: &Waiting<T>, blind_until: &mut u64, give: &mut dyn FnMut(Change<T>)) {
    match item {
        Waiting::Of(tid, what) if what.at() >= *blind_until => give(Change::Of(*tid, what.clone())),
        Waiting::Of(..) => {}
        Waiting::Gap { from, to } => {
            *blind_until = (*to).max(*blind_until);
            give(Change::Lost { from: *from, to: *to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::RunState::{self, *};
    use proptest::prelude::*;

    fn switch(at: u64, tid: u32, to: RunState) -> Item<Switch> {
        Item::Of(tid, Switch { at, to })
    }

    fn ring(items: &[Item<Switch>]) -> Taken<Switch> {
        Taken { items: items.to_vec(), was_full: false }
    }

    fn of(tid: u32, at: u64, to: RunState) -> Change<Switch> {
        Change::Of(tid, Switch { at, to })
    }

    fn take(order: &mut Order<Switch>, rings: Vec<Taken<Switch>>, now: u64) -> Vec<Change<Switch>> {
        let mut changes = Vec::new();
        order.take(rings, now, &mut |change| changes.push(change));
        changes
    }

    const MS: u64 = SETTLED_NS;

    #[test]
    fn a_thread_that_moves_is_told_of_in_order() {
        let mut order = Order::default();
        let rings = vec![ring(&[switch(5 * MS, 1, Running)]), ring(&[switch(4 * MS, 1, Blocked)])];
        assert_eq!(take(&mut order, rings, 5 * MS), [of(1, 4 * MS, Blocked)]);
        let rings = vec![ring(&[]), ring(&[])];
        assert_eq!(take(&mut order, rings, 6 * MS), [of(1, 5 * MS, Running)]);
    }

    #[test]
    fn an_ended_thread_need_not_wait() {
        let mut order = Order::default();
        let rings = vec![ring(&[switch(5 * MS, 1, Blocked), switch(5 * MS, 2, Blocked)])];
        assert_eq!(take(&mut order, rings, 5 * MS), []);
        let mut changes = Vec::new();
        order.rest_of(1, &mut |change| changes.push(change));
        assert_eq!(changes, [of(1, 5 * MS, Blocked)]);
        assert_eq!(take(&mut order, vec![ring(&[])], 9 * MS), [of(2, 5 * MS, Blocked)]);
    }

    #[test]
    fn nothing_is_told_of_a_time_in_which_records_are_missing() {
        let mut order = Order::default();
        let full = Taken { items: vec![switch(10 * MS, 1, Running)], was_full: true };
        let other = ring(&[switch(12 * MS, 1, Blocked), switch(30 * MS, 1, Blocked)]);
        assert_eq!(take(&mut order, vec![full, other], 20 * MS), [of(1, 10 * MS, Running)]);
        let next = ring(&[Item::Lost { at: 25 * MS, lost: 3 }, switch(25 * MS, 2, Running)]);
        let expected =
            [Change::Lost { from: 10 * MS, to: 25 * MS }, of(2, 25 * MS, Running), of(1, 30 * MS, Blocked)];
        assert_eq!(take(&mut order, vec![next, ring(&[])], 40 * MS), expected);
        assert_eq!(order.lost, 3);
    }

    proptest! {
        /// However records are spread over rings and reads, they come out once and in order; of one moment, in that of reads, and of the rings in a read.
        #[test]
        fn all_come_out_once_in_order(steps in proptest::collection::vec((0..3_usize, 0..3_u64 * MS, any::<bool>()), 1..60)) {
            let (mut order, mut now, mut expected, mut got) = (Order::default(), MS, Vec::new(), Vec::new());
            let mut reads = 0;
            let mut rings: Vec<Vec<Item<Switch>>> = vec![Vec::new(); 3];
            for (tid, (place, step, read)) in (0..).zip(steps) {
                now += step;
                rings[place].push(switch(now, tid, Running));
                expected.push((now, reads, place, of(tid, now, Running)));
                if read {
                    reads += 1;
                    let taken = rings.iter_mut().map(|items| ring(&std::mem::take(items))).collect();
                    order.take(taken, now, &mut |change| got.push(change));
                    prop_assert!(got.len() == expected.iter().filter(|(at, ..)| at + MS <= now).count());
                }
            }
            let taken = rings.iter().map(|items| ring(items)).collect();
            order.take(taken, now + MS, &mut |change| got.push(change));
            expected.sort_by_key(|(at, read, place, _)| (*at, *read, *place));
            let expected: Vec<Change<Switch>> = expected.into_iter().map(|(.., change)| change).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
