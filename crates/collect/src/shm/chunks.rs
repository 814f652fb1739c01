//! The chunks of the control file: allocated ahead of use, and returned to the lists of free ones.

use super::Shared;
use calltap_abi::{CHUNK_SIZE, CHUNKS_AT, push};
use calltap_process::free_memory;
use rustix::fs::fstatvfs;
use rustix::thread::futex;
use std::sync::atomic::Ordering::*;

/// Number of chunks that are allocated at a time.
const STEP: u32 = 64;
/// Chunks that are kept ahead of use, as a signal handler must not wait for one: `AHEAD_OF_EACH`
/// for each chunk ever used, within bounds, and one for each thread, up to `MAX_AHEAD`, as all may
/// begin at once.
const AHEAD_OF_EACH: u32 = 8;
const MIN_AHEAD: u32 = 128;
const MAX_AHEAD: u32 = 512;
/// Bounds where threads do not wait, so that events not read at once are lost.
const LEAST_AHEAD_WITHOUT_WAIT: u32 = 512;
const MAX_AHEAD_WITHOUT_WAIT: u32 = 1024;
/// One in so many chunks, and most chunks, that are kept for events of signal handlers.
const FOR_HANDLERS: u32 = 8;
const MAX_FOR_HANDLERS: u32 = 64;
/// Maximum number of steps in a row: the recorder has to read as well.
const STEPS: u32 = 16;
/// Multiple of the bytes of all chunks that must be free without them, of memory and in the file
/// system: the rest is for the program, which may be in the same control group, and have files in
/// the same `/dev/shm`.
const SPARE: u64 = 4;
/// Multiple of a step's memory that must be available for chunks that few threads do not need.
const PLENTY: u64 = 64;

/// Outcome of a step of allocation.
#[derive(PartialEq, Eq)]
enum Provided {
    /// The chunks can be used.
    Step,
    /// The chunks are not needed, or would exceed the bound.
    Enough,
    /// There is no memory for the chunks.
    Nothing,
}

impl Shared {
    /// Allocates the first chunks. Whether threads will wait for more is not known yet.
    pub(super) fn provide_first_chunks(&self) {
        self.provide(0, self.by_few, &mut None);
    }

    /// Allocates chunks ahead of use, for `threads` threads. Returns false if there is no memory.
    pub fn provide_chunks(&self, threads: u32) -> bool {
        let control = self.control();
        self.reserve_spares();
        let used = control.chunk_bump.load(Relaxed).saturating_sub(self.spares_reserved.load(Relaxed));
        let of_used = match control.wait_us.load(Relaxed) {
            0 => used.saturating_mul(AHEAD_OF_EACH).clamp(LEAST_AHEAD_WITHOUT_WAIT, MAX_AHEAD_WITHOUT_WAIT),
            // The program may hardly call any function, or is still being started.
            _ if used == 0 => 0,
            _ => used.saturating_mul(AHEAD_OF_EACH).clamp(MIN_AHEAD, MAX_AHEAD),
        };
        let ahead = of_used + threads.min(MAX_AHEAD);
        let most = self.by_few.saturating_add(threads);
        let mut available = None;
        let mut provide = |_| self.provide(ahead, most, &mut available);
        (0..STEPS).map(&mut provide).find(|step| *step != Provided::Step) != Some(Provided::Nothing)
    }

    /// Keeps a part of the first chunks for signal handlers, before the first event: later ones are
    /// kept as they are emptied, and on a busy machine no chunk may be emptied for long.
    fn reserve_spares(&self) {
        let control = self.control();
        if control.wait_us.load(Relaxed) == 0 || control.chunk_bump.load(Relaxed) != 0 {
            return;
        }
        for index in 0..control.chunk_count.load(Relaxed) / FOR_HANDLERS {
            let Some(header) = self.chunk_header(index) else { return };
            // Fails if a thread has begun to record meanwhile.
            if control.chunk_bump.compare_exchange(index, index + 1, Relaxed, Relaxed).is_err() {
                return;
            }
            self.spares_reserved.fetch_add(1, Relaxed);
            self.spares_given.fetch_add(1, Relaxed);
            push(&control.chunk_spare, index, &header.next);
        }
    }

    /// Allocates a step's chunks, up to `most` in all, unless `ahead` are unused.
    fn provide(&self, ahead: u32, most: u32, available: &mut Option<u64>) -> Provided {
        let control = self.control();
        let most = most.min(self.chunks).min(control.chunk_max.load(Relaxed));
        let count = control.chunk_count.load(Relaxed);
        let step = STEP.min(most.saturating_sub(count));
        if step == 0 || control.chunk_bump.load(Relaxed).saturating_add(ahead) < count {
            return Provided::Enough;
        }
        let offset = CHUNKS_AT + count as usize * CHUNK_SIZE;
        let length = step as usize * CHUNK_SIZE;
        if count > 0 && !self.can_spare(count, step, available) || self.allocate(offset, length).is_err() {
            return Provided::Nothing;
        }
        control.chunk_count.store(count + step, Release);
        self.tell_returned(step);
        Provided::Step
    }

    /// Whether a step's chunks, beyond the `count` that there are, leave enough to the program.
    /// `available`: free memory, read once, as that takes a dozen files.
    fn can_spare(&self, count: u32, step: u32, available: &mut Option<u64>) -> bool {
        let free = fstatvfs(&self.file).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
        let [taken, bytes] = [count, step].map(|chunks| u64::from(chunks) * CHUNK_SIZE as u64);
        let available = available.get_or_insert_with(free_memory::available);
        let is_plenty = count + step <= self.by_few || *available / PLENTY >= bytes;
        let is_spare = is_plenty && [free, *available].iter().all(|free| leaves_enough(taken, bytes, *free));
        *available = available.saturating_sub(bytes);
        is_spare
    }

