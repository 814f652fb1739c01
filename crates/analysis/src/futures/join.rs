//! The joiner: turns single polls into spans of futures.

use super::{
    End, FutureEvent, NEW, OUTERMOST, PANICKED, READY, RESUMED, Role, Span, Wait, Waking, is_pool_thread,
};
use calltap_names::is_type;
use calltap_trace::{FutureValues, ThreadId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Largest result that can be a discriminant of `Poll`: 0 and 1, and one or two more if the payload
/// is stored in the same small number.
const SMALL: u64 = 3;
/// Lowest possible address.
const LOWEST: u64 = 4096;

/// Properties of the results of a type's polls.
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    /// Whether results are written to memory that the caller points to.
    elsewhere: bool,
    /// The largest of their lowest bytes.
    largest: u64,
}

/// A future that has not ended.
struct Open {
    kind: u32,
    span: Span,
    /// Process and address of each future that it was the first to poll.
    children: Vec<(u32, u64)>,
    /// The time at which its parent ended, if it has.
    left: Option<u64>,
    /// Whether its last poll is known to have returned `Pending`.
    waits: bool,
}

/// A poll in progress.
struct Level {
    seen: FutureEvent,
    /// The span of the future.
    span: Option<Id>,
    /// Whether it is the poll of a task in which no future has been seen yet.
    bare: bool,
    /// The waking after which its task is polled.
    waking: Option<Waking>,
}

/// Identity of a span: process and address, and the span's number.
type Id = ((u32, u64), u64);

/// The end of a poll. The earliest pops first, of equal ones the innermost.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ending(Reverse<u64>, u32, ThreadId);

/// Joins polls into spans.
#[derive(Default)]
pub(crate) struct Joiner {
    roles: Vec<Role>,
    /// Types by [`Role::key`].
    kinds: HashMap<String, u32>,
    kind_of: Vec<u32>,
    results: Vec<Results>,
    drops: HashMap<(u32, u32), bool>,
    waiting: Vec<FutureEvent>,
    lanes: HashMap<ThreadId, Vec<Level>>,
    endings: BinaryHeap<Ending>,
    open: HashMap<(u32, u64), Vec<Open>>,
    /// The first waking of each task since its last poll began, by process and address.
    wakings: HashMap<(u32, u64), Waking>,
    next: u64,
    /// Whether every poll is kept with its span.
    keeps_polls: bool,
}

impl Joiner {
    /// Makes the joiner keep the times of every poll.
    pub(crate) fn keeping_polls(self) -> Joiner {
        Joiner { keeps_polls: true, ..self }
    }

    /// Returns the number of a role.
    pub(crate) fn role(&mut self, role: &Role) -> u32 {
        let new = self.kinds.len() as u32;
        let kind = *self.kinds.entry(role.key.clone()).or_insert(new);
        if kind == new {
            self.results.push(Results::default());
        }
        self.roles.push(role.clone());
        self.kind_of.push(kind);
        self.roles.len() as u32 - 1
    }

    /// Returns the name of a type.
    pub(crate) fn type_name(&self, kind: u32) -> &str {
        let role = self.kind_of.iter().position(|of| *of == kind);
        role.map_or("", |role| &self.roles[role].name)
    }

    /// Takes a poll, a drop or a waking.
    pub(crate) fn seen(&mut self, seen: FutureEvent) {
        self.waiting.push(seen);
    }

