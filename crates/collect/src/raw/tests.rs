//! Chunks written by hand, read back.

use super::*;
use calltap_abi::event::{
    CLOCK_BITS, epoch_word, event_word, goroutine_words, parent_halves, parent_word, stack_word, start_words,
};

/// Creates a chunk with `words` at the start of its data.
fn chunk(words: &[u64]) -> Box<[AtomicU64; CHUNK_SIZE / 8]> {
    let chunk = Box::new([const { AtomicU64::new(0) }; CHUNK_SIZE / 8]);
    for (i, word) in words.iter().enumerate() {
        chunk[CHUNK_DATA / 8 + i].store(*word, Relaxed);
    }
    chunk
}

#[derive(Default)]
struct Taken(Vec<(u64, u32, u32, u64)>);

impl Sink for Taken {
    fn take_go(&mut self, event: RawEvent, goroutine: Goroutine, _: Vec<u8>) {
        self.0.push((event.ticks, event.plain().site().0, event.code(), goroutine.number << 48));
    }

    fn take_go_graph<T>(
        &mut self,
        words: &[T],
        goroutine: Goroutine,
        event: impl Fn(&T) -> RawEvent,
    ) -> usize {
        let row = words.iter().map(event).take(2);
        let row = row.take_while(|event| matches!(event.code(), code::GO_ENTRY | code::GO_EXIT));
        row.map(|event| self.take_go(event, goroutine, Vec::new())).count()
    }

    fn take(&mut self, event: RawEvent, _: &[u8], _: &[u8]) {
        self.0.push((event.ticks, event.site().0, event.code(), event.parent));
    }

    fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        self.row(words, event, &[code::ENTRY, code::EXIT])
    }

    fn take_calls<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
        self.row(words, event, &[code::CALL])
    }
}

impl Taken {
    /// Takes at most two events: reading continues where the sink stopped.
    fn row<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent, codes: &[u32]) -> usize {
        let row = words.iter().map(event).take(2).take_while(|event| codes.contains(&event.code()));
        row.map(|event| self.take(event, &[], &[])).count()
    }
}

fn word(ticks: u64, site: u32, code: u32) -> u64 {
    event_word(ticks, 0, site << 5 | code)
}

/// Returns the head of `bytes` bytes of values.
fn head(bytes: u64, site: u32, code: u32) -> u64 {
    bytes << 32 | u64::from(site << 5 | code)
}

#[test]
fn reading_stops_at_empty_slot_and_continues_once_filled() {
    let chunk = chunk(&[word(1, 3, code::ENTRY), 0, word(3, 3, code::EXIT)]);
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read(&chunk, &mut taken);
    assert_eq!(taken.0, [(1, 3, code::ENTRY, 0)]);
    chunk[CHUNK_DATA / 8 + 1].store(word(2, 4, code::ENTRY), Relaxed);
    cursor.read(&chunk, &mut taken);
    assert_eq!(taken.0[1..], [(2, 4, code::ENTRY, 0), (3, 3, code::EXIT, 0)]);
    assert!(chunk.iter().all(|word| word.load(Relaxed) == 0), "what was read is cleared");
}

/// Rows of every sort follow rows of every other, at both parities.
#[test]
fn rows_follow_each_other() {
    let mut words = Vec::new();
    let mut expected = Vec::new();
    for n in 0..200 {
        let site = n as u32;
        for kind in
            [[code::ENTRY, code::EXIT, code::CALL], [code::CALL, code::ENTRY_FROM, code::TAIL_ENTRY]][n % 2]
        {
            for _ in 0..n % 5 {
                words.push(word(n as u64 + 1, site, kind));
                let parent = if has_parent(kind) { 0x1000 + n as u64 } else { 0 };
                if parent != 0 {
                    words.push(parent_word(parent));
                }
                expected.push((n as u64 + 1, site, kind, parent));
            }
        }
        if n % 7 == 0 {
            words.push(code::PAD.into());
        }
    }
    let (chunk, mut cursor, mut taken) = (chunk(&words), Cursor::default(), Taken::default());
    cursor.read(&chunk, &mut taken);
    assert_eq!(taken.0, expected);
    assert_eq!(cursor.last_ticks(), 200);
    assert!(chunk.iter().all(|word| word.load(Relaxed) == 0));
}