    /// Wakes up to `chunks` threads that wait for a chunk.
    pub(crate) fn tell_returned(&self, chunks: u32) {
        let word = &self.control().chunks_returned;
        word.fetch_add(1, AcqRel);
        let _ = futex::wake(word, futex::Flags::empty(), chunks.min(i32::MAX as u32));
    }

    /// Ends the waits of threads for a recorder that was killed. They would otherwise wait until
    /// its heartbeat has been missing for long enough. Rings without a recorder, whose threads do
    /// not wait, record on.
    pub fn end_waits(&self) {
        if self.control().wait_us.load(Relaxed) != 0 {
            self.control().recording.store(0, Release);
            self.tell_returned(u32::MAX);
        }
    }

    /// Allocates all chunks, where no controller will do it as they are used.
    pub fn provide_all(&self) {
        // The program may change the count, but not how often it is raised.
        let _ = (0..=self.chunks / STEP)
            .all(|_| self.provide(u32::MAX, self.chunks, &mut None) == Provided::Step);
    }

    /// Puts an emptied (zeroed) chunk on the free list, or on that of the spare chunks, if it is
    /// short and threads wait for chunks.
    pub(crate) fn free_chunk(&self, index: u32) {
        let Some(header) = self.chunk_header(index) else { return };
        let control = self.control();
        let most = match control.wait_us.load(Relaxed) {
            0 => 0,
            _ => (control.chunk_count.load(Relaxed) / FOR_HANDLERS).min(MAX_FOR_HANDLERS),
        };
        let given = self.spares_given.load(Relaxed);
        let list = if given.wrapping_sub(control.spares_taken.load(Relaxed)) < most {
            self.spares_given.store(given.wrapping_add(1), Relaxed);
            &control.chunk_spare
        } else {
            &control.chunk_free
        };
        push(list, index, &header.next);
    }
}

/// Whether `bytes` more than the bytes `taken` leave the program enough of the bytes that are free.
fn leaves_enough(taken: u64, bytes: u64, free: u64) -> bool {
    (taken + bytes).saturating_mul(SPARE) <= free.saturating_add(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::control_size;
    use std::sync::atomic::AtomicU64;

    /// Returns empty rings with at most so many chunks.
    fn rings(chunks: u32) -> Shared {
        let file = tempfile::tempfile().unwrap();
        file.set_len(control_size(chunks)).unwrap();
        Shared::map(&file, chunks, chunks).unwrap()
    }

    #[test]
    fn chunks_are_kept_ahead_of_use_and_of_threads_that_may_all_begin() {
        let shared = rings(8192);
        let wait = |us| shared.control().wait_us.store(us, Relaxed);
        wait(1);
        let ahead = |threads, used: u32| {
            shared.control().chunk_bump.store(used, Relaxed);
            // A pass provides `STEPS` steps at most.
            (0..4).for_each(|_| assert!(shared.provide_chunks(threads)));
            shared.control().chunk_count.load(Relaxed) - used
        };
        assert_eq!(ahead(2, 0), STEP);
        // The program's first chunk is behind those that are kept for its signal handlers.
        let spares = STEP / FOR_HANDLERS;
        assert_eq!(shared.control().chunk_bump.load(Relaxed), spares);
        let ahead = |threads, used: u32| ahead(threads, used + spares);
        assert!((MIN_AHEAD..MIN_AHEAD + 2 * STEP).contains(&ahead(1, 1)));
        assert!(ahead(1000, 1) >= MIN_AHEAD + MAX_AHEAD);
        assert!(ahead(1, 1000) >= MAX_AHEAD);
        wait(0);
        assert!(ahead(1, 4000) >= MAX_AHEAD_WITHOUT_WAIT);
    }

    #[test]
    fn recording_ends_without_a_recorder_if_threads_wait_for_one() {
        let shared = rings(64);
        let control = shared.control();
        let records_on = |wait_us| {
            control.recording.store(1, Relaxed);
            control.wait_us.store(wait_us, Relaxed);
            shared.end_waits();
            control.recording.load(Relaxed) == 1
        };
        assert!(records_on(0), "a flight recorder has no reader");
        assert!(!records_on(1));
    }

    #[test]
    fn signal_handlers_have_spare_chunks_where_threads_wait() {
        let shared = rings(64);
        let control = shared.control();
        let list = |head: &AtomicU64| {
            let next = |index| Some(shared.chunk_header(index)?.next.load(Relaxed));
            std::iter::from_fn(|| calltap_abi::pop(head, next)).collect::<Vec<_>>()
        };
        let free_all = || {
            (0..10).for_each(|index| shared.free_chunk(index));
            (list(&control.chunk_spare).len(), list(&control.chunk_free).len())
        };
        assert_eq!(free_all(), (0, 10));
        control.wait_us.store(1, Relaxed);
        assert_eq!(free_all(), (8, 2));
        assert_eq!(free_all(), (0, 10), "the spare chunks are not known to be taken");
        control.spares_taken.store(3, Relaxed);
        assert_eq!(free_all(), (3, 7));
    }

    #[test]
    fn rings_take_a_quarter_of_free_memory_at_most() {
        const MIB: u64 = 1 << 20;
        let taken_of = |available: u64| {
            let steps = (0..64).map(|step| 4 * step * MIB);
            steps.take_while(|taken| leaves_enough(*taken, 4 * MIB, available - taken)).count() as u64 * 4
        };
        assert_eq!([15, 16, 48, 100, 1000].map(|available| taken_of(available * MIB)), [0, 4, 12, 24, 248]);
        assert!(leaves_enough(256 * MIB, 4 * MIB, u64::MAX));
    }
}