    /// Iterates over the futures that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Span> {
        self.open.values().flatten().map(|open| &open.span)
    }

    /// Joins everything that began before `before`, and passes futures that ended to `ended`. The
    /// caller passes nothing older later on.
    pub(crate) fn settle(&mut self, before: u64, ended: &mut dyn FnMut(Span)) {
        let mut all = std::mem::take(&mut self.waiting);
        all.iter().for_each(|seen| self.learn(seen));
        all.sort_by_key(|seen| (seen.ticks.0, seen.depth));
        let now = all.partition_point(|seen| seen.ticks.0 < before);
        self.waiting = all.split_off(now);
        for seen in all {
            self.end_until(seen.ticks.0, Some((seen.thread, seen.depth)), ended);
            self.begin(seen, ended);
        }
    }

    /// Joins everything that is left. Futures that have not ended go to `ended`, too.
    pub(crate) fn finish(&mut self, ended: &mut dyn FnMut(Span)) {
        self.settle(u64::MAX, ended);
        self.end_until(u64::MAX, None, ended);
        let mut left: Vec<Open> = std::mem::take(&mut self.open).into_values().flatten().collect();
        left.sort_by_key(|open| open.span.id);
        for Open { mut span, left, waits, .. } in left {
            span.how = match left {
                _ if !waits => End::Unknown,
                // The owner of the future has ended, and no task has polled it since.
                Some(_) => End::Dropped,
                None => End::Waiting,
            };
            until(&mut span, left.filter(|_| waits).unwrap_or(0));
            ended(span);
        }
    }

    fn values(&self, seen: &FutureEvent) -> FutureValues {
        self.roles[seen.role as usize].values
    }

    fn learn(&mut self, seen: &FutureEvent) {
        use FutureValues::{Inlined, Told, Written};
        let is_plain = matches!(self.values(seen), Written | Inlined | Told { .. });
        let Some(result) = seen.after.filter(|_| is_plain) else { return };
        let results = &mut self.results[self.kind_of[seen.role as usize] as usize];
        if result >= LOWEST && Some(result) == seen.before[0] {
            results.elsewhere = true;
        } else {
            results.largest = results.largest.max(result & 0xFF);
        }
    }

    /// Ends the polls that ended by `now`. `next` is a poll that begins at `now`: polls around it
    /// stay open.
    fn end_until(&mut self, now: u64, next: Option<(ThreadId, u32)>, ended: &mut dyn FnMut(Span)) {
        let mut around = Vec::new();
        while let Some(ending) = self.endings.pop() {
            let Ending(Reverse(end), depth, thread) = ending;
            if end > now {
                self.endings.push(ending);
                break;
            }
            if end == now && next.is_some_and(|next| next.0 == thread && next.1 > depth) {
                around.push(ending);
                continue;
            }
            let level = self.lanes.get_mut(&thread).and_then(Vec::pop);
            level.into_iter().for_each(|level| self.end(level, ended));
        }
        self.endings.extend(around);
    }

    fn begin(&mut self, seen: FutureEvent, ended: &mut dyn FnMut(Span)) {
        let values = self.values(&seen);
        if values == FutureValues::Dropped {
            self.dropped(&seen, ended);
            return;
        }
        if values == FutureValues::Woken {
            self.woken(&seen);
            return;
        }
        let is_outermost = is_outermost(values, &seen);
        let is_task = matches!(values, FutureValues::Task | FutureValues::TaskState) || is_outermost;
        let lane = self.lanes.entry(seen.thread).or_default();
        let bare = values == FutureValues::Task;
        let below = lane.last_mut();
        let parent = below.as_ref().and_then(|level| level.span).filter(|_| !is_task);
        // Several functions of tokio poll a task, one within the other.
        let outer = below.as_ref().filter(|level| !is_task || level.seen.before[0] == seen.before[0]);
        let waking = match (outer, seen.before[0]) {
            (Some(level), _) => level.waking,
            (None, Some(task)) if is_task => self.wakings.remove(&(seen.process, task)),
            (None, _) => None,
        };
        // The first future polled in a task is the spawned one.
        let spawned = below.and_then(|level| {
            let is_first = std::mem::replace(&mut level.bare, false);
            level.seen.before[0].filter(|_| is_first)
        });
        let is_named = values == FutureValues::TaskState || is_outermost;
        let task = if is_named { seen.before[0] } else { spawned };
        let span = if bare { None } else { self.polled(&seen, parent, task, waking, ended) };
        self.endings.push(Ending(Reverse(seen.ticks.1), seen.depth, seen.thread));
        self.lanes.entry(seen.thread).or_default().push(Level { seen, span, bare, waking });
    }

    /// Notes the first waker of a task since its last poll.
    fn woken(&mut self, seen: &FutureEvent) {
        let Some(task) = seen.before[0] else { return };
        let lane = self.lanes.get(&seen.thread).into_iter().flatten();
        let polled = lane.rev().find_map(|level| Some((level.span?.1, level.seen.role)));
        let polled = polled.filter(|(_, role)| !is_pool_thread(&self.roles[*role as usize].name));
        let future = polled.map(|(id, role)| (id, self.kind_of[role as usize]));
        let FutureEvent { thread, caller, ticks, .. } = *seen;
        self.wakings.entry((seen.process, task)).or_insert(Waking { at: ticks.0, thread, future, caller });
    }

    /// Ends a poll. A task in which no future was seen is a future itself.
    fn end(&mut self, level: Level, ended: &mut dyn FnMut(Span)) {
        let Level { seen, mut span, bare, waking } = level;
        if bare {
            span = self.polled(&seen, None, seen.before[0], waking, ended);
        }
        let (Some((place, id)), Some((_, _, ready))) = (span, self.read(&seen)) else { return };
        let keeps_polls = self.keeps_polls;
        let values = self.values(&seen);
        let failed = seen.after == Some(PANICKED);
        let raised = failed && values == FutureValues::Coroutine;
        let panicked = seen.unwound || failed && values == FutureValues::State;
        let Some(all) = self.open.get_mut(&place) else { return };
        let Some(at) = all.iter().position(|open| open.span.id == id) else { return };
        let Open { span, waits, .. } = &mut all[at];
        poll_ends(span, seen.ticks.0, seen.ticks.1, seen.thread, keeps_polls);
        *waits = ready == Some(false);
        if panicked || raised || ready == Some(true) {
            span.how = match (panicked, raised) {
                (true, _) => End::Panicked,
                (false, true) => End::Raised,
                (false, false) => End::Ready,
            };
            let open = all.swap_remove(at);
            self.close(open, ended);
        }
    }

    /// Decodes whether a poll's result is `Ready`, if results are discriminants: the largest seen
    /// is `Pending`.
    fn is_ready(&self, seen: &FutureEvent) -> Option<bool> {
        let pending = self.results[self.kind_of[seen.role as usize] as usize].largest.max(1);
        let code = seen.after.map(|result| result & 0xFF).filter(|_| pending <= SMALL);
        code.map(|code| code != pending)
    }

    /// Returns the future's address, whether it is known to be new, and whether the poll is known
    /// to have returned `Ready`.
    fn read(&self, seen: &FutureEvent) -> Option<(u64, Option<bool>, Option<bool>)> {
        let [first, second] = seen.before;
        let results = self.results[self.kind_of[seen.role as usize] as usize];
        Some(match self.values(seen) {
            FutureValues::Told { pending, equal, elsewhere } if elsewhere || !results.elsewhere => {
                let ready = seen.told.map(|told| (told == pending) != equal);
                (if elsewhere { second? } else { first? }, None, ready)
            }
            FutureValues::Told { .. } => (second?, None, None),
            FutureValues::Written if results.elsewhere => (second?, None, None),
            FutureValues::Written => (first?, None, self.is_ready(seen)),
            FutureValues::Inlined => (first?, second.map(|state| state == NEW), self.is_ready(seen)),
            FutureValues::State => {
                let ready = seen.after.filter(|state| *state != NEW).map(|state| state == READY);
                (first?, second.map(|state| state == NEW), ready)
            }
            FutureValues::TaskState => (first?, second.map(|state| state == NEW), None),
            FutureValues::Coroutine => {
                let new = second.map(|flags| flags & RESUMED == 0);
                (first?, new, seen.after.map(|state| state == READY))
            }
            FutureValues::Task | FutureValues::Dropped | FutureValues::Woken => (first?, None, None),
        })
    }

    /// Joins a poll that begins to its future.
    fn polled(
        &mut self,
        seen: &FutureEvent,
        parent: Option<Id>,
        task: Option<u64>,
        waking: Option<Waking>,
        ended: &mut dyn FnMut(Span),
    ) -> Option<Id> {
        let (address, new, _) = self.read(seen)?;
        let (kind, place) = (self.kind_of[seen.role as usize], (seen.process, address));
        let all = self.open.entry(place).or_default();
        let known = all.iter().position(|open| open.kind == kind).map(|at| all.swap_remove(at));
        let mut open = match known {
            Some(open) if new != Some(true) => open,
            // A new future has this address: the end of the former one was not seen.
            other => {
                if let Some(mut before) = other {
                    before.span.how = if before.waits { End::Dropped } else { End::Unknown };
                    until(&mut before.span, before.left.filter(|_| before.waits).unwrap_or(0));
                    self.close(before, ended);
                }
                self.new_span(seen, address, parent, new == Some(false))
            }
        };
        open.left = None;
        let span = &mut open.span;
        polled_again(span, seen.ticks.0, waking, self.keeps_polls);
        span.polls += 1;
        span.task = span.task.or(task);
        if !span.threads.contains(&seen.thread) {
            span.threads.push(seen.thread);
        }
        let id = span.id;
        self.open.entry(place).or_default().push(open);
        Some((place, id))
    }

    fn new_span(
        &mut self,
        seen: &FutureEvent,
        address: u64,
        parent: Option<Id>,
        began_earlier: bool,
    ) -> Open {
        self.next += 1;
        // A coroutine that is freed is closed before, which runs it.
        let is_owned = self.values(seen) != FutureValues::Coroutine;
        if let Some((at, id)) = parent.filter(|_| is_owned)
            && let Some(parent) = self.open.get_mut(&at).into_iter().flatten().find(|open| open.span.id == id)
        {
            parent.children.push((seen.process, address));
        }
        let span = Span {
            id: self.next,
            name: self.roles[seen.role as usize].name.clone(),
            process: seen.process,
            address,
            task: None,
            parent: parent.map(|(_, id)| id),
            start: seen.ticks.0,
            end: seen.ticks.0,
            began_earlier,
            how: End::Waiting,
            polls: 0,
            busy: 0,
            longest_poll: 0,
            idle: 0,
            longest_idle: 0,
            threads: Vec::new(),
            runnable: 0,
            unknown: 0,
            waking: None,
            all_polls: Vec::new(),
            waits: Vec::new(),
        };
        let kind = self.kind_of[seen.role as usize];
        Open { kind, span, children: Vec::new(), left: None, waits: false }
    }

    /// Ends a future. The futures that it owned, directly or not, end with it unless another task
    /// polls them again.
    fn close(&mut self, over: Open, ended: &mut dyn FnMut(Span)) {
        let (id, end) = (over.span.id, over.span.end);
        if let Some(task) = over.span.task {
            self.wakings.remove(&(over.span.process, task));
        }
        let mut owned: Vec<((u32, u64), u64)> = over.children.into_iter().map(|place| (place, id)).collect();
        while let Some((place, owner)) = owned.pop() {
            let children = self.open.get_mut(&place).into_iter().flatten();
            for child in children.filter(|child| child.span.parent == Some(owner) && child.left.is_none()) {
                child.left = Some(end);
                owned.extend(child.children.iter().map(|place| (*place, child.span.id)));
            }
        }
        ended(over.span);
    }

    fn dropped(&mut self, seen: &FutureEvent, ended: &mut dyn FnMut(Span)) {
        let Some(address) = seen.before[0] else { return };
        let Some(all) = self.open.get_mut(&(seen.process, address)) else { return };
        let role = &self.roles[seen.role as usize];
        let mut is_it = |open: &Open| {
            *self
                .drops
                .entry((seen.role, open.kind))
                .or_insert_with(|| role.drops.iter().any(|dropped| is_type(&open.span.name, dropped)))
        };
        let Some(at) = all.iter().position(&mut is_it) else { return };
        let mut open = all.swap_remove(at);
        // A panic drops the future while unwinding leaves its poll.
        let lane = self.lanes.get(&seen.thread).into_iter().flatten();
        let left = lane.rev().find(|level| level.span.is_some_and(|(_, id)| id == open.span.id));
        if let Some(left) = left.filter(|left| left.seen.unwound) {
            poll_ends(&mut open.span, left.seen.ticks.0, seen.ticks.0, seen.thread, self.keeps_polls);
            open.span.how = End::Panicked;
        } else if open.waits {
            until(&mut open.span, seen.ticks.0);
            open.span.how = End::Dropped;
        } else {
            open.span.how = End::Unknown;
        }
        self.close(open, ended);
    }
}

