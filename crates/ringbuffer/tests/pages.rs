//! Pages are read back by a decoder that knows only the kernel's documentation of them.

use calltap_ringbuffer::{MAX_RECORD_LEN, PAGE_SIZE, Page, Stream, SubBuffer};
use proptest::collection::vec;
use proptest::prelude::*;

/// The decoded contents of a page.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    missed: Option<u64>,
    /// Times and payloads.
    events: Vec<(u64, Vec<u8>)>,
}

fn u32_at(page: &Page, at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

fn u64_at(page: &Page, at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn decode(page: &Page) -> Decoded {
    let (mut time, commit) = (u64_at(page, 0), u64_at(page, 8));
    let end = 16 + (commit & 0xfffff) as usize;
    assert!(end <= PAGE_SIZE && end.is_multiple_of(4), "{commit:x}");
    assert_eq!(commit & !(0xfffff | 3 << 30), 0, "{commit:x}");
    let missed = (commit >> 31 & 1 == 1).then(|| {
        assert_eq!(commit >> 30 & 1, 1, "missed events are always counted");
        u64_at(page, end)
    });
    let used = end + if missed.is_some() { 8 } else { 0 };
    assert!(page[used..].iter().all(|&byte| byte == 0), "the rest is zero");
    let (mut events, mut at) = (Vec::new(), 16);
    while at < end {
        let word = u32_at(page, at);
        let (kind, delta) = (word & 31, u64::from(word >> 5));
        at += 4;
        time += delta;
        let size = match kind {
            0 => {
                let size = u32_at(page, at) as usize - 4;
                at += 4;
                size
            }
            1..=28 => kind as usize * 4,
            30 => {
                time += u64::from(u32_at(page, at)) << 27;
                at += 4;
                continue;
            }
            other => panic!("an event of kind {other}"),
        };
        events.push((time, page[at..at + size].to_vec()));
        at += size;
    }
    assert_eq!(at, end);
    Decoded { missed, events }
}

fn padded(record: &[u8]) -> Vec<u8> {
    let mut record = record.to_vec();
    record.resize(record.len().div_ceil(4).max(1) * 4, 0);
    record
}

/// A step of a test on a stream.
#[derive(Clone, Debug)]
enum Step {
    Event { later: u64, record: Vec<u8> },
    Missed(u64),
}

fn later() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..200,
        (1_u64 << 27) - 2..(1 << 27) + 2,
        1_u64 << 27..1 << 40,
        (1_u64 << 59) - 2..(1 << 59) + 2,
        Just(1_u64 << 61),
    ]
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => vec(1_u8.., 1..48),
        3 => vec(1_u8.., 100..130),
        1 => vec(1_u8.., MAX_RECORD_LEN - 9..=MAX_RECORD_LEN),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (later(), record()).prop_map(|(later, record)| Step::Event { later, record }),
        1 => (1_u64..u64::MAX / 400).prop_map(Step::Missed),
    ]
}

proptest! {
    #[test]
    fn events_keep_their_times_and_losses_their_positions(steps in vec(step(), 0..300)) {
        let (mut stream, mut pages) = (Stream::new(), Vec::new());
        let (mut time, mut owed, mut expected) = (1_u64 << 50, 0, Vec::new());
        for step in &steps {
            match step {
                Step::Event { later, record } => {
                    time = time.saturating_add(*later);
                    expected.push((time, padded(record), std::mem::take(&mut owed)));
                    stream.push(time, record, |page| pages.push(*page));
                }
                Step::Missed(events) => {
                    owed += events;
                    stream.miss(*events);
                }
            }
            prop_assert_eq!(stream.owes_missed(), owed > 0);
        }
        stream.finish(|page| pages.push(*page));
        let mut found = Vec::new();
        for page in &pages {
            let Decoded { mut missed, events } = decode(page);
            prop_assert!(!events.is_empty());
            for (time, record) in events {
                found.push((time, record, missed.take().unwrap_or(0)));
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_page_is_left_only_when_the_next_event_does_not_fit(sizes in vec(1_usize..200, 1..400)) {
        let (mut stream, mut pages) = (Stream::new(), Vec::new());
        for (time, &size) in (0..).zip(&sizes) {
            stream.push(time, &vec![7; size], |page| pages.push(*page));
        }
        for page in &pages {
            let used = 16 + (u64_at(page, 8) & 0xfffff) as usize;
            prop_assert!(used + 8 + 200 > PAGE_SIZE, "{}", used);
        }
    }
}

#[test]
fn an_event_that_is_older_than_its_predecessor_gets_its_time() {
    let (mut stream, mut pages) = (Stream::new(), Vec::new());
    for time in [100, 90, 110] {
        stream.push(time, b"abcd", |page| pages.push(*page));
    }
    stream.finish(|page| pages.push(*page));
    let times: Vec<u64> = decode(&pages[0]).events.iter().map(|event| event.0).collect();
    assert_eq!((pages.len(), times), (1, vec![100, 100, 110]));
}

#[test]
fn an_empty_stream_has_no_pages_and_an_empty_page_no_data() {
    let mut stream = Stream::new();
    stream.miss(3);
    stream.finish(|_| panic!("a page without events"));
    assert!(stream.owes_missed());
    assert_eq!(decode(SubBuffer::new().page()), Decoded::default());
}

#[test]
fn record_longer_than_a_page_is_cut() {
    let (mut stream, mut pages) = (Stream::new(), Vec::new());
    stream.miss(1);
    stream.push(1, &[9; PAGE_SIZE], |page| pages.push(*page));
    stream.finish(|page| pages.push(*page));
    let Decoded { missed, events } = decode(&pages[0]);
    assert_eq!((missed, events.len()), (Some(1), 1));
    assert_eq!(events[0].1, padded(&[9; MAX_RECORD_LEN]));
}

#[test]
fn a_page_that_was_cleared_is_as_new() {
    let mut page = SubBuffer::new();
    page.miss(5);
    while page.push(1 << 60, b"0123456789ab") {}
    page.clear();
    assert!(page.is_empty() && page.page() == &[0; PAGE_SIZE]);
}
