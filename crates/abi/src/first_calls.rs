//! Calls of the profiling function that no list names, recorded when each is made for the first
//! time.
//!
//! ```text
//! FIRST_CALLS_AT
//!   buckets: 2^10 words, each the first record of a chain (index plus one, 0 for none)
//!   record pages: 256 records each: return address, next record of the chain, process
//! ```
//!
//! Any number of threads, and signal handlers that interrupt them, [record](FirstCalls::record)
//! calls. Each takes a free record, fills it in, and puts it in front of its chain by one
//! compare-and-exchange; if that fails, it looks again for the call among the newer records. One
//! controller [takes](FirstCalls::take) whole chains. A record is allocated once and never freed,
//! so memory that a thread still reads stays a record.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Buckets of the hash (log2).
pub const BITS: u32 = 10;
/// Buckets.
pub const BUCKETS: usize = 1 << BITS;
/// Bytes of a page of records.
pub const PAGE: usize = crate::sizes::PAGE as usize;
/// Records of a page.
pub const IN_PAGE: usize = PAGE / size_of::<Record>();
/// Minimal number of records at the start.
pub const AT_START: usize = 10_000;
/// Maximum number of pages of records: more than can be converted before recording stops.
const PAGES: usize = 512;
/// Maximum number of records.
pub const RECORDS: usize = PAGES * IN_PAGE;
/// Bytes of the buckets.
pub const BUCKETS_SIZE: usize = BUCKETS * size_of::<AtomicU32>();
/// Bytes of buckets and records.
pub const SIZE: usize = BUCKETS_SIZE + PAGES * PAGE;
/// Fibonacci hashing: the golden ratio times 2^64.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Maximum number of records of a chain that are followed: the program shares the memory, and may
/// write anything.
pub const MAX_CHAIN: u32 = 8192;

/// State of the recording, part of [`crate::Control`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// 1 while no call is recorded.
    pub suspended: AtomicU32,
    /// Set when a call is recorded.
    pub trigger: AtomicU32,
    /// Records that may be used, as their memory is allocated. The controller raises it.
    pub limit: AtomicU32,
    /// Records taken so far.
    pub next: AtomicU32,
    /// Calls without a free record.
    pub skipped: AtomicU64,
}

/// A recorded call.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Return address; 0 if the code is gone.
    pub ip: AtomicU64,
    /// Next record of the chain: index plus one.
    pub next: AtomicU32,
    /// Index of the process, plus one.
    pub process: AtomicU32,
}

const _: () = assert!(size_of::<Record>() == 16 && BUCKETS_SIZE == PAGE);

/// Returns the bucket of a call.
pub(crate) const fn bucket(ip: u64) -> usize {
    (ip.wrapping_mul(GOLDEN) >> (64 - BITS)) as usize
}

/// Result of recording a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// The call is recorded now.
    New,
    /// The call was recorded before.
    Known,
    /// There is no free record. The call is found again when it is made again.
    Skipped,
}

/// The hash of recorded calls.
#[derive(Clone, Copy, Debug)]
pub struct FirstCalls<'a> {
    /// Counters.
    pub counters: &'a Counters,
    /// Buckets.
    pub buckets: &'a [AtomicU32; BUCKETS],
    /// Records.
    pub records: &'a [Record; RECORDS],
}

