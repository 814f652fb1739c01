//! [`Sieve`] lets the events of one thread pass that belong to a part of a trace: for views of a
//! part, and for a recorder that writes only a part.
//!
//! The calls of a part are calls of the whole trace: [`Calls`] keeps the open ones, as in the tree
//! builder, and the sieve writes new events that open and end the shown ones. The shown calls are
//! always consecutive: from the outermost call of the part's functions, to the given depth, as far
//! as they are known to be long enough. A longer call never lies within a shorter one.

use crate::calls::{Calls, Closing, OpenCall};
use crate::ending::Ending;
use crate::event::{Batch, Event, EventKind};
use crate::meta::SiteId;
use std::collections::VecDeque;

/// The rules for a part. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Sifting {
    /// First tick of the part.
    pub from: u64,
    /// First tick behind the part.
    pub to: u64,
    /// Whether only calls of some functions, and what they call, belong to it.
    pub rooted: bool,
    /// Whether only calls of some functions, and the calls that lead to them, belong to it.
    pub targeted: bool,
    /// Number of levels that are shown.
    pub depth: usize,
    /// Ticks above which calls are shown; `None`: all.
    pub longer: Option<u64>,
}

/// The rules' verdict on the function of an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct FunctionRules {
    /// Whether its calls are shown with what they call.
    pub is_root: bool,
    /// Whether its calls are shown with the calls that lead to them.
    pub is_target: bool,
    /// Number of levels that are shown within its calls, itself the first.
    pub levels: Option<usize>,
}

/// Argument of [`Sieve::judge`] when no call returns.
const ALL_OPEN: (usize, usize) = (usize::MAX, usize::MAX);

/// The entry of an open call, to be written when the call turns out to be shown.
#[derive(Debug)]
struct PendingEntry {
    start: u64,
    kind: EventKind,
    values: Box<[u8]>,
}

/// The sieve of one thread.
#[derive(Debug)]
pub struct Sieve {
    rules: Sifting,
    calls: Calls<PendingEntry>,
    last: u64,
    /// Number of open calls around the outermost one that is of the part's functions.
    root: Option<usize>,
    /// Number of calls from there on that are shown.
    shown: usize,
    /// For open calls with a limit of levels: the number of calls around each, and the most open
    /// calls within it.
    limits: Vec<(usize, usize)>,
    /// For open calls that are shown with what leads to them: the number of calls around each.
    targets: Vec<usize>,
    /// Events that may have ended calls, and the number of calls open then: see
    /// [`Sieve::hold_mark`].
    marks: VecDeque<(usize, Event)>,
    /// Whether an event in the part, or behind it, was seen.
    begun: bool,
    /// Whether the part has ended, so that no more events pass.
    over: bool,
}

impl Sieve {
    /// Creates the sieve of a thread that has done nothing yet.
    pub fn new(rules: Sifting) -> Sieve {
        Sieve {
            rules,
            calls: Calls::default(),
            last: 0,
            root: None,
            shown: 0,
            limits: Vec::new(),
            targets: Vec::new(),
            marks: VecDeque::new(),
            begun: false,
            over: false,
        }
    }

    /// Whether no more events pass.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Pauses at `at`: no events pass until [`Sieve::go_on`], and calls that are open now end
    /// outside of what is shown. No event later than `at` was taken.
    pub fn pause(&mut self, at: u64, out: &mut Batch) {
        if self.begun {
            self.judge(self.last.max(at.min(self.rules.to)), ALL_OPEN, out);
            self.pass_marks(out);
            self.cut(at, out);
        }
        (self.begun, self.rules.from, self.shown) = (false, u64::MAX, 0);
    }

    /// Lets events pass again from `at` on. Calls that are open then began outside.
    pub fn go_on(&mut self, at: u64) {
        self.rules.from = at;
        // Events that may have ended calls during the pause had no time.
        self.marks.iter_mut().for_each(|(_, mark)| mark.ticks = at);
    }