/// The program can write any word: reading ends with the chunk.
#[test]
fn epochs_up_to_chunk_end_are_tolerated() {
    let chunk = chunk(&[]);
    for word in &chunk[..] {
        word.store(code::EPOCH.into(), Relaxed);
    }
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read(&chunk, &mut taken);
    assert!(taken.0.is_empty() && cursor.at_end());
}

#[test]
fn an_epoch_word_sets_the_upper_bits_from_its_event_on() {
    let words = [
        epoch_word(7 << CLOCK_BITS),
        word(5, 1, code::ENTRY),
        word(9, 1, code::EXIT),
        epoch_word(8 << CLOCK_BITS),
        word(1, 1, code::ENTRY),
    ];
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read(&chunk(&words), &mut taken);
    let ticks: Vec<u64> = taken.0.iter().map(|event| event.0).collect();
    assert_eq!(ticks, [7 << CLOCK_BITS | 5, 7 << CLOCK_BITS | 9, 8 << CLOCK_BITS | 1]);
}

#[test]
fn an_event_reserved_with_its_epoch_may_lie_behind_the_limit() {
    let chunk = chunk(&[]);
    let last = CHUNK_LIMIT / 8 - 1;
    for filled in &chunk[CHUNK_DATA / 8..last] {
        filled.store(u64::from(code::PAD), Relaxed);
    }
    chunk[last].store(stack_word(0x7000, 0), Relaxed);
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read(&chunk, &mut taken);
    assert!(taken.0.is_empty() && !cursor.at_end(), "its epoch is owed");
    chunk[last + 1].store(epoch_word(1 << CLOCK_BITS), Relaxed);
    cursor.read(&chunk, &mut taken);
    assert!(taken.0.is_empty() && !cursor.at_end(), "its event is owed");
    chunk[last + 2].store(word(2, 9, code::CALL), Relaxed);
    cursor.read(&chunk, &mut taken);
    assert!(taken.0.is_empty() && !cursor.at_end(), "its caller is owed");
    chunk[last + 3].store(parent_word(0x1234), Relaxed);
    cursor.read(&chunk, &mut taken);
    assert_eq!(taken.0, [(1 << CLOCK_BITS | 2, 9, code::CALL, 0x1234)]);
    assert!(cursor.at_end());
}

#[test]
fn sparse_times_are_spread_over_the_block() {
    let chunk = Box::new([const { AtomicU32::new(0) }; CHUNK_SIZE / 4]);
    let at = CHUNK_DATA / 4;
    let block = |n: usize, start: u64, events: &[u32]| {
        chunk[at + 16 * n].store(start as u32, Relaxed);
        chunk[at + 16 * n + 1].store((start >> 32) as u32 | SPARSE_HIGH, Relaxed);
        for (i, event) in events.iter().enumerate() {
            chunk[at + 16 * n + 2 + i].store(*event, Relaxed);
        }
    };
    let mut first = [code::PAD; 14];
    first[0] = 1 << 5 | code::ENTRY;
    first[1] = 2 << 5 | code::CALL;
    [first[2], first[3]] = parent_halves(0x7f12_3456_789a); // its caller
    block(0, 3 << 32 | 100, &first);
    block(1, 3 << 32 | 400, &[1 << 5 | code::EXIT]);
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read_sparse(&chunk, &mut taken);
    assert_eq!(
        taken.0,
        [(3 << 32 | 200, 1, code::ENTRY, 0), (3 << 32 | 300, 2, code::CALL, 0x7f12_3456_789a)]
    );
    cursor.flush_sparse(&mut taken);
    assert_eq!(taken.0[2], (3 << 32 | 400, 1, code::EXIT, 0));
}

#[test]
fn a_slot_that_stays_empty_is_stepped_over_with_all_its_words() {
    let words =
        [word(1, 1, code::ENTRY), 0, word(3, 3, code::CALL), 0, 0, parent_word(7), word(6, 6, code::ENTRY)];
    let chunk = chunk(&words);
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    for _ in 0..3 {
        cursor.read(&chunk, &mut taken);
        assert!(cursor.more_behind(&chunk, CHUNK_SIZE));
        cursor.skip_hole(&chunk, false);
    }
    cursor.read(&chunk, &mut taken);
    assert!(!cursor.more_behind(&chunk, CHUNK_SIZE));
    assert_eq!(taken.0, [(1, 1, code::ENTRY, 0), (6, 6, code::ENTRY, 0)]);
}

