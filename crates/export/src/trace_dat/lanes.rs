//! Assigns threads to streams.
//!
//! Readers have a stream per processor, each ascending in time. Here a thread has a stream for
//! itself while it lives, and a later thread gets the stream of one that has ended: there are as
//! many streams as threads lived at a time. So no stream needs merging (it is written thread after
//! thread, with the state of one), a call and its return stay neighbours, and a program that starts
//! a million short threads does not become a file of a million streams.

use calltap_analysis::{Source, threads_with_events};
use calltap_trace::ThreadId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The threads of each stream, in order of time.
pub(super) struct Lanes {
    /// The threads of the first stream, then of the next, and so on.
    pub(super) order: Vec<ThreadId>,
    /// Whether each thread is the last of its stream.
    pub(super) ends: Vec<bool>,
    /// Number of streams.
    pub(super) count: usize,
}

impl Lanes {
    pub(super) fn new(source: &dyn Source) -> Self {
        let span = |thread: ThreadId| source.thread_span(thread).map(|span| (span, thread));
        let mut threads: Vec<_> = threads_with_events(source).into_iter().filter_map(span).collect();
        threads.sort_unstable();
        let mut lanes: Vec<Vec<ThreadId>> = Vec::new();
        // End of the last thread of each stream.
        let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for ((first, last), thread) in threads {
            let lane = match ends.peek() {
                Some(&Reverse((end, lane))) if end <= first => {
                    ends.pop();
                    lane
                }
                _ => {
                    lanes.push(Vec::new());
                    lanes.len() - 1
                }
            };
            lanes[lane].push(thread);
            ends.push(Reverse((last, lane)));
        }
        let mut ends = vec![false; source.meta().threads.len()];
        for thread in lanes.iter().filter_map(|lane| lane.last()) {
            ends[thread.0 as usize] = true;
        }
        Self { order: lanes.concat(), ends, count: lanes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::Lanes;
    use calltap_analysis::MemorySource;
    use calltap_trace::{Batch, Event, EventKind, SiteId, Thread, ThreadId};

    fn lanes(spans: &[(u64, u64)]) -> (usize, Vec<u32>, Vec<bool>) {
        let mut source = MemorySource::default();
        for (id, &(first, last)) in (0..).map(ThreadId).zip(spans) {
            source.meta.threads.push(Thread {
                id,
                process: 0,
                tid: id.0,
                comm: String::new(),
                goroutine: None,
                started: None,
            });
            let event = |ticks| Event { ticks, site: SiteId(0), kind: EventKind::Entry };
            source.batches.push(Batch {
                thread: id,
                events: vec![event(first), event(last)],
                ..Batch::default()
            });
        }
        let Lanes { order, ends, count } = Lanes::new(&source);
        (count, order.into_iter().map(|thread| thread.0).collect(), ends)
    }

    #[test]
    fn threads_that_live_at_a_time_have_streams_of_their_own() {
        assert_eq!(lanes(&[(5, 9), (1, 6), (4, 10)]), (3, vec![1, 2, 0], vec![true; 3]));
    }

    #[test]
    fn a_stream_is_used_again_when_its_thread_has_ended() {
        let (count, order, ends) = lanes(&[(0, 100), (1, 2), (3, 4), (5, 50), (6, 7)]);
        assert_eq!((count, order), (3, vec![0, 1, 2, 3, 4]));
        assert_eq!(ends, [true, false, false, true, true]);
        assert_eq!(
            lanes(&[(0, 0), (0, 0), (0, 5), (5, 6)]),
            (1, vec![0, 1, 2, 3], vec![false, false, false, true])
        );
    }

    #[test]
    fn no_thread_no_stream() {
        assert_eq!(lanes(&[]), (0, vec![], vec![]));
    }
}