    /// Applies other rules to calls that begin from `at` on. Open calls end outside of what was
    /// shown, and are not followed any more.
    pub fn begin_anew(&mut self, rules: Sifting, at: u64, out: &mut Batch) {
        let (at, is_paused) = (at.max(self.last), self.rules.from == u64::MAX);
        self.pause(at, out);
        let from = if is_paused { u64::MAX } else { at };
        *self = Sieve { last: at, ..Sieve::new(Sifting { from, ..rules }) };
    }

    /// Takes the thread's next event, and the rules' verdict on its function; events that pass are
    /// added to `out`.
    pub fn take(&mut self, event: &Event, rules: FunctionRules, values: &[u8], out: &mut Batch) {
        if self.over {
            return;
        }
        if let (Some(levels), true) = (rules.levels, event.kind.opens_frame()) {
            let depth = self.calls.depth();
            self.limits.push((depth, self.limit().min(depth.saturating_add(levels))));
        }
        let now = event.ticks.max(self.last);
        // Calls are known to be open until their next event, or until the last one where an event
        // tells that they ended earlier.
        let known = match event.kind {
            EventKind::Left { .. }
            | EventKind::Lost { .. }
            | EventKind::SwitchedOff
            | EventKind::ThreadEnded => self.last,
            _ => now,
        };
        let returns = match event.kind {
            EventKind::Exit { pops } => self.calls.exit(event.site, pops),
            _ => None,
        };
        self.begun |= now >= self.rules.from;
        self.judge(known, returns.map_or(ALL_OPEN, |closing| (closing.depth(), closing.returned())), out);
        self.pass_marks(out);
        if now >= self.rules.to {
            return self.leave(out);
        }
        if !matches!(event.kind, EventKind::Left { .. } | EventKind::SwitchedOff | EventKind::ThreadEnded) {
            self.last = now;
        }
        self.pass(&Event { ticks: now, ..*event }, rules, values, out);
    }

    /// Applies an event to the open calls, and passes it on if it is shown.
    fn pass(&mut self, event: &Event, rules: FunctionRules, values: &[u8], out: &mut Batch) {
        if event.kind.opens_frame() {
            return self.enter(event, rules, values, out);
        }
        match (event.kind, self.calls.end(event)) {
            (EventKind::ThreadEnded, closing) => {
                closing.inspect(|closing| self.end(event, values, closing, out));
                if self.begun {
                    out.push(*event, values);
                }
            }
            (_, Some(closing)) => self.end(event, values, &closing, out),
            (EventKind::Exit { .. }, None) => self.orphan(event, values, out),
            (EventKind::Call { .. }, None) => self.mark(event, rules, values, out),
            (EventKind::Lost { .. } | EventKind::SwitchedOff, None) => {
                self.hold_mark(event);
                self.pass_marks(out);
            }
            _ => {}
        }
    }

    /// Ends the thread: its open calls are as open as in the whole trace.
    pub fn finish(&mut self, out: &mut Batch) {
        self.begun = true;
        self.judge(self.last, ALL_OPEN, out);
        self.over = true;
    }

    /// Begins a call.
    fn enter(&mut self, event: &Event, rules: FunctionRules, values: &[u8], out: &mut Batch) {
        let depth = self.calls.depth();
        if self.root.is_none() && (rules.is_root || !self.rules.rooted) {
            (self.root, self.shown) = (Some(depth), 0);
        }
        if rules.is_target {
            self.targets.push(depth);
        }
        let held = PendingEntry { start: event.ticks, kind: event.kind, values: values.into() };
        match event.kind.enters() {
            Some(tail) => self.calls.enter(event.site, tail, held),
            None => self.calls.resume(event.site, held),
        }
        self.judge(event.ticks, ALL_OPEN, out);
    }

    /// Returns how many calls may be open, by the innermost limit.
    fn limit(&self) -> usize {
        self.limits.last().map_or(usize::MAX, |(_, limit)| *limit)
    }

