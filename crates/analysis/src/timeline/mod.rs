//! The timeline: the calls of all threads over time, built once, then shown at any zoom level
//! without delay.
//!
//! A thread has a track of [`Block`]s for each depth. While the events are read, adjacent short
//! calls are merged into blocks as soon as there are too many; the result is kept at several
//! levels, each at most half as large as the one before. A window is served from the coarsest level
//! that is fine enough for it; if none is, its events are read again, from the checkpoint before
//! it. Memory is thus limited, whatever the number of events.

mod band;
mod block;
mod gather;

pub use band::{Band, Piece};
pub use block::Block;

use crate::error::Error;
use crate::sources::drive::{Progress, feed_batch, tell};
use crate::sources::source::{Damage, Source, threads_with_events};
use crate::states::states;
use crate::tree::{Stack, Totals};
use block::{coarser, push, within};
use calltap_trace::{Batch, SiteId, ThreadId};
use gather::{CallSelection, Gather};
use std::sync::{Arc, Mutex, PoisonError};

/// Limits of memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of blocks at the finest level, 48 bytes each (at least one for each thread
    /// and depth).
    pub blocks: usize,
    /// Maximum number of levels of depth; deeper calls are only counted.
    pub depth: usize,
    /// Maximum number of open calls in checkpoints, 24 bytes each.
    pub checkpoints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { blocks: 2 << 20, depth: 512, checkpoints: 1 << 20 }
    }
}

/// Maximum number of events that are read again for one window.
const READ: u64 = 8 << 20;
/// Maximum number of pieces of cached bands.
const PIECES: usize = 4 << 20;
/// The first quantum other than 0, nanoseconds.
const QUANTUM: u64 = 32;

/// The state of a thread before one of its batches.
struct Checkpoint {
    batch: usize,
    /// Time of the preceding event.
    now: u64,
    stack: Stack,
}

impl Checkpoint {
    /// Cost of the checkpoint, in frames; an empty stack costs some too.
    fn frames(&self) -> usize {
        self.stack.depth() + 4
    }
}

/// Amounts held while events are read.
struct Amounts {
    /// Number of blocks in finished lanes.
    blocks: usize,
    frames: usize,
    /// A checkpoint is made every `stride` batches.
    stride: usize,
}

/// A thread of the timeline; lanes are in ascending order of threads.
#[derive(Default)]
struct ThreadTimeline {
    thread: ThreadId,
    /// Levels from fine to coarse: the longest merged block, and the tracks by depth.
    levels: Vec<(u64, Vec<Vec<Block>>)>,
    lost: Vec<Block>,
    deeper: u64,
    checkpoints: Vec<Checkpoint>,
    end: u64,
}

fn blocks(tracks: &[Vec<Block>]) -> usize {
    tracks.iter().map(Vec::len).sum()
}

impl ThreadTimeline {
    fn blocks(&self) -> usize {
        self.lost.len() + self.levels.iter().map(|(_, tracks)| blocks(tracks)).sum::<usize>()
    }
}

/// The calls of all threads.
pub struct Timeline {
    lanes: Vec<ThreadTimeline>,
    kept: CallSelection,
    /// Nanoseconds of the clock at its beginning.
    origin: u64,
    end: u64,
    /// Maximum length of merged blocks at the finest level.
    quantum: u64,
    /// The bands requested last, the newest at the end.
    bands: Mutex<Vec<(ThreadId, Arc<Band>)>>,
}

/// Part of a thread's timeline.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Blocks by depth, in order.
    pub tracks: Vec<Vec<Block>>,
    /// Times at which events are missing, and their numbers.
    pub lost: Vec<Block>,
}

impl Timeline {
    /// Reads all events.
    pub fn new(
        source: &dyn Source,
        limits: Limits,
        progress: Progress<'_>,
    ) -> Result<(Timeline, Totals), Error> {
        Self::build(source, limits, CallSelection::Levels(limits.depth), progress)
    }

