//! The governor keeps the cost of tracing below a share of what the program spends by itself.
//!
//! It disables the functions with the most events, as few as suffice; functions that a filter names
//! come last. Of two functions with about the same cost it disables the one that calls no traced
//! function, because the call tree then lacks a leaf and not a caller. It enables functions again
//! when the cost permits.
//!
//! The processor time of the process counts as at least a tenth of a processor.
//!
//! The cost of an event is measured; most of it is reading the clock. The collector counts events
//! by site, and the kernel reports the processor time of the process. Before a decision the
//! collector reads all written events: a thread that fills its chunk slowly would otherwise be
//! counted too late.

mod resting;

use calltap_abi::{Control, stub};
use calltap_trace::SiteId;
use resting::Resting;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// Cost of an event beyond the reading of the clock, in nanoseconds, measured with `cargo xtask
/// bench`.
const HOOK_NS: f64 = 2.0;
/// Least additional cost of an event at a breakpoint that stays: a signal, shared by entry and
/// return.
const TRAP_NS: f64 = 1000.0;
/// Additional cost of an event of a Python function: the interpreter's call of the profile
/// function, and the look-ups there.
const PYTHON_NS: f64 = 40.0;
/// Pause before the first look, which comes early: all sites may have been enabled.
const FIRST: Duration = Duration::from_millis(20);
/// Pause before later looks.
const LATER: Duration = Duration::from_millis(100);
/// Share of the limit that the remaining sites may cost: rates change.
const AIM: f64 = 0.8;
/// Least processor time from which the cost is judged.
const MIN_CPU_TIME: Duration = Duration::from_millis(1);
/// Pause between looks at an idle process with functions that wait to be enabled again.
const IDLE: Duration = Duration::from_secs(1);
/// Share of a processor that a process is taken to use at least: in one that is mostly idle, a few
/// calls cost a large share of its own time, and the machine next to nothing.
const MIN_SHARE: f64 = 0.1;
/// A leaf is disabled rather than a calling function that costs up to this many times as much.
const LEAF: u64 = 4;
/// Number of calls of a leaf of which one may be followed by the entry of another function, such as
/// a signal handler.
const SELDOM: u32 = 16;

/// Number of events by site. One thread counts, others read.
pub struct Rates {
    sites: Box<[AtomicU32]>,
    /// Number of entries by site that the entry of another function followed.
    calling: Box<[AtomicU32]>,
    /// End of the sites that have had events: there is room for a million, and most programs have
    /// few.
    used: AtomicUsize,
    /// Whether another thread waits until all written events are counted.
    wanted: AtomicBool,
}

impl Default for Rates {
    fn default() -> Rates {
        let zeros = || (0..stub::COUNT).map(|_| AtomicU32::new(0)).collect();
        let (used, wanted) = (AtomicUsize::new(0), AtomicBool::new(false));
        Rates { sites: zeros(), calling: zeros(), used, wanted }
    }
}

impl Rates {
    /// Counts an event.
    #[inline(always)]
    pub fn count(&self, site: SiteId) {
        if let Some(place) = self.sites.get(site.0 as usize) {
            place.store(place.load(Relaxed).wrapping_add(1), Relaxed);
            let behind = site.0 as usize + 1;
            if behind > self.used.load(Relaxed) {
                self.used.store(behind, Relaxed);
            }
        }
    }

    /// Returns the number of events of each site up to the last that has any.
    fn counts(&self) -> Vec<u32> {
        let used = self.used.load(Relaxed).min(self.sites.len());
        self.sites[..used].iter().map(|place| place.load(Relaxed)).collect()
    }

