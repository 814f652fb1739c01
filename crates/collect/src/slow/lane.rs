//! The events of a thread, held back until one of its calls has turned out slow.

use calltap_trace::{Calls, Closing, Event, EventKind, Loss, SiteId, ThreadEncoder};
use std::ops::Deref;

/// An event with its values.
#[derive(Clone, Debug)]
pub(super) struct EventWithValues {
    pub(super) event: Event,
    pub(super) values: Box<[u8]>,
}

impl EventWithValues {
    pub(super) fn encode(&self, encoder: &mut ThreadEncoder) {
        match &*self.values {
            [] => encoder.push(self.event),
            values => encoder.push_with(self.event, values),
        }
    }
}

impl From<Event> for EventWithValues {
    fn from(event: Event) -> EventWithValues {
        EventWithValues { event, values: Box::default() }
    }
}

impl Deref for EventWithValues {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// An open call of a function with a rule.
#[derive(Clone, Copy, Debug)]
struct Mark {
    site: SiteId,
    /// Number of open calls around it.
    depth: u64,
    start: u64,
    /// Ticks above which the call is slow.
    limit: u64,
    /// Place of its entry among the held events.
    at: usize,
}

/// Numbers of entries and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    entries: u64,
    exits: u64,
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.entries += u64::from(event.kind.begins_call());
        self.exits += u64::from(matches!(event.kind, EventKind::Exit { .. }));
    }

    fn add_all(&mut self, other: Counts) {
        self.entries += other.entries;
        self.exits += other.exits;
    }
}

/// An open call whose beginning was given up, and the number of its events that were.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    mark: Mark,
    events: Counts,
}

/// A range of held events that is kept in any case. `end`: the return that ends it, if its last
/// event is not that.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: usize,
    to: usize,
    end: Option<Event>,
}

/// The state of one thread.
#[derive(Default)]
pub(super) struct SlowFilter {
    calls: Calls<()>,
    last: u64,
    /// Open calls of functions with rules, outermost first.
    marks: Vec<Mark>,
    /// Whether the outermost of them has exceeded its limit.
    slow: bool,
    /// Events since the outermost mark.
    held: Vec<EventWithValues>,
    /// Ranges of `held` that are kept in any case.
    parts: Vec<Part>,
    given_up: Vec<GivenUp>,
    read: Counts,
    kept: Counts,
    /// Events given up that are lost.
    lost: Counts,
    /// Number of calls that were slow and could not be kept.
    pub(super) too_large: u64,
}

impl SlowFilter {
    /// Takes the next event, with the limit of the function it enters if that has one. Kept events
    /// are handed to `out`. `room` events may still be held back.
    pub(super) fn take(
        &mut self,
        event: EventWithValues,
        limit: Option<u64>,
        room: &mut usize,
        out: &mut dyn FnMut(EventWithValues),
    ) {
        self.read.add(&event);
        if let Some(tail) = event.kind.enters() {
            self.last = self.last.max(event.ticks);
            self.judge(self.last, room, out);
            if let Some(limit) = limit.filter(|_| !self.slow) {
                let (depth, at) = (self.depth(), self.held.len());
                self.marks.push(Mark { site: event.site, depth, start: self.last, limit, at });
            }
            self.calls.enter(event.site, tail, ());
            return self.inside(event, room, out);
        }
        if event.kind == EventKind::Resumed {
            // The beginning of the call is not known here, so it has no duration.
            self.last = self.last.max(event.ticks);
            self.judge(self.last, room, out);
            self.calls.resume(event.site, ());
            return self.inside(event, room, out);
        }
        let before = self.depth();
        let closing = self.calls.end(&event);
        // Calls that are cut ended at some earlier time.
        let cut = |mark: &Mark| closing.is_some_and(|closing| closing.is_cut(mark.depth as usize));
        let outermost_lives = !self.marks.first().is_some_and(cut);
        if !matches!(event.kind, EventKind::Left { .. }) {
            self.last = self.last.max(event.ticks);
            if outermost_lives {
                self.judge(self.last, room, out);
            }
        }
        match closing {
            Some(closing) => self.end_calls(event, before, &closing, room, out),
            None => self.inside(event, room, out),
        }
    }