    /// Reads all events and keeps the outermost calls of some functions, all on one level.
    pub(crate) fn only(source: &dyn Source, sites: &[SiteId], limits: Limits) -> Result<Timeline, Error> {
        let mut kept = vec![false; source.meta().sites.len() + 1];
        for site in sites {
            if let Some(kept) = kept.get_mut(site.0 as usize) {
                *kept = true;
            }
        }
        Ok(Self::build(source, limits, CallSelection::Only(kept.into()), None)?.0)
    }

    fn build(
        source: &dyn Source,
        limits: Limits,
        kept: CallSelection,
        mut progress: Progress<'_>,
    ) -> Result<(Timeline, Totals), Error> {
        let spans = threads_with_events(source).into_iter().filter_map(|thread| source.thread_span(thread));
        let origin = spans.map(|(first, _)| source.to_ns(first)).min().unwrap_or(0);
        let mut timeline =
            Timeline { lanes: Vec::new(), kept, origin, end: 0, quantum: 0, bands: Mutex::default() };
        let (mut totals, mut damage) = (Totals::default(), Damage::default());
        let mut held = Amounts { blocks: 0, frames: 0, stride: 1 };
        for thread in threads_with_events(source) {
            totals.threads += 1;
            timeline.lanes.push(ThreadTimeline { thread, ..ThreadTimeline::default() });
            timeline.read(source, &limits, &mut held, (&mut totals, &mut damage), &mut progress);
        }
        damage.report(&mut totals);
        timeline.end = timeline.lanes.iter().map(|lane| lane.end).max().unwrap_or(0);
        timeline.stack_levels();
        Ok((timeline, totals))
    }

    /// Reads the events of the last lane.
    fn read(
        &mut self,
        source: &dyn Source,
        limits: &Limits,
        held: &mut Amounts,
        (totals, damage): (&mut Totals, &mut Damage),
        progress: &mut Progress<'_>,
    ) {
        let Some(at) = self.lanes.len().checked_sub(1) else { return };
        let thread = self.lanes[at].thread;
        let mut gather = self.gather(source, (0, u64::MAX), self.quantum);
        let sites = source.meta().sites.len() as u32;
        let (mut stack, mut batch) = (Stack::default(), Batch::default());
        let mut stream = source.thread_batches(thread);
        for number in 0.. {
            if number % held.stride == 0 {
                let now = source.to_ns(stack.now()).saturating_sub(self.origin);
                let checkpoint = Checkpoint { batch: number, now, stack: stack.clone() };
                held.frames += checkpoint.frames();
                self.lanes[at].checkpoints.push(checkpoint);
                self.thin_out(limits, held);
            }
            match stream.next_into(&mut batch) {
                Ok(true) => feed_batch(&mut stack, thread, &batch, sites, &mut gather, totals),
                Ok(false) => break,
                Err(error) => gather.leave_out(stack.now(), damage.add(&error)),
            }
            while held.blocks + blocks(&gather.tracks) + gather.lost.len() > limits.blocks && self.coarsen() {
                gather.quantum = self.quantum;
                for track in gather.tracks.iter_mut().chain([&mut gather.lost]) {
                    *track = coarser(track, self.quantum);
                }
                held.blocks = self.lanes.iter().map(ThreadTimeline::blocks).sum();
            }
            tell(progress, totals.events);
        }
        let end = source.to_ns(stack.now()).saturating_sub(self.origin);
        stack.finish(thread, source.meta().open_at_end(), &mut gather, totals);
        let lane = &mut self.lanes[at];
        (lane.lost, lane.deeper, lane.end) = (gather.lost, gather.deeper, end);
        lane.levels = vec![(0, gather.tracks)];
        held.blocks += lane.blocks();
    }