/// Whether this is a run of a coroutine that no other one resumed.
fn is_outermost(values: FutureValues, seen: &FutureEvent) -> bool {
    values == FutureValues::Coroutine && seen.before[1].is_some_and(|flags| flags & OUTERMOST != 0)
}

/// Adds a poll that ended.
fn poll_ends(span: &mut Span, start: u64, end: u64, thread: ThreadId, keep: bool) {
    let time = end.saturating_sub(start);
    span.end = span.end.max(end);
    span.busy += time;
    span.longest_poll = span.longest_poll.max(time);
    if keep {
        span.all_polls.push((start, end, thread));
    }
}

/// Adds the time between the last poll and a new one.
fn polled_again(span: &mut Span, now: u64, waking: Option<Waking>, keep: bool) {
    let (from, longest) = (span.end, span.longest_idle);
    until(span, now);
    if now <= from {
        return;
    }
    match waking {
        Some(waking) => span.runnable += now.saturating_sub(waking.at.max(from)),
        None => span.unknown += now - from,
    }
    if span.longest_idle > longest {
        span.waking = waking;
    }
    if keep {
        span.waits.push(Wait { from, to: now, waking });
    }
}

/// Adds the idle time since the last poll.
fn until(span: &mut Span, now: u64) {
    let idle = now.saturating_sub(span.end);
    span.idle += idle;
    span.longest_idle = span.longest_idle.max(idle);
    span.end = span.end.max(now);
}