impl FirstCalls<'_> {
    /// Records a call with the return address `ip`, once. `process`: index plus one.
    pub fn record(&self, ip: u64, process: u32) -> Recorded {
        let Some(bucket) = self.buckets.get(bucket(ip)) else { return Recorded::Skipped };
        let mut head = bucket.load(Acquire);
        let mut own = None;
        loop {
            match self.find(head, ip, process) {
                Ok(false) => {}
                Ok(true) => return Recorded::Known,
                Err(()) => return self.skip(),
            }
            let (link, record) = match own {
                Some(own) => own,
                None => {
                    let Some((link, record)) = self.allocate() else { return self.skip() };
                    record.ip.store(ip, Relaxed);
                    record.process.store(process, Relaxed);
                    own = Some((link, record));
                    (link, record)
                }
            };
            record.next.store(head, Relaxed);
            match bucket.compare_exchange(head, link, AcqRel, Acquire) {
                Ok(_) => {
                    self.counters.trigger.store(1, Release);
                    return Recorded::New;
                }
                Err(found) => head = found,
            }
        }
    }

    fn skip(&self) -> Recorded {
        self.counters.skipped.fetch_add(1, Relaxed);
        Recorded::Skipped
    }

    /// Whether a chain contains the call. Fails if the chain is too long or broken.
    fn find(&self, mut link: u32, ip: u64, process: u32) -> Result<bool, ()> {
        for _ in 0..MAX_CHAIN {
            let Some(index) = link.checked_sub(1) else { return Ok(false) };
            let record = self.records.get(index as usize).ok_or(())?;
            if record.ip.load(Relaxed) == ip && record.process.load(Relaxed) == process {
                return Ok(true);
            }
            link = record.next.load(Relaxed);
        }
        Err(())
    }

    /// Allocates a record, among those with memory.
    fn allocate(&self) -> Option<(u32, &Record)> {
        let limit = (self.counters.limit.load(Acquire) as usize).min(RECORDS) as u32;
        let next = |index: u32| (index < limit).then_some(index + 1);
        let index = self.counters.next.fetch_update(Relaxed, Relaxed, next).ok()?;
        Some((index + 1, self.records.get(index as usize)?))
    }

    /// Takes all recorded calls, for the controller. `each` receives the record, the index of the
    /// process plus one, and the return address of each.
    pub fn take(&self, mut each: impl FnMut(u32, u32, u64)) {
        for bucket in self.buckets {
            let mut link = if bucket.load(Relaxed) == 0 { 0 } else { bucket.swap(0, AcqRel) };
            for _ in 0..MAX_CHAIN {
                let Some(index) = link.checked_sub(1) else { break };
                let Some(record) = self.records.get(index as usize) else { break };
                let (ip, process) = (record.ip.load(Relaxed), record.process.load(Relaxed));
                // Read before `each` may put the record back into another chain.
                link = record.next.load(Relaxed);
                if ip != 0 {
                    each(index, process, ip);
                }
            }
        }
    }

    /// Puts a taken record back, so that its call is not recorded again.
    pub fn put_back(&self, index: u32) {
        let Some(record) = self.records.get(index as usize) else { return };
        let Some(bucket) = self.buckets.get(bucket(record.ip.load(Relaxed))) else { return };
        let mut head = bucket.load(Acquire);
        loop {
            record.next.store(head, Relaxed);
            match bucket.compare_exchange(head, index + 1, AcqRel, Acquire) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Forgets a record that was put back, as its code is gone: other code may take its address.
    pub fn forget(&self, index: u32) {
        if let Some(record) = self.records.get(index as usize) {
            record.ip.store(0, Relaxed);
        }
    }

    /// Returns the number of records taken so far, and of those that may be.
    pub fn used(&self) -> (u32, u32) {
        let limit = self.counters.limit.load(Relaxed);
        (self.counters.next.load(Relaxed).min(limit), limit)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Mutex;
    use std::thread;
    use std::vec::Vec;

    /// Memory of a hash, as in a new file.
    struct Room {
        counters: Counters,
        buckets: Vec<AtomicU32>,
        records: Vec<Record>,
    }

    fn room(limit: usize) -> Room {
        let counters = Counters { limit: AtomicU32::new(limit as u32), ..Counters::default() };
        let buckets = (0..BUCKETS).map(|_| AtomicU32::new(0)).collect();
        Room { counters, buckets, records: (0..RECORDS).map(|_| Record::default()).collect() }
    }

    fn of(room: &Room) -> FirstCalls<'_> {
        let (buckets, records) = (room.buckets[..].try_into().unwrap(), room.records[..].try_into().unwrap());
        FirstCalls { counters: &room.counters, buckets, records }
    }

    fn taken(first: &FirstCalls<'_>) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        first.take(|_, process, ip| all.push((process, ip)));
        all.sort();
        all
    }

    #[test]
    fn call_is_recorded_once_and_again_after_being_taken() {
        let room = room(AT_START);
        let first = of(&room);
        assert_eq!(first.record(0x1000, 1), Recorded::New);
        assert_eq!(first.record(0x1000, 1), Recorded::Known);
        assert_eq!(first.record(0x1000, 2), Recorded::New, "another process's");
        assert_eq!(taken(&first), [(1, 0x1000), (2, 0x1000)]);
        assert_eq!(first.record(0x1000, 1), Recorded::New, "other code is there by now");
        assert_eq!(room.counters.trigger.load(Relaxed), 1);
    }

    #[test]
    fn without_a_free_record_a_call_is_skipped_and_found_again_later() {
        let room = room(2);
        let first = of(&room);
        let all: Vec<Recorded> = (1..=4).map(|ip| first.record(ip, 1)).collect();
        assert_eq!(all, [Recorded::New, Recorded::New, Recorded::Skipped, Recorded::Skipped]);
        assert_eq!(room.counters.skipped.load(Relaxed), 2);
        room.counters.limit.store(3, Relaxed);
        assert_eq!([first.record(3, 1), first.record(4, 1)], [Recorded::New, Recorded::Skipped]);
        assert_eq!(first.used(), (3, 3));
    }

    #[test]
    fn returned_record_is_not_recorded_again_until_forgotten() {
        let room = room(AT_START);
        let first = of(&room);
        first.record(0x1000, 1);
        let mut index = None;
        first.take(|record, _, _| index = Some(record));
        first.put_back(index.unwrap());
        assert_eq!(first.record(0x1000, 1), Recorded::Known);
        first.forget(index.unwrap());
        assert_eq!(first.record(0x1000, 1), Recorded::New);
        assert_eq!(taken(&first), [(1, 0x1000)]);
    }

    #[test]
    fn a_chain_made_a_ring_holds_no_thread_up() {
        let room = room(AT_START);
        let first = of(&room);
        first.record(0x1000, 1);
        room.records[0].next.store(1, Relaxed);
        let same = (1..).map(|n| 0x1000 + n).find(|ip| bucket(*ip) == bucket(0x1000)).unwrap();
        assert_eq!(first.record(same, 1), Recorded::Skipped);
        first.take(|_, _, _| {});
    }

    /// All threads record the same calls at the same time, while a controller takes them again and
    /// again.
    #[test]
    fn however_threads_meet_every_call_is_taken_and_none_twice_at_a_time() {
        const CALLS: u64 = 4000;
        for round in 0..30u64 {
            let room = room(RECORDS);
            let first = of(&room);
            // Some calls share a bucket.
            let ip = |n: u64| 0x40_0000 + n % CALLS * 7 + round;
            let (all, done) = (Mutex::new(BTreeMap::<u64, u32>::new()), AtomicU32::new(0));
            let take = || {
                let mut batch = BTreeSet::new();
                first.take(|_, process, ip| {
                    assert_eq!(process, 1);
                    batch.insert(ip);
                });
                let mut all = all.lock().unwrap();
                batch.iter().for_each(|ip| *all.entry(*ip).or_default() += 1);
            };
            thread::scope(|scope| {
                for turn in 0..4u64 {
                    let (first, done) = (&first, &done);
                    scope.spawn(move || {
                        for n in 0..CALLS {
                            assert_ne!(first.record(ip(n * (turn * 2 + 1) + turn), 1), Recorded::Skipped);
                        }
                        done.fetch_add(1, Relaxed);
                    });
                }
                if round % 2 == 0 {
                    while done.load(Relaxed) < 4 {
                        take();
                    }
                }
            });
            take();
            let all = all.lock().unwrap();
            let missing: Vec<u64> = (0..CALLS).map(ip).filter(|ip| !all.contains_key(ip)).collect();
            assert!(missing.is_empty(), "round {round}: {missing:x?}");
            assert_eq!(all.len() as u64, CALLS);
            // If no record is taken meanwhile, a chain never contains a call twice, even if several
            // threads add calls at the same time.
            if round % 2 == 1 {
                let linked = room.records.iter().filter(|record| record.ip.load(Relaxed) != 0).count() as u64;
                assert!(all.values().all(|times| *times == 1) && linked >= CALLS);
            }
        }
    }
}