    fn gather<'a>(&self, source: &'a dyn Source, window: (u64, u64), quantum: u64) -> Gather<'a> {
        let (kept, origin) = (self.kept.clone(), self.origin);
        Gather {
            source,
            kept,
            origin,
            window,
            quantum,
            tracks: Vec::new(),
            lost: Vec::new(),
            deeper: 0,
            open: 0,
        }
    }

    /// Doubles the length up to which blocks are merged; false if it is at its maximum.
    fn coarsen(&mut self) -> bool {
        if self.quantum > u64::MAX / 4 {
            return false;
        }
        self.quantum = (self.quantum * 2).max(QUANTUM);
        for lane in &mut self.lanes {
            let tracks = lane.levels.iter_mut().flat_map(|(_, tracks)| tracks);
            for track in tracks.chain([&mut lane.lost]) {
                *track = coarser(track, self.quantum);
            }
        }
        true
    }

    /// Keeps checkpoints within their limit: drops every second one, but not the beginnings of
    /// threads.
    fn thin_out(&mut self, limits: &Limits, held: &mut Amounts) {
        while held.frames > limits.checkpoints && held.stride < 1 << 30 {
            held.stride *= 2;
            for lane in &mut self.lanes {
                lane.checkpoints.retain(|point| point.batch % held.stride == 0);
            }
            held.frames = self.lanes.iter().flat_map(|lane| &lane.checkpoints).map(Checkpoint::frames).sum();
        }
    }

    /// Makes the coarser levels.
    fn stack_levels(&mut self) {
        for lane in &mut self.lanes {
            let Some((finest, _)) = lane.levels.first_mut() else { continue };
            *finest = self.quantum;
            let mut quantum = self.quantum.max(QUANTUM);
            while quantum < self.end / 64 {
                quantum *= 4;
                let Some((_, last)) = lane.levels.last() else { break };
                let next: Vec<Vec<Block>> = last.iter().map(|track| coarser(track, quantum)).collect();
                if blocks(&next) * 2 <= blocks(last) {
                    lane.levels.push((quantum, next));
                }
            }
        }
    }

    /// Nanoseconds of the clock at its beginning.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Time of the last event, nanoseconds since the beginning.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Length up to which blocks are merged at the finest level, nanoseconds; 0: every call is a
    /// block.
    pub fn quantum(&self) -> u64 {
        self.quantum
    }

    /// The threads that have events.
    pub fn threads(&self) -> impl Iterator<Item = ThreadId> {
        self.lanes.iter().map(|lane| lane.thread)
    }

    /// Returns the number of levels of a thread, and the number of its calls below the deepest one.
    pub fn depth(&self, thread: ThreadId) -> (usize, u64) {
        let lane = self.lane(thread);
        lane.map_or((0, 0), |lane| (lane.levels.first().map_or(0, |(_, tracks)| tracks.len()), lane.deeper))
    }

    fn lane(&self, thread: ThreadId) -> Option<&ThreadTimeline> {
        let at = self.lanes.binary_search_by_key(&thread, |lane| lane.thread).ok()?;
        self.lanes.get(at)
    }

    /// Returns the states of a thread; `None` if context switches were not recorded.
    pub fn band(&self, source: &dyn Source, thread: ThreadId) -> Result<Option<Arc<Band>>, Error> {
        if !source.has_switches() {
            return Ok(None);
        }
        let mut kept = self.bands.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(known, _)| *known == thread).map(|at| kept.remove(at));
        let (_, band) = match known {
            Some(known) => known,
            None => {
                let to_ns = |ticks| source.to_ns(ticks).saturating_sub(self.origin);
                (thread, Arc::new(Band::new(&states(source, thread)?, to_ns)))
            }
        };
        kept.push((thread, Arc::clone(&band)));
        while kept.len() > 1 && kept.iter().map(|(_, band)| band.len()).sum::<usize>() > PIECES {
            kept.remove(0);
        }
        Ok(Some(band))
    }

    /// Returns the first two blocks of a thread in a window, or the last two, nearest first, for a
    /// timeline of some functions, which has one level.
    pub(crate) fn near(&self, thread: ThreadId, (from, to): (u64, u64), first: bool) -> Vec<Block> {
        let track = self.lane(thread).and_then(|lane| lane.levels.first()?.1.first());
        let blocks = within(track.map_or(&[], Vec::as_slice), from, to);
        let two = |blocks: &mut dyn Iterator<Item = &Block>| blocks.take(2).copied().collect();
        if first { two(&mut blocks.iter()) } else { two(&mut blocks.iter().rev()) }
    }

    /// Returns the blocks of a thread between two times. Calls are merged in blocks of at most
    /// `resolution`; with 0, each call is a block.
    pub fn window(
        &self,
        source: &dyn Source,
        thread: ThreadId,
        (from, to): (u64, u64),
        resolution: u64,
    ) -> Window {
        let Some(lane) = self.lane(thread) else { return Window::default() };
        let fine = lane.levels.iter().rev().find(|(quantum, _)| *quantum <= resolution);
        if fine.is_none()
            && let Some(window) = self.read_again(source, lane, (from, to), resolution)
        {
            return window;
        }
        let Some((_, tracks)) = fine.or(lane.levels.first()) else { return Window::default() };
        let cut = |track: &Vec<Block>| coarser(within(track, from, to), resolution);
        Window { tracks: tracks.iter().map(cut).collect(), lost: cut(&lane.lost) }
    }

    /// Reads a window from the events again; `None` if these are too many.
    fn read_again(
        &self,
        source: &dyn Source,
        lane: &ThreadTimeline,
        window: (u64, u64),
        resolution: u64,
    ) -> Option<Window> {
        let before = lane.checkpoints.partition_point(|point| point.now < window.0).checked_sub(1);
        let checkpoint = lane.checkpoints.get(before.unwrap_or(0))?;
        let mut stream = source.thread_batches(lane.thread);
        stream.skip(checkpoint.batch);
        let mut stack = checkpoint.stack.clone();
        let mut gather = self.gather(source, window, resolution);
        gather.begin(stack.open());
        let (mut batch, mut totals, mut damage) = (Batch::default(), Totals::default(), Damage::default());
        let sites = source.meta().sites.len() as u32;
        loop {
            match stream.next_into(&mut batch) {
                Ok(true) => {
                    feed_batch(&mut stack, lane.thread, &batch, sites, &mut gather, &mut totals);
                }
                Ok(false) => {
                    stack.finish(lane.thread, source.meta().open_at_end(), &mut gather, &mut totals);
                    break;
                }
                Err(error) => gather.leave_out(stack.now(), damage.add(&error)),
            }
            if source.to_ns(stack.now()).saturating_sub(self.origin) > window.1 {
                self.close_known(lane, &stack, &mut gather);
                break;
            }
            if totals.events > READ {
                return None;
            }
        }
        Some(Window { tracks: gather.tracks, lost: gather.lost })
    }

    /// Closes the calls that continue after the events read: their ends are those of the blocks
    /// that contain them.
    fn close_known(&self, lane: &ThreadTimeline, stack: &Stack, gather: &mut Gather<'_>) {
        let open = stack.open().filter(|open| gather.is_kept(open.site));
        let levels = match self.kept {
            CallSelection::Levels(levels) => levels,
            CallSelection::Only(_) => 1,
        };
        let open: Vec<(SiteId, u64)> = open.take(levels).map(|open| (open.site, open.start)).collect();
        for (level, (site, start)) in open.into_iter().enumerate() {
            let start = gather.source.to_ns(start).saturating_sub(self.origin);
            let known = lane.levels.first().and_then(|(_, tracks)| tracks.get(level));
            let block = known.and_then(|track| within(track, start, start).last());
            let end = block.map_or(lane.end, |block| block.end).max(start);
            let cut = block.is_none_or(|block| block.cut > 0).into();
            if end < gather.window.0 || start > gather.window.1 {
                continue;
            }
            if gather.tracks.len() <= level {
                gather.tracks.resize_with(level + 1, Vec::new);
            }
            let length = end - start;
            let block = Block { start, end, busy: length, longest: length, site, calls: 1, cut };
            push(&mut gather.tracks[level], block, gather.quantum);
        }
    }
}