    /// Returns how many calls may be open above this root.
    fn last_level(&self, root: usize) -> usize {
        root.saturating_add(self.rules.depth).min(self.limit())
    }

    /// Shows the open calls that are known at `now` to belong to the part. Calls from `ends.0` to
    /// `ends.1` return now; those above are cut.
    fn judge(&mut self, now: u64, ends: (usize, usize), out: &mut Batch) {
        let (Some(root), true) = (self.root, self.begun) else { return };
        let open = self.calls.open();
        let first = root + self.shown;
        let last = open.len().min(self.last_level(root)).min(ends.1);
        if first >= last || !self.leads_to_target(first) {
            return;
        }
        let is_long = |at: usize| {
            let is_open = open[at].cut.is_none() || at >= ends.0;
            self.rules.longer.is_none_or(|limit| is_open && now.saturating_sub(open[at].data.start) > limit)
        };
        if open[first].cut.is_none() && !is_long(first) {
            return;
        }
        let is_wanted = |at: &usize| is_long(*at) && self.leads_to_target(*at);
        let Some(innermost) = (first..last).rev().find(is_wanted) else { return };
        for at in first..=innermost {
            self.shown = at - root;
            self.pass_marks(out);
            let Some(call) = self.calls.open().get(at) else { return };
            let PendingEntry { start, kind, values } = &call.data;
            out.push(Event { ticks: (*start).max(self.rules.from), site: call.site, kind: *kind }, values);
        }
        self.shown = innermost + 1 - root;
        self.pass_marks(out);
    }

    /// Whether the call with `depth` calls around it, or an inner one, is of a function whose
    /// callers are shown; true where all functions are.
    fn leads_to_target(&self, depth: usize) -> bool {
        !self.rules.targeted || self.targets.last().is_some_and(|target| *target >= depth)
    }

    /// Holds back an event that may have ended calls: a loss, or the disabling of a function. It
    /// passes behind the entries in front of it.
    fn hold_mark(&mut self, event: &Event) {
        let mut event = *event;
        if !self.begun {
            // A loss before the part is not a loss in it, but calls that were open then may have
            // ended since.
            event.ticks = self.rules.from;
            if let EventKind::Lost { entries, exits } = &mut event.kind {
                (*entries, *exits) = (0, 0);
            }
        }
        self.add_mark(self.calls.depth(), event);
    }

    /// Adds a mark behind the others, unless it is before the part and says nothing of its open
    /// calls, or nothing new.
    fn add_mark(&mut self, depth: usize, mark: Event) {
        let is_of_open = |open: &[OpenCall<_>]| match mark.kind {
            EventKind::SwitchedOff => open.iter().any(|call| call.site == mark.site),
            _ => !open.is_empty(),
        };
        let mut others = self.marks.iter().rev().take_while(|(before, _)| *before == depth);
        let open = &self.calls.open()[..depth.min(self.calls.depth())];
        if self.begun || is_of_open(open) && !others.any(|(_, other)| *other == mark) {
            self.marks.push_back((depth, mark));
        }
    }

    /// Notes that calls have ended: marks do not wait for their entries any more.
    fn lower_marks(&mut self, depth: usize) {
        // Marks are in the order of their depths.
        let deeper = self.marks.iter().rev().take_while(|(before, _)| *before > depth).count();
        for (_, mark) in self.marks.split_off(self.marks.len() - deeper) {
            self.add_mark(depth, mark);
        }
    }

    /// Passes the marks on that are held back, unless entries in front of them are held back.
    fn pass_marks(&mut self, out: &mut Batch) {
        if !self.begun || self.marks.is_empty() {
            return;
        }
        let waiting = match self.root {
            Some(root) if root + self.shown < self.last_level(root) => root + self.shown,
            _ => usize::MAX,
        };
        while self.marks.front().is_some_and(|(depth, _)| *depth <= waiting) {
            if let Some((_, event)) = self.marks.pop_front() {
                out.push(event, &[]);
            }
        }
    }