    /// Whether a call is open that is slow, or may turn out so.
    pub(super) fn may_be_slow(&self) -> bool {
        self.slow || !self.marks.is_empty()
    }

    fn depth(&self) -> u64 {
        self.calls.depth() as u64
    }

    /// Keeps all held events if the outermost call has exceeded its limit at `now`.
    fn judge(&mut self, now: u64, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        // A call that may have ended already was not seen to take so long.
        let is_open =
            |mark: &Mark| self.calls.open().get(mark.depth as usize).is_none_or(|call| call.cut.is_none());
        let is_slow = |mark: &Mark| now.saturating_sub(mark.start) > mark.limit && is_open(mark);
        if !self.slow && self.marks.first().is_some_and(is_slow) {
            self.slow = true;
            *room += self.held.len();
            self.parts.clear();
            // Calls inside are kept with this one, and their places are no longer those of held
            // events.
            self.marks.truncate(1);
            let mut held = std::mem::take(&mut self.held);
            held.drain(..).for_each(|event| self.keep(event, out));
            // The memory is reused, unless it is large.
            if held.capacity() <= 1 << 12 {
                self.held = held;
            }
        }
    }

    fn keep(&mut self, event: EventWithValues, out: &mut dyn FnMut(EventWithValues)) {
        self.kept.add(&event);
        out(event);
    }

    /// Drops an event that is not part of a slow call, nor known to be part of a call that was
    /// given up.
    fn drop(&mut self, event: &Event) {
        if let Some(given_up) = self.given_up.last_mut() {
            given_up.events.add(event);
        }
    }

    /// Takes an event that opens or closes no call with a rule.
    fn inside(&mut self, event: EventWithValues, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        let is_loss = matches!(event.kind, EventKind::Lost { .. });
        if self.slow || self.marks.is_empty() && is_loss {
            return self.keep(event, out);
        }
        if self.marks.is_empty() {
            return self.drop(&event);
        }
        self.hold(event, room, out);
        if is_loss && let Some(at) = self.held.len().checked_sub(1) {
            self.parts.push(Part { from: at, to: at + 1, end: None });
        }
    }

    /// Holds an event back, giving up outer calls if there is no room.
    fn hold(&mut self, event: EventWithValues, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        while *room == 0 && !self.marks.is_empty() {
            self.give_up(room, out);
        }
        if self.marks.is_empty() {
            return self.drop(&event);
        }
        *room -= 1;
        self.held.push(event);
    }

    /// Gives up the beginning of the outermost call: only events in the next one are still held
    /// back.
    fn give_up(&mut self, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        let mark = self.marks.remove(0);
        let end = self.marks.first().map_or(self.held.len(), |next| next.at);
        self.given_up.push(GivenUp { mark, events: Counts::default() });
        self.release(end, room, out);
    }

    /// Hands out the held events before `end` that are part of something kept, and drops the
    /// others.
    fn release(&mut self, end: usize, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        *room += end;
        let first = self.parts.iter().take_while(|part| part.from < end).count();
        let (mut parts, mut at) = (self.parts.drain(..first).collect::<Vec<_>>().into_iter().peekable(), 0);
        let rest = self.held.split_off(end);
        for event in std::mem::replace(&mut self.held, rest) {
            parts.next_if(|part| {
                let over = part.to <= at;
                if let (true, Some(end)) = (over, part.end) {
                    self.keep(end.into(), out);
                }
                over
            });
            match parts.peek() {
                Some(part) if part.from <= at => self.keep(event, out),
                _ => self.drop(&event),
            }
            at += 1;
        }
        if let Some(end) = parts.next().and_then(|part| part.end) {
            self.keep(end.into(), out);
        }
        self.parts.iter_mut().for_each(|part| (part.from, part.to) = (part.from - end, part.to - end));
        self.marks.iter_mut().for_each(|mark| mark.at -= end);
    }

