//! [`Picker`] lets the calls of chosen functions pass, of the events of one thread: for views that
//! leave out the calls of all others, whose time becomes their callers' own.

use calltap_trace::{Batch, Calls, Closing, Ending, Event, EventKind, SiteId};

/// The picker of one thread.
#[derive(Debug, Default)]
pub(super) struct Picker {
    /// The open calls, each with whether it passed.
    calls: Calls<bool>,
}

impl Picker {
    /// Takes the thread's next event, and whether its function is chosen; events that pass are
    /// added to `out`.
    pub(super) fn take(&mut self, event: &Event, is_chosen: bool, values: &[u8], out: &mut Batch) {
        if event.kind.opens_frame() {
            return self.enter(event, is_chosen, values, out);
        }
        match (event.kind, self.calls.end(event)) {
            (EventKind::ThreadEnded, closing) => {
                closing.inspect(|closing| self.end(event, values, closing, out));
                out.push(*event, values);
            }
            (_, Some(closing)) => self.end(event, values, &closing, out),
            (EventKind::Lost { .. }, None) => out.push(*event, values),
            (_, None) if is_chosen => out.push(*event, values),
            _ => {}
        }
    }

    /// Begins a call, or the rest of one.
    fn enter(&mut self, event: &Event, is_chosen: bool, values: &[u8], out: &mut Batch) {
        if is_chosen {
            let kind = if self.shares_frame() { event.kind } else { with_own_frame(event.kind) };
            out.push(Event { kind, ..*event }, values);
        }
        match event.kind.enters() {
            Some(tail) => self.calls.enter(event.site, tail, is_chosen),
            None => self.calls.resume(event.site, is_chosen),
        }
    }

    /// Whether the frame of the innermost call belongs to a call that passed.
    fn shares_frame(&self) -> bool {
        let innermost_first = self.calls.open().iter().rev();
        innermost_first.into_iter().find(|call| call.data || !call.tail).is_some_and(|call| call.data)
    }

    /// Ends calls, and passes the ends of those on that passed.
    fn end(&mut self, event: &Event, values: &[u8], closing: &Closing, out: &mut Batch) {
        let ticks = event.ticks;
        // Calls that return together, innermost first.
        let mut returned: Vec<SiteId> = Vec::new();
        let mut own_values: &[u8] = &[];
        while let Some((call, ending)) = self.calls.close(closing) {
            if !call.data {
                continue;
            }
            match ending {
                Ending::Tail => returned.push(call.site),
                Ending::Returned => {
                    returned.push(call.site);
                    own_values = values;
                }
                // The end of the thread passes as an event of its own.
                _ if event.kind == EventKind::ThreadEnded => {}
                Ending::Outside => {
                    out.push(Event { ticks, site: call.site, kind: EventKind::Outside { pops: 1 } }, &[]);
                }
                _ => out.push(Event { ticks, site: call.site, kind: EventKind::Left { pops: 1 } }, &[]),
            }
        }
        if let Some(&site) = returned.last() {
            let kind = EventKind::Exit { pops: returned.len() as u32 };
            out.push(Event { ticks, site, kind }, own_values);
        }
    }
}

/// Returns the kind of an entry that shares no frame with an earlier call that passed.
fn with_own_frame(kind: EventKind) -> EventKind {
    match kind {
        EventKind::TailEntry => EventKind::Entry,
        EventKind::TailEntryFrom { parent } => EventKind::EntryFrom { parent },
        other => other,
    }
}