    /// Counts an entry of this function that the entry of another function followed.
    #[inline(always)]
    pub(crate) fn count_calling(&self, site: SiteId) {
        if let Some(place) = self.calling.get(site.0 as usize) {
            place.store(place.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Whether a function is not known to call another.
    fn is_leaf(&self, site: usize) -> bool {
        let of = |counts: &[AtomicU32]| counts.get(site).map_or(0, |count| count.load(Relaxed));
        of(&self.calling) <= of(&self.sites) / SELDOM
    }

    /// Whether all written events are to be counted.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(Acquire)
    }

    /// Notes that all written events are counted.
    pub(crate) fn are_complete(&self) {
        self.wanted.store(false, Release);
    }
}

/// A function that was disabled.
#[derive(Clone, PartialEq, Debug)]
pub struct OverLimit {
    /// Site of the function.
    pub site: SiteId,
    /// Events per second when it was disabled.
    pub rate: f64,
}

/// Sites whose events cost more than others, by their stubs.
#[derive(Default, Debug)]
pub struct Costly {
    /// Breakpoints that stay.
    pub traps: HashSet<u32>,
    /// Python functions.
    pub python: HashSet<u32>,
}

/// The sites to disable or enable.
#[derive(Default, PartialEq, Debug)]
pub struct Judgement {
    /// Sites to disable.
    pub disable: Vec<OverLimit>,
    /// Sites to enable again.
    pub enable: Vec<SiteId>,
}

/// The governor of a process.
pub struct Governor<'a> {
    rates: &'a Rates,
    /// Allowed cost, as a share of the program's own time.
    limit: f64,
    event_ns: f64,
    /// Number of events that cost as much as one at a breakpoint that stays.
    trap_events: u32,
    /// Number of events that cost as much as one of a Python function.
    python_events: u32,
    seen: Vec<u32>,
    lost: u64,
    cpu: Duration,
    at: Instant,
    /// Whether sites were enabled, so that the next look comes early.
    first: bool,
    resting: Resting,
    /// Whether written events are being counted.
    waiting: bool,
    /// Time spent until the last look, once there was one.
    pub spent: Option<Spent>,
}

/// Processor time of a process, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Spent {
    /// On tracing.
    pub tracing: f64,
    /// By the program itself, or the least that it is taken to spend.
    pub own: f64,
}

impl Spent {
    /// Returns the cost of tracing since an earlier time, as a share of the program's own time.
    /// None if it is not known.
    pub fn share_since(self, earlier: Spent) -> Option<f64> {
        let own = self.own - earlier.own;
        (own > 0.0).then(|| (self.tracing - earlier.tracing) / own)
    }
}