    /// Takes an event that ends calls, of `before` that were open.
    fn end_calls(
        &mut self,
        with_values: EventWithValues,
        before: u64,
        closing: &Closing,
        room: &mut usize,
        out: &mut dyn FnMut(EventWithValues),
    ) {
        let event = with_values.event;
        while self.calls.close(closing).is_some() {}
        let depth = self.depth();
        let closes = move |mark: &Mark| mark.depth >= depth;
        let cut = |mark: &Mark| closing.is_cut(mark.depth as usize);
        // A caller's return also ends calls that were left by longjmp or an exception, or entered
        // by a jump.
        let own = |mark: &Mark| mark.depth == depth;
        let its = |mark: &Mark| {
            let pops = u32::try_from(before - mark.depth).unwrap_or(u32::MAX);
            let kind = match event.kind {
                EventKind::ThreadEnded => EventKind::ThreadEnded,
                _ if cut(mark) => EventKind::Left { pops },
                _ => EventKind::Exit { pops },
            };
            Event { kind, site: mark.site, ..event }
        };
        match self.marks.first().copied().filter(closes) {
            Some(outermost) if self.slow => {
                (self.slow, self.marks) = (false, Vec::new());
                self.keep(if own(&outermost) { with_values } else { its(&outermost).into() }, out);
            }
            _ => self.inside(with_values, room, out),
        }
        // Held events may be given up here, so that none is left.
        while let Some(mark) = self.marks.last().copied().filter(closes) {
            self.marks.pop();
            if !cut(&mark) && self.last.saturating_sub(mark.start) > mark.limit {
                while self.parts.pop_if(|part| part.from >= mark.at).is_some() {}
                let (to, end) = match own(&mark) {
                    true => (self.held.len(), None),
                    false => (self.held.len() - 1, Some(its(&mark))),
                };
                self.parts.push(Part { from: mark.at, to, end });
            }
            if self.marks.is_empty() {
                self.release(self.held.len(), room, out);
            }
        }
        while let Some(given_up) = self.given_up.pop_if(|given_up| closes(&given_up.mark)) {
            let now = if cut(&given_up.mark) { given_up.mark.start } else { self.last };
            self.settle(given_up, now, event.ticks, out);
        }
    }

    /// Settles a call whose beginning was given up when it ends: if it was slow, its events are
    /// lost.
    fn settle(&mut self, given_up: GivenUp, now: u64, ticks: u64, out: &mut dyn FnMut(EventWithValues)) {
        let GivenUp { mark, events } = given_up;
        if now.saturating_sub(mark.start) > mark.limit {
            self.too_large += 1;
            self.lost.add_all(events);
            let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            let kind = EventKind::Lost { entries: bounded(events.entries), exits: bounded(events.exits) };
            out(Event { ticks, site: mark.site, kind }.into());
        } else if let Some(outer) = self.given_up.last_mut() {
            outer.events.add_all(events);
        }
    }

    /// Ends the thread. Calls that are open were open until `now`, or until the last event.
    pub(super) fn end(&mut self, now: Option<u64>, room: &mut usize, out: &mut dyn FnMut(EventWithValues)) {
        let now = now.unwrap_or(self.last).max(self.last);
        self.judge(now, room, out);
        while !self.slow && !self.marks.is_empty() {
            // The outermost call is not slow; the next may be.
            self.marks.remove(0);
            let end = self.marks.first().map_or(self.held.len(), |next| next.at);
            self.release(end, room, out);
            self.judge(now, room, out);
        }
        while let Some(given_up) = self.given_up.pop() {
            self.settle(given_up, now, self.last, out);
        }
    }

    /// Returns the totals of the thread, based on what could be read of it.
    pub(super) fn loss(&self, read: &Loss) -> Loss {
        let SlowFilter { kept, lost, .. } = self;
        Loss {
            entries: kept.entries,
            exits: kept.exits,
            lost_entries: read.lost_entries + lost.entries,
            lost_exits: read.lost_exits + lost.exits,
            dropped_entries: self.read.entries.saturating_sub(kept.entries + lost.entries),
            dropped_exits: self.read.exits.saturating_sub(kept.exits + lost.exits),
            ..*read
        }
    }
}

#[cfg(test)]
mod tests;
