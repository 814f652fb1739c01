//! The kernel's records of context switches, read from bytes.
//!
//! A record is a header, what its kind adds, and the thread and the time that every record ends with (`sample_id_all`).

use calltap_trace::RunState;
use perf_event_open_sys::bindings::{
    PERF_RECORD_LOST, PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SWITCH,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    kind: u32,
    misc: u16,
    size: u16,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SampleId {
    pid: u32,
    tid: u32,
    time: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Lost {
    id: u64,
    lost: u64,
}

const HEADER: usize = size_of::<Header>();
/// The records that are made here.
pub(crate) const SWITCH: usize = HEADER + size_of::<SampleId>();
const LOST: usize = SWITCH + size_of::<Lost>();

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// From `at` on, the thread does this.
    Switch { at: u64, tid: u32, to: RunState },
    /// Before `at`, so many records found no room.
    Lost { at: u64, lost: u64 },
}

/// Hands the records in `bytes` to `take`; what is no whole record ends it.
pub(crate) fn read(mut bytes: &[u8], take: &mut dyn FnMut(Item)) {
    while let Ok((header, _)) = Header::read_from_prefix(bytes) {
        let size = usize::from(header.size);
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= HEADER) else { return };
        bytes = rest;
        item(&header, &record[HEADER..]).into_iter().for_each(&mut *take);
    }
}

fn item(header: &Header, body: &[u8]) -> Option<Item> {
    let (_, SampleId { tid, time: at, .. }) = SampleId::read_from_suffix(body).ok()?;
    match (header.kind, usize::from(header.size)) {
        (PERF_RECORD_SWITCH, SWITCH..) => {
            let has = |flag: u32| u32::from(header.misc) & flag != 0;
            let to = match (has(PERF_RECORD_MISC_SWITCH_OUT), has(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT)) {
                (false, _) => RunState::Running,
                (true, true) => RunState::Runnable,
                (true, false) => RunState::Blocked,
            };
            Some(Item::Switch { at, tid, to })
        }
        (PERF_RECORD_LOST, LOST..) => {
            let (Lost { lost, .. }, _) = Lost::read_from_prefix(body).ok()?;
            Some(Item::Lost { at, lost })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u32, words: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * words.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &(misc as u16).to_le_bytes(), &size.to_le_bytes()].concat();
        header.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    fn all(bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        read(bytes, &mut |item| items.push(item));
        items
    }

    const ID: u64 = 7 << 32 | 5;

    #[test]
    fn switches_and_losses_are_read_and_the_rest_is_left_out() {
        let (out, preempted) = (PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
        let bytes = [
            record(PERF_RECORD_SWITCH, 0, &[ID, 10]),
            record(PERF_RECORD_SWITCH, out, &[ID, 20]),
            record(PERF_RECORD_SWITCH, out | preempted, &[ID, 30]),
            record(99, 0, &[1, 2, 3, ID, 40]),
            record(PERF_RECORD_LOST, 0, &[1, 17, ID, 50]),
        ];
        let switch = |at, to| Item::Switch { at, tid: 7, to };
        let expected = [
            switch(10, RunState::Running),
            switch(20, RunState::Blocked),
            switch(30, RunState::Runnable),
            Item::Lost { at: 50, lost: 17 },
        ];
        assert_eq!(all(&bytes.concat()), expected);
        assert_eq!(all(&bytes.concat()[..SWITCH + 9]), expected[..1]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(all(&bytes).len() <= bytes.len() / SWITCH);
        }
    }
}