/// Checks which values each event has. `a` are values in front of an entry, `r` of a return, `s` a
/// piece of the stack with its number, `e` an entry, `x` a return; each with its site.
fn check_values(words: &str, expected: &[&str]) {
    #[derive(Default)]
    struct Valued(Vec<String>);
    impl Sink for Valued {
        fn take_go(&mut self, _: RawEvent, _: Goroutine, _: Vec<u8>) {}

        fn take_go_graph<T>(&mut self, _: &[T], _: Goroutine, _: impl Fn(&T) -> RawEvent) -> usize {
            0
        }

        fn take(&mut self, event: RawEvent, values: &[u8], stack: &[u8]) {
            let values = [values, stack].map(String::from_utf8_lossy).join(" ");
            let values = values.replace('\0', "0").replace('\x01', "1");
            self.0
                .push(format!("{} {} {}", event.code(), event.site().0, values.trim()).trim_end().to_owned());
        }
        fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize {
            let event =
                words.first().map(event).filter(|event| [code::ENTRY, code::EXIT].contains(&event.code()));
            event.map(|event| self.take(event, &[], &[])).is_some().into()
        }
        fn take_calls<T>(&mut self, _: &[T], _: impl Fn(&T) -> RawEvent) -> usize {
            0
        }
    }
    let mut all = Vec::new();
    for (n, text) in (1..).zip(words.split_whitespace()) {
        let (what, site) = (&text[..1], text[1..2].parse().unwrap());
        let values = |code: u32| {
            let mut bytes = text.as_bytes()[2..].to_vec();
            bytes.iter_mut().take(usize::from(code == code::FRAMES)).for_each(|number| *number -= b'0');
            let head = head(bytes.len() as u64, site, code);
            std::iter::once(head).chain(bytes.chunks(7).map(calltap_abi::event::data_word)).collect()
        };
        let words: Vec<u64> = match what {
            "a" => values(code::ARGUMENTS),
            "r" => values(code::RESULTS),
            "s" => values(code::FRAMES),
            "e" => vec![word(n, site, code::ENTRY)],
            "x" => vec![word(n, site, code::EXIT)],
            "d" => vec![calltap_abi::event::data_word(b"stray")],
            _ => vec![0],
        };
        all.extend(words);
    }
    let hole = all.iter().position(|word| *word == 0);
    let (chunk, mut cursor, mut taken) = (chunk(&all), Cursor::default(), Valued::default());
    cursor.read(&chunk, &mut taken);
    if let Some(hole) = hole {
        chunk[CHUNK_DATA / 8 + hole].store(u64::from(code::PAD), Relaxed);
        cursor.read(&chunk, &mut taken);
    }
    assert_eq!(taken.0, expected, "{words}");
    assert!(chunk.iter().all(|word| word.load(Relaxed) == 0), "what was read is cleared");
}

#[test]
fn values_are_those_of_the_next_event_of_their_call() {
    check_values(
        "a1xyz e1 r1good-bye-for-now x1 e1 x1",
        &["5 1 xyz", "16 1 good-bye-for-now", "5 1", "16 1"],
    );
    // A signal handler came in between, with values of its own, and of the same function.
    check_values(
        "a1out a2in e2 a1twice e1 r1b x1 x2 e1",
        &["5 2 in", "5 1 twice", "16 1 b", "16 2", "5 1 out"],
    );
    check_values("e1 a2torn ?0 e2 x2", &["5 1", "5 2 torn", "16 2"]);
    // Values of a slot that was skipped belong to no call.
    check_values("d0 e1", &["5 1"]);
}

#[test]
fn pieces_of_a_stack_are_those_of_the_next_entry_of_their_call() {
    check_values("s10up s11per a1xyz e1 s10lower e1 r1b x1", &["5 1 xyz 0up1per", "5 1 0lower", "16 1 b"]);
    // A signal handler came in between.
    check_values("s10up s20in s21ner e2 s11per e1", &["5 2 0in1ner", "5 1 0up1per"]);
    // The entry behind the first pieces was lost: another call has pieces of its own. A piece
    // without a first one is dropped.
    check_values("s10lost s10own e1", &["5 1 0own"]);
    check_values("s11per e1", &["5 1"]);
}