    /// Ends calls, and passes the ends of shown ones on.
    fn end(&mut self, event: &Event, values: &[u8], closing: &Closing, out: &mut Batch) {
        let ticks = event.ticks;
        // Tail calls, innermost first, that end with the frame they share.
        let mut tails: Vec<SiteId> = Vec::new();
        while let Some((call, ending)) = self.calls.close(closing) {
            let depth = self.calls.depth();
            while self.limits.last().is_some_and(|(below, _)| *below >= depth) {
                self.limits.pop();
            }
            self.lower_marks(depth);
            self.targets.pop_if(|target| *target >= depth);
            let Some(root) = self.root else { continue };
            let is_shown = depth < root + self.shown;
            self.shown = self.shown.min(depth.saturating_sub(root));
            if depth == root {
                self.root = None;
            }
            self.pass_marks(out);
            if !is_shown {
                continue;
            }
            let began_before = call.data.start < self.rules.from;
            let (site, pops) = (call.site, tails.len() as u32 + 1);
            match ending {
                Ending::Tail if !began_before => tails.push(site),
                Ending::Returned if !began_before => {
                    out.push(Event { ticks, site, kind: EventKind::Exit { pops } }, values);
                    tails.clear();
                }
                Ending::Returned | Ending::Tail => {
                    end_tails(&mut tails, ticks, out);
                    out.push(Event { ticks, site, kind: EventKind::Outside { pops: 1 } }, &[]);
                }
                // The end of the thread passes as an event of its own.
                _ if event.kind == EventKind::ThreadEnded => {}
                _ => out.push(Event { ticks, site, kind: EventKind::Left { pops: 1 } }, &[]),
            }
        }
        end_tails(&mut tails, ticks, out);
    }

    /// Passes on a return without an entry.
    fn orphan(&mut self, event: &Event, values: &[u8], out: &mut Batch) {
        if self.begun
            && self.rules.longer.is_none()
            && !self.rules.targeted
            && self.has_level()
            && (self.root.is_some() || !self.rules.rooted)
        {
            out.push(Event { kind: EventKind::Exit { pops: 0 }, ..*event }, values);
        }
    }

    /// Passes on a call that has no duration.
    fn mark(&mut self, event: &Event, rules: FunctionRules, values: &[u8], out: &mut Batch) {
        let is_inside = self.root.is_some() || rules.is_root || !self.rules.rooted;
        let is_inside = is_inside && (rules.is_target || !self.rules.targeted);
        if self.begun && self.rules.longer.is_none() && is_inside && self.has_level() {
            out.push(*event, values);
        }
    }

    /// Whether a call that begins now would be shown, by its depth.
    fn has_level(&self) -> bool {
        let depth = self.calls.depth();
        self.root.map_or(depth < self.limit(), |root| depth < self.last_level(root))
    }

    /// Ends the part: open calls continue behind it.
    fn leave(&mut self, out: &mut Batch) {
        self.over = true;
        self.cut(self.rules.to, out);
    }

    /// Writes that the shown calls continue outside of the part.
    fn cut(&self, at: u64, out: &mut Batch) {
        let innermost = self.calls.open().last();
        if let (Some(call), true) = (innermost, self.shown > 0) {
            let kind = EventKind::Outside { pops: self.shown as u32 };
            out.push(Event { ticks: at, site: call.site, kind }, &[]);
        }
    }
}

/// Ends tail calls whose frame's owner is not shown, or began before the part.
fn end_tails(tails: &mut Vec<SiteId>, ticks: u64, out: &mut Batch) {
    if let Some(&site) = tails.last() {
        let kind = EventKind::Exit { pops: tails.len() as u32 };
        out.push(Event { ticks, site, kind }, &[]);
        tails.clear();
    }
}
