//! Decodes chunks of events ahead of their reader: decoding takes about as long as processing the
//! events, and no chunk needs another one.
//!
//! Other threads decode the next chunks, and so does the reader itself while it would have to wait.
//! Order, errors and contents are those of a reader that decodes one chunk after the other.

use crate::error::Error;
use crate::event::Batch;
use crate::event_chunks::EventChunks;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Number of chunks that are read before others are read ahead: a view of a moment, or of a short
/// trace, needs no more.
const ALONE: usize = 4;
/// Maximum number of threads besides the reader: decoding takes about as long as the reader's own
/// work.
const MAX_HELPERS: usize = 3;
/// Number of chunks for each thread that are decoded and not taken yet.
const AHEAD: usize = 3;

/// A sequence of chunks.
pub(crate) struct Stream {
    chunks: Arc<EventChunks>,
    /// Numbers of the chunks.
    list: Arc<[u32]>,
    /// Number of chunks that were taken.
    taken: usize,
    crew: Option<Crew>,
    /// Number of threads that it may start.
    helpers: usize,
}

impl Stream {
    /// Creates a stream that uses as many threads as there are other processors.
    pub(crate) fn new(chunks: &Arc<EventChunks>, list: Vec<u32>) -> Stream {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        Stream::helped(chunks, list, (processors - 1).min(MAX_HELPERS))
    }

    fn helped(chunks: &Arc<EventChunks>, list: Vec<u32>, helpers: usize) -> Stream {
        Stream { chunks: Arc::clone(chunks), list: list.into(), taken: 0, crew: None, helpers }
    }

    /// Returns the number of chunks that were taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Reads like [`crate::Batches::next_into`].
    pub(crate) fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some(&at) = self.list.get(self.taken) else { return Ok(false) };
        if self.helpers > 0 && self.taken == ALONE && self.list.len() > 2 * ALONE {
            self.crew = Crew::start(self, self.helpers);
        }
        let place = self.taken;
        self.taken += 1;
        match &self.crew {
            Some(crew) => crew.take(place, batch)?,
            None => self.chunks.read(at, batch)?,
        }
        Ok(true)
    }
}

/// The threads that decode ahead. They end with the list, or when this is dropped.
struct Crew(Arc<Shared>);

struct Shared {
    chunks: Arc<EventChunks>,
    list: Arc<[u32]>,
    /// Maximum number of chunks that may be decoded and not taken.
    window: usize,
    work: Mutex<Work>,
    /// Signalled when a chunk was decoded.
    ready: Condvar,
    /// Signalled when a chunk was taken.
    room: Condvar,
}

/// The result of decoding a chunk, and its events; or the panic of the thread that decoded it.
type Decoded = thread::Result<(Result<(), Error>, Batch)>;

struct Work {
    /// First chunk that is not begun.
    next: usize,
    /// First chunk that was not taken.
    taken: usize,
    /// Results of the chunks in between that are decoded.
    done: BTreeMap<usize, Decoded>,
    /// Batches whose memory can be reused.
    spare: Vec<Batch>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next chunk to decode, unless enough are decoded.
    fn claim(&self, work: &mut Work) -> Option<usize> {
        let next = work.next;
        let is_open = next < self.list.len() && next < work.taken + self.window;
        work.next += usize::from(is_open);
        is_open.then_some(next)
    }

    /// Decodes a chunk without holding the lock.
    fn decode<'a>(&'a self, mut work: MutexGuard<'a, Work>, place: usize) -> MutexGuard<'a, Work> {
        let mut batch = work.spare.pop().unwrap_or_default();
        drop(work);
        let read = || {
            let result = self.chunks.read(self.list[place], &mut batch);
            (result, batch)
        };
        // A panic is passed on to the reader.
        let result = panic::catch_unwind(AssertUnwindSafe(read));
        let mut work = self.lock();
        work.done.insert(place, result);
        work
    }

    /// Decodes chunks until the list or the reader ends: the work of each thread.
    fn help(&self) {
        let mut work = self.lock();
        while !work.is_over && work.next < self.list.len() {
            work = match self.claim(&mut work) {
                Some(place) => {
                    let work = self.decode(work, place);
                    self.ready.notify_one();
                    work
                }
                None => self.room.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Crew {
    /// Starts the threads; returns `None` if no thread can be started.
    fn start(stream: &Stream, helpers: usize) -> Option<Crew> {
        let first = stream.taken;
        let work =
            Work { next: first, taken: first, done: BTreeMap::new(), spare: Vec::new(), is_over: false };
        let shared = Arc::new(Shared {
            chunks: Arc::clone(&stream.chunks),
            list: Arc::clone(&stream.list),
            window: (helpers + 1) * AHEAD,
            work: Mutex::new(work),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("decode".to_owned()).spawn(move || shared.help()).ok()
        };
        let started = (0..helpers).map_while(start).count();
        (started > 0).then_some(Crew(shared))
    }

    /// Takes the chunk at this place of the list, which follows the one taken last.
    fn take(&self, place: usize, batch: &mut Batch) -> Result<(), Error> {
        let shared = &*self.0;
        let mut work = shared.lock();
        loop {
            if let Some(done) = work.done.remove(&place) {
                let (result, read) = done.unwrap_or_else(|why| panic::resume_unwind(why));
                work.spare.push(std::mem::replace(batch, read));
                work.taken = place + 1;
                shared.room.notify_one();
                return result;
            }
            work = match shared.claim(&mut work) {
                Some(next) => shared.decode(work, next),
                None => shared.ready.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.room.notify_all();
    }
}