#[test]
fn a_goroutine_has_the_start_that_follows_its_number() {
    #[derive(Default)]
    struct Starts(Vec<(u64, Option<GoStart>)>);
    impl Sink for Starts {
        fn take_go(&mut self, _: RawEvent, goroutine: Goroutine, _: Vec<u8>) {
            self.0.push((goroutine.number, goroutine.start));
        }
        fn take_go_graph<T>(&mut self, _: &[T], _: Goroutine, _: impl Fn(&T) -> RawEvent) -> usize {
            0
        }
        fn take(&mut self, _: RawEvent, _: &[u8], _: &[u8]) {}
        fn take_graph<T>(&mut self, _: &[T], _: impl Fn(&T) -> RawEvent) -> usize {
            0
        }
        fn take_calls<T>(&mut self, _: &[T], _: impl Fn(&T) -> RawEvent) -> usize {
            0
        }
    }
    let placed = [stack_word(8, 9 << 5 | code::GO_ENTRY), epoch_word(1), word(1, 9, code::GO_ENTRY)];
    let start = start_words(1, 0x47_1234);
    let words =
        [&goroutine_words(17, 0xc000)[..], &start, &placed, &goroutine_words(18, 0xd000), &placed].concat();
    let (mut cursor, mut starts) = (Cursor::default(), Starts::default());
    let chunk = chunk(&words);
    assert_eq!(cursor.next_event(&chunk).map(|event| event.ticks), Some(1));
    cursor.read(&chunk, &mut starts);
    assert_eq!(starts.0, [(17, Some(GoStart { parent: 1, function: 0x47_1234 })), (18, None)]);
}

#[test]
fn goroutine_words_apply_to_all_following_go_events() {
    let go = |ticks, code| word(ticks, 9, code);
    let [number, at] = goroutine_words(17, 0xc000_0012_3400);
    let [own, top] = goroutine_words(0, 0x7fff_0000);
    let words = [
        number,
        at,
        stack_word(0u64.wrapping_sub(64), 9 << 5 | code::GO_ENTRY),
        epoch_word(1),
        go(1, code::GO_ENTRY),
        word(2, 3, code::ENTRY),
        go(3, code::GO_EXIT),
        go(4, code::GO_CALL),
        parent_word(77),
        own,
        top,
        go(5, code::GO_ENTRY),
    ];
    let (mut cursor, mut taken) = (Cursor::default(), Taken::default());
    cursor.read(&chunk(&words), &mut taken);
    let whose: Vec<_> = taken.0.iter().map(|event| (event.0, event.1, event.2, event.3 >> 48)).collect();
    let expected = [
        (1, 9, code::GO_ENTRY, 17),
        (2, 3, code::ENTRY, 0),
        (3, 9, code::GO_EXIT, 17),
        (4, 9, code::GO_CALL, 17),
        (5, 9, code::GO_ENTRY, 0),
    ];
    assert_eq!(whose, expected);
}

#[test]
fn events_of_goroutines_are_handed_out_by_run_with_their_values() {
    let event = |ticks| RawEvent { ticks, low: code::ENTRY, slot: 0, parent: 0 };
    let of = |number, begins| Goroutine { number, begins, ..Goroutine::default() };
    let mut events = GoEvents::default();
    for _ in 0..2 {
        events.push(of(1, true), event(1), vec![1]);
        assert_eq!(events.extend(of(1, false), [event(2), event(3)]), 2);
        events.push(of(1, false), event(4), vec![4, 4]);
        assert_eq!(events.extend(of(2, false), []), 0);
        events.push(of(2, false), event(5), vec![5]);
        events.push(of(2, true), event(6), Vec::new());
        let mut runs = Vec::new();
        events.drain(|goroutine, run, values| {
            let ticks = run.iter().map(|raw| raw.ticks).collect::<Vec<_>>();
            let values = values.map(|(n, values)| (n, values.len())).collect::<Vec<_>>();
            runs.push((goroutine.number, goroutine.begins, ticks, values));
        });
        let expected = [
            (1, true, vec![1, 2, 3, 4], vec![(0, 1), (3, 2)]),
            (2, false, vec![5], vec![(0, 1)]),
            (2, true, vec![6], Vec::new()),
        ];
        assert_eq!(runs, expected);
        assert!(events.is_empty());
    }
}
