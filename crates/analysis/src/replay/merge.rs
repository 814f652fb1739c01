//! Merges the events of several threads by time.

use crate::sources::source::{BatchStream, Damage, Source, next_readable, threads_with_events};
use calltap_trace::{Batch, Event, ThreadId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events of one thread, with one event of lookahead.
struct Cursor<'a> {
    stream: Box<dyn BatchStream + 'a>,
    batch: Batch,
    at: usize,
    head: Option<Event>,
    /// Values captured with `head`.
    values: Vec<u8>,
    /// Time of the newest event seen: the thread's position in the order never moves back.
    time: u64,
}

impl Cursor<'_> {
    /// Takes the head, whose values are stored in `values`; the event after it becomes the head.
    fn advance(&mut self, damage: &mut Damage, values: &mut Vec<u8>) -> Option<Event> {
        let taken = self.head.take();
        if !(values.is_empty() && self.values.is_empty()) {
            std::mem::swap(values, &mut self.values);
            self.values.clear();
        }
        while self.at >= self.batch.events.len() {
            self.at = 0;
            self.batch.events.clear();
            if !next_readable(&mut *self.stream, &mut self.batch, damage) {
                self.batch.events.clear();
                return taken;
            }
        }
        let event = self.batch.events[self.at];
        if !self.batch.values.is_empty() {
            self.values.extend_from_slice(self.batch.values.of(self.at));
        }
        self.at += 1;
        self.time = self.time.max(event.ticks);
        self.head = Some(event);
        taken
    }
}

/// An event with its captured values.
pub(super) struct Next<'m> {
    pub(super) thread: ThreadId,
    pub(super) event: Event,
    pub(super) values: &'m [u8],
    /// The following event of the same thread.
    pub(super) next: Option<(Event, &'m [u8])>,
}

/// Yields the events of many threads in time order. A thread is opened when its first event is due
/// and dropped after its last.
pub(super) struct Merge<'a> {
    source: &'a dyn Source,
    cursors: Vec<Option<Cursor<'a>>>,
    /// Times of the next events of all threads but the running one.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    running: Option<u32>,
    /// Values captured with the event taken last.
    values: Vec<u8>,
    pub(super) damage: Damage,
}

impl<'a> Merge<'a> {
    /// Merges `threads`, or all threads if the list is empty.
    pub(super) fn new(source: &'a dyn Source, threads: &[ThreadId]) -> Self {
        let mut all = threads_with_events(source);
        if !threads.is_empty() {
            all.retain(|thread| threads.contains(thread));
        }
        let due = all.iter().filter_map(|&t| Some(Reverse((source.thread_span(t)?.0, t.0)))).collect();
        let mut cursors = Vec::new();
        cursors.resize_with(source.meta().threads.len(), || None);
        Self { source, cursors, due, running: None, values: Vec::new(), damage: Damage::default() }
    }

    /// Number of unfinished threads.
    pub(super) fn threads(&self) -> usize {
        self.due.len() + usize::from(self.running.is_some())
    }

    /// Returns the next event, and the one after it in the same thread.
    pub(super) fn next(&mut self) -> Option<Next<'_>> {
        loop {
            if let Some(index) = self.running
                && let Some(cursor) = &mut self.cursors[index as usize]
            {
                let place = (cursor.time, index);
                if self.due.peek().is_some_and(|Reverse(other)| *other < place) {
                    self.due.push(Reverse(place));
                    self.running = None;
                } else if let Some(event) = cursor.advance(&mut self.damage, &mut self.values) {
                    if cursor.head.is_none() {
                        self.cursors[index as usize] = None;
                        self.running = None;
                    }
                    let next = self.cursors[index as usize].as_ref();
                    let next = next.and_then(|cursor| Some((cursor.head?, &cursor.values[..])));
                    return Some(Next { thread: ThreadId(index), event, values: &self.values, next });
                } else {
                    self.cursors[index as usize] = None;
                    self.running = None;
                }
                continue;
            }
            let Reverse((time, index)) = self.due.pop()?;
            let slot = &mut self.cursors[index as usize];
            if slot.is_none() {
                let stream = self.source.thread_batches(ThreadId(index));
                let batch = Batch::default();
                let mut cursor = Cursor { stream, batch, at: 0, head: None, values: Vec::new(), time };
                cursor.advance(&mut self.damage, &mut self.values);
                *slot = Some(cursor);
            }
            self.running = Some(index);
        }
    }
}
