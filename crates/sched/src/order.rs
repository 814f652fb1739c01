//! Merges the records of all processors in the order of their times.
//!
//! A thread leaves one processor and resumes on another, whose ring is read earlier or later. So
//! records wait until all rings must have delivered what happened before.

use crate::records::Item;
use crate::thread_event::ThreadEvent;
use calltap_trace::{Switch, SystemCall, Waking};

/// Age at which a record is certainly in its ring: the kernel writes it with interrupts disabled.
pub(crate) const SETTLED_NS: u64 = 1_000_000;

/// A record with a time.
pub trait Timed {
    /// Returns the time, nanoseconds of CLOCK_MONOTONIC.
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

impl Timed for ThreadEvent {
    fn at(&self) -> u64 {
        self.at
    }
}

/// Contents of a ring.
pub(crate) struct Taken<T> {
    /// Records, oldest first.
    pub(crate) items: Vec<Item<T>>,
    /// Whether the ring had no room for another record before it was read.
    pub(crate) was_full: bool,
}

/// A change of a thread's state, or a loss of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<T> {
    /// A record of the thread with this id.
    Of(u32, T),
    /// Records of any thread were lost.
    Lost {
        /// Start of the unknown time.
        from: u64,
        /// End of the unknown time.
        to: u64,
    },
    /// Records of a thread that has ended may have been lost.
    LostOf {
        /// Id of the thread.
        tid: u32,
        /// Start of the unknown time.
        from: u64,
        /// End of the unknown time.
        to: u64,
    },
}

/// A record, or an interval in which records are missing.
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

/// Merges records in order.
pub(crate) struct Order<T> {
    waiting: Vec<Waiting<T>>,
    /// Time of each ring's newest record, or of its last gap's end if that is later, and whether it
    /// was full when it was read last.
    newest: Vec<(u64, bool)>,
    /// Time until which single records are dropped, as others are missing.
    blind_until: u64,
    /// Time until which everything was handed out.
    until: u64,
    /// Number of lost records.
    pub(crate) lost: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { waiting: Vec::new(), newest: Vec::new(), blind_until: 0, until: 0, lost: 0 }
    }
}

impl<T: Timed + Clone> Order<T> {
    /// Takes the contents that the rings have had at some moment between `now` and `read`, and
    /// hands out the part that is complete. Returns the time until which it is.
    pub(crate) fn take(
        &mut self,
        rings: Vec<Taken<T>>,
        now: u64,
        read: u64,
        give: &mut dyn FnMut(Change<T>),
    ) -> u64 {
        let until = now.saturating_sub(SETTLED_NS);
        self.newest.resize(rings.len(), (0, false));
        for ((newest, is_reported), Taken { items, was_full }) in self.newest.iter_mut().zip(rings) {
            for (index, item) in items.into_iter().enumerate() {
                let at = match item {
                    Item::Of(tid, what) => {
                        let at = what.at();
                        self.waiting.push(Waiting::Of(tid, what));
                        at
                    }
                    Item::Lost { at, lost } => {
                        self.lost += lost;
                        if index > 0 || !*is_reported {
                            self.waiting.push(Waiting::Gap { from: *newest, to: at });
                        }
                        at
                    }
                };
                *newest = at.max(*newest);
            }
            // The ring's next record reports the number of missing ones. It may never come, as
            // after the end of the program.
            if was_full {
                self.waiting.push(Waiting::Gap { from: *newest, to: read });
                *newest = read.max(*newest);
            }
            *is_reported = was_full;
        }
        self.until = until.max(self.until);
        self.waiting.sort_by_key(Waiting::at);
        let rest = self.waiting.split_off(self.waiting.partition_point(|item| item.at() <= self.until));
        for item in std::mem::replace(&mut self.waiting, rest) {
            hand_out(&item, &mut self.blind_until, give);
        }
        self.until
    }

    /// Hands out the waiting records of a thread that has ended.
    pub(crate) fn rest_of(&mut self, ended: u32, give: &mut dyn FnMut(Change<T>)) {
        let mut blind_until = self.blind_until;
        self.waiting.retain(|item| match item {
            Waiting::Of(tid, _) if *tid != ended => true,
            Waiting::Of(..) => {
                hand_out(item, &mut blind_until, give);
                false
            }
            Waiting::Gap { from, to } => {
                blind_until = blind_until.max(*to);
                give(Change::LostOf { tid: ended, from: *from, to: *to });
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
        order.take(rings, now, now, &mut |change| changes.push(change));
        changes
    }

    const MS: u64 = SETTLED_NS;

    #[test]
    fn records_of_migrating_thread_are_ordered() {
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
    fn time_with_missing_records_is_unknown() {
        let mut order = Order::default();
        let full = Taken { items: vec![switch(10 * MS, 1, Running)], was_full: true };
        let other = ring(&[switch(12 * MS, 1, Blocked), switch(30 * MS, 1, Blocked)]);
        let gap = Change::Lost { from: 10 * MS, to: 20 * MS };
        assert_eq!(take(&mut order, vec![full, other], 20 * MS), [of(1, 10 * MS, Running), gap]);
        // The number of missing records is known once the ring has another one.
        let next = ring(&[Item::Lost { at: 25 * MS, lost: 3 }, switch(25 * MS, 2, Running)]);
        let expected = [of(2, 25 * MS, Running), of(1, 30 * MS, Blocked)];
        assert_eq!(take(&mut order, vec![next, ring(&[])], 40 * MS), expected);
        let later = ring(&[Item::Lost { at: 50 * MS, lost: 4 }, switch(50 * MS, 2, Blocked)]);
        let gap = Change::Lost { from: 25 * MS, to: 50 * MS };
        assert_eq!(take(&mut order, vec![later], 60 * MS), [gap, of(2, 50 * MS, Blocked)]);
        assert_eq!(order.lost, 7);
    }

    #[test]
    fn state_of_a_thread_that_ends_behind_a_full_ring_is_unknown() {
        let mut order = Order::default();
        let full = Taken { items: vec![switch(20 * MS, 1, Blocked)], was_full: true };
        assert_eq!(take(&mut order, vec![full], 20 * MS), []);
        let mut changes = Vec::new();
        order.rest_of(1, &mut |change| changes.push(change));
        assert_eq!(changes, [of(1, 20 * MS, Blocked), Change::LostOf { tid: 1, from: 20 * MS, to: 20 * MS }]);
    }

    proptest! {
        /// However records are spread over rings and reads, they come out once and in order; those
        /// of one moment in the order of reads, and of rings within a read.
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
                    order.take(taken, now, now, &mut |change| got.push(change));
                    prop_assert!(got.len() == expected.iter().filter(|(at, ..)| at + MS <= now).count());
                }
            }
            let taken = rings.iter().map(|items| ring(items)).collect();
            order.take(taken, now + MS, now + MS, &mut |change| got.push(change));
            expected.sort_by_key(|(at, read, place, _)| (*at, *read, *place));
            let expected: Vec<Change<Switch>> = expected.into_iter().map(|(.., change)| change).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