impl<'a> Governor<'a> {
    /// Creates a governor that watches from now on; `cpu` is the processor time of the process so
    /// far.
    pub fn new(rates: &'a Rates, limit: f64, cpu: Duration) -> Governor<'a> {
        let event_ns = calltap_process::clock::reading_ns() + HOOK_NS;
        let [trap_events, python_events] = [TRAP_NS, PYTHON_NS].map(|ns| 1 + (ns / event_ns) as u32);
        let (seen, at) = (Vec::new(), Instant::now());
        Governor {
            rates,
            limit,
            event_ns,
            trap_events,
            python_events,
            seen,
            lost: 0,
            cpu,
            at,
            first: true,
            resting: Resting::default(),
            waiting: false,
            spent: None,
        }
    }

    /// Whether it is too early to look, whatever processor time the process has used.
    pub fn is_early(&self) -> bool {
        !self.waiting && self.at.elapsed() < if self.first { FIRST } else { LATER }
    }

    /// Whether it is time to look, given the processor time of the process. First asks for all
    /// written events to be counted.
    pub fn due(&mut self, cpu: Duration) -> bool {
        if self.waiting {
            self.waiting = self.rates.are_wanted();
            return !self.waiting;
        }
        let is_idle = cpu.saturating_sub(self.cpu) < MIN_CPU_TIME;
        let may_give_back = self.at.elapsed() >= IDLE && self.resting.any();
        self.waiting = !self.is_early() && !is_idle || may_give_back;
        self.rates.wanted.store(self.waiting, Release);
        false
    }

    /// Returns the sites to disable and to enable, given the processor time of the process, the
    /// events lost so far, and the sites that cost more than others. `named` returns the sites that
    /// the user named; it is called only where sites have to be disabled.
    pub fn judge_cost(
        &mut self,
        cpu: Duration,
        lost: u64,
        costly: &Costly,
        named: &dyn Fn() -> HashSet<u32>,
    ) -> Judgement {
        let at = Instant::now();
        let (spent, elapsed) = (cpu.saturating_sub(self.cpu), at.duration_since(self.at));
        let now = self.rates.counts();
        let before = |site: usize| self.seen.get(site).copied().unwrap_or(0);
        let mut counts: Vec<(u32, usize)> = now
            .iter()
            .enumerate()
            .map(|(site, count)| (count.wrapping_sub(before(site)), site))
            .filter(|(count, _)| *count > 0)
            .collect();
        let recorded: u64 = counts.iter().map(|(count, _)| u64::from(*count)).sum();
        // Counts are weighed from here on.
        let weight = |site: usize| match site as u32 {
            site if costly.traps.contains(&site) => self.trap_events,
            site if costly.python.contains(&site) => self.python_events,
            _ => 1,
        };
        counts.iter_mut().for_each(|(count, site)| *count = count.saturating_mul(weight(*site)));
        let weighed: u64 = counts.iter().map(|(count, _)| u64::from(*count)).sum();
        // Lost events count as of the same functions.
        let scale = 1.0 + lost.saturating_sub(self.lost) as f64 / recorded.max(1) as f64;
        let event_ns = scale * self.event_ns;
        let least = elapsed.as_nanos() as f64 * MIN_SHARE;
        let tracing = weighed as f64 * event_ns;
        let own = own(tracing, spent).max(least);
        let cost = tracing / own;
        let known = OnceCell::new();
        let is_named = |site: usize| known.get_or_init(named).contains(&(site as u32));
        // The cost of so little processor time is not judged.
        let is_idle = spent < MIN_CPU_TIME;
        let counts = if is_idle { Vec::new() } else { counts };
        let chosen = choose(counts, &is_named, &|site| self.rates.is_leaf(site), event_ns, own, self.limit);
        let mut judgement = Judgement::default();
        for (count, site) in chosen {
            self.resting.begin(site as u32, f64::from(count) * event_ns / own, at);
            let rate = f64::from(count / weight(site)) * scale / elapsed.as_secs_f64();
            judgement.disable.push(OverLimit { site: SiteId(site as u32), rate });
        }
        if judgement.disable.is_empty() {
            let room = AIM * self.limit - if is_idle { 0.0 } else { cost };
            judgement.enable = self.resting.give_back(room, at).into_iter().map(SiteId).collect();
        }
        let spent_before = self.spent.unwrap_or_default();
        // Events that are read late belong to an earlier time.
        let tracing = tracing.min(spent.as_nanos() as f64);
        self.spent = Some(Spent { tracing: spent_before.tracing + tracing, own: spent_before.own + own });
        (self.seen, self.lost, self.cpu, self.at) = (now, lost, cpu, Instant::now());
        self.first = !judgement.enable.is_empty();
        judgement
    }
}

/// Chooses the sites to disable so that the others cost no more than `limit` of `own`, which the
/// program spends by itself. `counts` holds sites with their events, each of which costs
/// `event_ns`. The most frequent sites go first, leaves before others, but the last is the least
/// that suffices; sites that the user named go when all others are gone.
fn choose(
    mut counts: Vec<(u32, usize)>,
    is_named: &dyn Fn(usize) -> bool,
    is_leaf: &dyn Fn(usize) -> bool,
    event_ns: f64,
    own: f64,
    limit: f64,
) -> Vec<(u32, usize)> {
    let cost = |count: u32| f64::from(count) * event_ns;
    let all: f64 = counts.iter().map(|(count, _)| cost(*count)).sum();
    if all <= limit * own {
        return Vec::new();
    }
    let mut too_much = all - AIM * limit * own;
    let rank = |(count, site): (u32, usize)| u64::from(count) * if is_leaf(site) { LEAF } else { 1 };
    counts.sort_by_cached_key(|site| Reverse((rank(*site), site.1)));
    let (named, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(_, site)| is_named(*site));
    let mut chosen = Vec::new();
    for group in [others, named] {
        for (at, first) in group.iter().enumerate() {
            if too_much <= 0.0 {
                break;
            }
            let enough = group[at..].iter().filter(|(count, _)| cost(*count) >= too_much);
            let missed =
                |(count, site): &&(u32, usize)| u64::from(*count) * if is_leaf(*site) { 1 } else { LEAF };
            // If a single site is enough, the one whose calls are missed least is chosen.
            let site =
                if cost(first.0) < too_much { first } else { enough.min_by_key(missed).unwrap_or(first) };
            too_much -= cost(site.0);
            chosen.push(*site);
        }
    }
    chosen
}

/// Returns what the program spends by itself, in nanoseconds, given the cost of tracing and the
/// time `spent` on both.
fn own(cost: f64, spent: Duration) -> f64 {
    (spent.as_nanos() as f64 - cost).max(spent.as_nanos() as f64 * 0.05)
}

/// Returns the number of events that all threads have lost so far.
pub fn lost(control: &Control, threads: impl Iterator<Item = u64>) -> u64 {
    let others = [&control.lost_unregistered, &control.lost_without_room].map(|lost| lost.load(Relaxed));
    threads.chain(others).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how many sites go with 100 ms of processor time, events of 10 ns, and a limit of 5 %.
    fn check(counts: &[(u32, usize)], off: usize) {
        assert_eq!(chosen(counts, &[]).len(), off, "{counts:?}");
    }

    fn chosen(counts: &[(u32, usize)], named: &[usize]) -> Vec<usize> {
        chosen_of(counts, named, &[])
    }

    /// Chooses sites; those in `calling` call others.
    fn chosen_of(counts: &[(u32, usize)], named: &[usize], calling: &[usize]) -> Vec<usize> {
        let is_named = |site: usize| named.contains(&site);
        let is_leaf = |site: usize| !calling.contains(&site);
        let spent = Duration::from_millis(100);
        let all: f64 = counts.iter().map(|(count, _)| f64::from(*count) * 10.0).sum();
        let chosen = choose(counts.to_vec(), &is_named, &is_leaf, 10.0, own(all, spent), 0.05);
        chosen.into_iter().map(|(_, site)| site).collect()
    }

    #[test]
    fn governor_measures_after_all_written_events_are_counted() {
        let rates = Rates::default();
        let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
        let (idle, busy) = (MIN_CPU_TIME / 2, Duration::from_millis(20));
        assert!(!governor.due(busy) && !rates.are_wanted(), "too early");
        std::thread::sleep(FIRST);
        assert!(!governor.due(idle) && !rates.are_wanted(), "of so little time no judgement is made");
        assert!(!governor.due(busy) && rates.are_wanted());
        assert!(!governor.due(busy) && rates.are_wanted(), "it waits");
        rates.count(SiteId(3));
        rates.are_complete();
        assert!(governor.due(busy));
        assert_eq!(governor.judge_cost(busy, 0, &Costly::default(), &HashSet::new), Judgement::default());
        let share = governor.spent.and_then(|spent| spent.share_since(Spent::default()));
        assert!(share.is_some_and(|share| share > 0.0));
        assert!(!governor.due(busy * 2) && !rates.are_wanted(), "the next look is later");
    }

    #[test]
    fn idle_process_keeps_calls_that_cost_the_machine_nothing() {
        let rates = Rates::default();
        let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
        governor.at = Instant::now().checked_sub(Duration::from_secs(1)).expect("a second ago");
        // The process has used 9 ms in a second. Of 100 ms, 5 may be spent.
        let mut judge = |calls: u32, spent: u64| {
            (0..calls).for_each(|_| rates.count(SiteId(7)));
            governor.event_ns = 20.0;
            governor
                .judge_cost(Duration::from_millis(spent), 0, &Costly::default(), &HashSet::new)
                .disable
                .len()
        };
        assert_eq!(judge(20_000, 9), 0);
        // Less than a moment later, the same number of calls is too much.
        assert_eq!(judge(400_000, 18), 1);
    }

    #[test]
    fn breakpoint_calls_are_judged_by_breakpoint_cost() {
        let traps = Costly { traps: HashSet::from([7]), ..Costly::default() };
        for (costly, off) in [(Costly::default(), None), (traps, Some(7))] {
            let rates = Rates::default();
            let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
            (0..8_000).for_each(|_| rates.count(SiteId(7)));
            (0..1_000).for_each(|_| rates.count(SiteId(8)));
            let disabled = governor.judge_cost(Duration::from_millis(100), 0, &costly, &HashSet::new).disable;
            assert_eq!(disabled.first().map(|disabled| disabled.site.0), off, "{costly:?}: {disabled:?}");
        }
    }

    #[test]
    fn cheap_functions_stay_enabled() {
        check(&[], 0);
        check(&[(400_000, 1), (10, 2)], 0);
    }

    #[test]
    fn the_most_frequent_go_first_and_as_few_as_need_be() {
        check(&[(2_000_000, 1), (300_000, 2), (10, 3)], 1);
        check(&[(2_000_000, 1), (1_900_000, 2), (200_000, 3)], 2);
    }

    #[test]
    fn governor_disables_no_more_calls_than_necessary() {
        // Of 74.6 ms of the program's own, 2.98 may stay: the second costs 2.9, the third 2.5.
        assert_eq!(chosen(&[(2_000_000, 1), (290_000, 2), (250_000, 3)], &[]), [1, 3]);
    }

    #[test]
    fn leaf_functions_are_disabled_first_unless_much_cheaper() {
        let counts = [(1_000_000, 1), (900_000, 2), (200_000, 3)];
        assert_eq!(chosen_of(&counts, &[], &[1]), [2, 1]);
        assert_eq!(chosen_of(&counts, &[], &[1, 2]), [1, 2]);
        // Either of the last two is enough: the leaf goes, though it is called more often.
        let counts = [(2_000_000, 1), (250_000, 2), (290_000, 3)];
        assert_eq!(chosen_of(&counts, &[], &[2]), [1, 3]);
        assert_eq!(chosen_of(&counts, &[], &[]), [1, 2]);
        // Many rare leaves do not make up for one function that is called all the time.
        let leaves = (10..2_000).map(|site| (10, site));
        let counts: Vec<_> = [(3_000_000, 1)].into_iter().chain(leaves).collect();
        assert_eq!(chosen_of(&counts, &[], &[1]), [1]);
    }

    #[test]
    fn function_is_a_leaf_until_a_call_is_observed() {
        let rates = Rates::default();
        (0..160).for_each(|_| rates.count(SiteId(3)));
        (0..10).for_each(|_| rates.count_calling(SiteId(3)));
        assert!(rates.is_leaf(3));
        rates.count_calling(SiteId(3));
        assert!(!rates.is_leaf(3));
    }

    #[test]
    fn functions_disabled_in_burst_are_reenabled_and_remeasured() {
        let rates = Rates::default();
        let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
        let mut judge = |calls: u32, ms: u64| {
            (0..calls).for_each(|_| rates.count(SiteId(7)));
            governor.judge_cost(Duration::from_millis(ms), 0, &Costly::default(), &HashSet::new)
        };
        let disabled: Vec<SiteId> = judge(1_000_000, 100).disable.into_iter().map(|off| off.site).collect();
        assert_eq!(disabled, [SiteId(7)]);
        assert_eq!(judge(0, 200), Judgement::default(), "its pause has just begun");
        governor.resting.expire();
        governor.first = false;
        let mut judge =
            |ms: u64| governor.judge_cost(Duration::from_millis(ms), 0, &Costly::default(), &HashSet::new);
        assert_eq!(judge(300).enable, [SiteId(7)]);
        assert_eq!(judge(400).enable, [], "once");
        assert!(!governor.first);
    }

    #[test]
    fn governor_disables_named_functions_last() {
        let counts = [(350_000, 1), (300_000, 2), (200_000, 3)];
        assert_eq!(chosen(&counts, &[]), [1, 3]);
        assert_eq!(chosen(&counts, &[1]), [2, 3]);
        // Alone it is too frequent, too.
        assert_eq!(chosen(&[(3_000_000, 1), (200_000, 2), (10, 3)], &[1]), [2, 3, 1]);
    }

    #[test]
    fn governor_disables_all_frequent_functions() {
        check(&[(3_000_000, 1), (3_000_000, 2)], 2);
    }
}
