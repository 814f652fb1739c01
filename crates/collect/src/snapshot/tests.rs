//! Threads that write to their rings like the agent while these are copied.

use super::*;
use crate::shm::control_size;
use calltap_abi::event::code;
use calltap_abi::{CHUNK_LIMIT, MAGIC, ThreadState, VERSION};
use std::sync::atomic::AtomicBool;

const CHUNKS: u32 = 4;

fn rings(threads: u32) -> Shared {
    let file = File::from(memfd_create("calltap-test", MemfdFlags::CLOEXEC).expect("a file"));
    file.set_len(control_size(CHUNKS * threads)).expect("its length");
    let shared = Shared::map(&file, CHUNKS * threads, CHUNKS * threads).expect("its mapping");
    let control = shared.control();
    control.version.store(VERSION, Relaxed);
    control.magic.store(MAGIC, Release);
    control.overwrite.store(1, Relaxed);
    control.clock.store(Clock::Counter as u32, Relaxed);
    control.thread_bump.store(threads, Release);
    shared
}

/// Returns a word that a thread writes: its number in the upper half, never 0 in both halves.
fn word(number: u64) -> u64 {
    (number << 5 | 1) << 32 | u64::from(code::CALL)
}

/// Writes to chunks in turn, and reuses the oldest, until `over` is set. Counts overwritten events.
fn write(shared: &Shared, index: u32, over: &AtomicBool) {
    let entry = shared.thread(index).expect("an entry");
    entry.state.store(ThreadState::Live as u32, Relaxed);
    let (mut number, mut held, mut current) = (0, 0, None);
    while !over.load(Relaxed) {
        let chunk = if held < CHUNKS {
            held += 1;
            index * CHUNKS + held - 1
        } else {
            reuse(shared, entry)
        };
        let header = shared.chunk_header(chunk).expect("a header");
        header.next.store(0, Relaxed);
        match current {
            None => entry.first_chunk.store(chunk + 1, Release),
            Some(before) => shared.chunk_header(before).expect("a header").next.store(chunk + 1, Release),
        }
        current = Some(chunk);
        for place in &shared.chunk(chunk).expect("a chunk")[CHUNK_DATA / 8..CHUNK_LIMIT / 8] {
            number += 1;
            place.store(word(number), Release);
            // This makes it as slow as recording an event.
            (0..20).for_each(|_| std::hint::spin_loop());
        }
    }
}

fn reuse(shared: &Shared, entry: &ThreadEntry) -> u32 {
    let oldest = entry.first_chunk.load(Relaxed) - 1;
    let reusing = entry.reuses.load(Relaxed) | 1;
    entry.reuses.store(reusing, Relaxed);
    fence(Release);
    let header = shared.chunk_header(oldest).expect("a header");
    entry.first_chunk.store(header.next.load(Relaxed), Release);
    let words = &shared.chunk(oldest).expect("a chunk")[CHUNK_DATA / 8..CHUNK_LIMIT / 8];
    words.iter().for_each(|word| word.store(0, Relaxed));
    entry.lost_entries.fetch_add(words.len() as u64, Relaxed);
    entry.reuses.store(reusing + 1, Release);
    oldest
}

/// Checks that the copy of a thread's chain holds its newest events without a gap, and begins
/// behind the number of overwritten ones.
fn check(copied: &Copied, index: u32) {
    let entry = copied.rings.thread(index).expect("an entry");
    let mut expected = entry.lost_entries.load(Relaxed) + 1;
    let chunks = chain(&copied.rings, &entry.first_chunk);
    for (place, chunk) in chunks.iter().enumerate() {
        let words = &copied.rings.chunk(*chunk).expect("a chunk")[CHUNK_DATA / 8..CHUNK_LIMIT / 8];
        let written = words.iter().take_while(|word| word.load(Relaxed) != 0).count();
        assert!(written == words.len() || place + 1 == chunks.len(), "chunk {place} of thread {index}");
        for (copy, number) in words[..written].iter().zip(expected..) {
            assert_eq!(copy.load(Relaxed), word(number), "chunk {place} of thread {index}");
        }
        assert!(words[written..].iter().all(|word| word.load(Relaxed) == 0), "a gap in thread {index}");
        expected += written as u64;
    }
}

/// Ends the writers when it is dropped, even where the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn copies_of_busy_rings_have_no_gaps_and_count_overwritten_events() {
    let (shared, over) = (rings(3), AtomicBool::new(false));
    let mut copied_whole = 0;
    thread::scope(|scope| {
        (0..3).for_each(|index| {
            drop(scope.spawn({
                let (shared, over) = (&shared, &over);
                move || write(shared, index, over)
            }))
        });
        let _ending = Ending(&over);
        for _ in 0..200 {
            let copied = copy(&shared).expect("a copy");
            (0..3).for_each(|index| check(&copied, index));
            copied_whole += 3 - copied.too_fast;
        }
    });
    assert!(copied_whole > 0);
    assert!(shared.thread_entries().all(|entry| entry.reuses.load(Relaxed) > 0));
}

#[test]
fn idle_rings_are_copied_unchanged() {
    let shared = rings(1);
    let copied = copy(&shared).expect("a copy");
    assert_eq!((copied.too_fast, copied.rings.threads()), (0, 0..1));
    assert!(chain(&copied.rings, &copied.rings.thread(0).expect("an entry").first_chunk).is_empty());
}

#[test]
fn a_thread_that_has_used_all_its_chunks_again_is_not_waited_for() {
    let (from, to) = (rings(1), rings(1));
    let (entry, copy) = (from.thread(0).expect("an entry"), to.thread(0).expect("an entry"));
    entry.first_chunk.store(1, Relaxed);
    let copied = |reuses| {
        entry.reuses.store(reuses, Relaxed);
        copy_thread((&from, entry), (&to, copy))
    };
    assert!(copied(0) == Copy::Whole);
    assert!(copied(1) == Copy::Overtaken, "a chunk is being cleared");
    assert!(copied(2) == Copy::Lapped, "its only chunk was");
}
