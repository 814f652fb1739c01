//! Keeps the cost of tracing below a share of what the program spends by itself: disables the functions that are called most, and no more than must be;
//! those that the user named last.
//!
//! The cost of an event is measured (a reading of the clock is most of it), events are counted by site as they are read, and the process's own processor
//! time is the kernel's. Before each look everything is read that was written: where a thread fills its chunk slowly, the events of one look would else be
//! counted at another.

use calltap_abi::{Control, stub};
use calltap_trace::SiteId;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// What an event costs beyond the reading of the clock, nanoseconds: measured with `cargo xtask bench`.
const HOOK_NS: f64 = 2.0;
/// What a breakpoint that stays costs besides, at least: a signal, shared by entry and return.
const TRAP_NS: f64 = 1000.0;
/// The first look comes early: everything may have been switched on.
const FIRST: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(100);
/// What is kept on costs this much of what is allowed: rates change.
const AIM: f64 = 0.8;
/// No judgement is made of less processor time.
const LEAST: Duration = Duration::from_millis(1);

/// Events by site. One thread counts, others read.
pub struct Rates {
    sites: Box<[AtomicU32]>,
    /// Another thread waits for what was written and not yet counted.
    wanted: AtomicBool,
}

impl Default for Rates {
    fn default() -> Rates {
        let sites = (0..stub::COUNT).map(|_| AtomicU32::new(0)).collect();
        Rates { sites, wanted: AtomicBool::new(false) }
    }
}

impl Rates {
    /// One more.
    #[inline(always)]
    pub fn count(&self, site: SiteId) {
        if let Some(place) = self.sites.get(site.0 as usize) {
            place.store(place.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Is everything to be counted that was written?
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Acquire)
    }

    /// It is.
    pub fn are_complete(&self) {
        self.wanted.store(false, Release);
    }
}

/// A function that was switched off.
#[derive(Clone, PartialEq, Debug)]
pub struct OverLimit {
    /// Its site.
    pub site: SiteId,
    /// Events per second when it was.
    pub rate: f64,
}

/// Watches.
pub struct Governor<'a> {
    rates: &'a Rates,
    /// Allowed cost, as a share of the program's own time.
    limit: f64,
    event_ns: f64,
    /// Events that cost as much as one of a breakpoint that stays.
    trap_events: u32,
    seen: Vec<u32>,
    lost: u64,
    cpu: Duration,
    at: Instant,
    first: bool,
    /// What was written is being counted.
    waiting: bool,
    /// What tracing cost when it was last looked at, as a share of the program's own time.
    pub cost: Option<f64>,
}

impl<'a> Governor<'a> {
    /// Watches from now on; `cpu` is the processor time of the process so far.
    pub fn new(rates: &'a Rates, limit: f64, cpu: Duration) -> Governor<'a> {
        let event_ns = calltap_process::clock::reading_ns() + HOOK_NS;
        let trap_events = 1 + (TRAP_NS / event_ns) as u32;
        let (seen, at) = (Vec::new(), Instant::now());
        Governor {
            rates,
            limit,
            event_ns,
            trap_events,
            seen,
            lost: 0,
            cpu,
            at,
            first: true,
            waiting: false,
            cost: None,
        }
    }

    /// Is it time to look, when the process has used so much processor time? First asks for what has to be counted for that.
    pub fn due(&mut self, cpu: Duration) -> bool {
        if self.waiting {
            self.waiting = self.rates.are_wanted();
            return !self.waiting;
        }
        let pause = if self.first { FIRST } else { LATER };
        self.waiting = self.at.elapsed() >= pause && cpu.saturating_sub(self.cpu) >= LEAST;
        self.rates.wanted.store(self.waiting, Release);
        false
    }

    /// The sites to switch off now, given the processor time of the process, what was lost so far, which sites are breakpoints that stay, and which the
    /// user named; that is asked for only where sites have to be disabled.
    pub fn look(
        &mut self,
        cpu: Duration,
        lost: u64,
        traps: &HashSet<u32>,
        named: &dyn Fn() -> HashSet<u32>,
    ) -> Vec<OverLimit> {
        let (spent, elapsed) = (cpu.saturating_sub(self.cpu), self.at.elapsed());
        let now: Vec<u32> = self.rates.sites.iter().map(|place| place.load(Relaxed)).collect();
        let before = |site: usize| self.seen.get(site).copied().unwrap_or(0);
        let mut counts: Vec<(u32, usize)> = now
            .iter()
            .enumerate()
            .map(|(site, count)| (count.wrapping_sub(before(site)), site))
            .filter(|(count, _)| *count > 0)
            .collect();
        let recorded: u64 = counts.iter().map(|(count, _)| u64::from(*count)).sum();
        // From now on, what costs as much as so many events.
        let weight = |site: usize| if traps.contains(&(site as u32)) { self.trap_events } else { 1 };
        counts.iter_mut().for_each(|(count, site)| *count = count.saturating_mul(weight(*site)));
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let weighed: u64 = counts.iter().map(|(count, _)| u64::from(*count)).sum();
        // What was lost was of the same functions.
        let scale = 1.0 + lost.saturating_sub(self.lost) as f64 / recorded.max(1) as f64;
        let cost = weighed as f64 * scale * self.event_ns;
        let known = OnceCell::new();
        let is_named = |site: usize| known.get_or_init(named).contains(&(site as u32));
        let disabled: Vec<OverLimit> = choose(&counts, &is_named, scale * self.event_ns, spent, self.limit)
            .into_iter()
            .map(|(count, site)| OverLimit {
                site: SiteId(site as u32),
                rate: f64::from(count / weight(site)) * scale / elapsed.as_secs_f64(),
            })
            .collect();
        self.cost = Some(cost / own(cost, spent));
        (self.seen, self.lost, self.cpu, self.at, self.first) = (now, lost, cpu, Instant::now(), false);
        disabled
    }
}

/// Of sites with their events, the most frequent first, each of which costs `event_ns`: those to switch off so that the others cost no more than allowed. The
/// most frequent go, but the last of them is the least frequent that suffices; what the user named goes when all others are gone.
fn choose(
    counts: &[(u32, usize)],
    is_named: &dyn Fn(usize) -> bool,
    event_ns: f64,
    spent: Duration,
    limit: f64,
) -> Vec<(u32, usize)> {
    let cost = |count: u32| f64::from(count) * event_ns;
    let all: f64 = counts.iter().map(|(count, _)| cost(*count)).sum();
    let own = own(all, spent);
    if all <= limit * own {
        return Vec::new();
    }
    let mut too_much = all - AIM * limit * own;
    let (named, others): (Vec<_>, Vec<_>) = counts.iter().copied().partition(|(_, site)| is_named(*site));
    let mut chosen = Vec::new();
    for group in [others, named] {
        for (at, site) in group.iter().enumerate() {
            if too_much <= 0.0 {
                break;
            }
            let sufficient = group[at..].partition_point(|(count, _)| cost(*count) >= too_much);
            let site = if sufficient > 0 { group[at + sufficient - 1] } else { *site };
            too_much -= cost(site.0);
            chosen.push(site);
        }
    }
    chosen
}

/// What the program spends by itself, nanoseconds: of its time `spent`, tracing costs so many.
fn own(cost: f64, spent: Duration) -> f64 {
    (spent.as_nanos() as f64 - cost).max(spent.as_nanos() as f64 * 0.05)
}

/// Events that all threads have lost so far.
pub fn lost(control: &Control, threads: impl Iterator<Item = u64>) -> u64 {
    threads.fold(control.lost_unregistered.load(Relaxed), u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ms of processor time, events of 10 ns, a limit of 5 %.
    fn check(counts: &[(u32, usize)], off: usize) {
        assert_eq!(chosen(counts, &[]).len(), off, "{counts:?}");
    }

    fn chosen(counts: &[(u32, usize)], named: &[usize]) -> Vec<usize> {
        let is_named = |site: usize| named.contains(&site);
        let chosen = choose(counts, &is_named, 10.0, Duration::from_millis(100), 0.05);
        chosen.into_iter().map(|(_, site)| site).collect()
    }

    #[test]
    fn it_looks_when_everything_written_is_counted_and_not_before() {
        let rates = Rates::default();
        let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
        let (idle, busy) = (LEAST / 2, Duration::from_millis(20));
        assert!(!governor.due(busy) && !rates.are_wanted(), "too early");
        std::thread::sleep(FIRST);
        assert!(!governor.due(idle) && !rates.are_wanted(), "of so little time no judgement is made");
        assert!(!governor.due(busy) && rates.are_wanted());
        assert!(!governor.due(busy) && rates.are_wanted(), "it waits");
        rates.count(SiteId(3));
        rates.are_complete();
        assert!(governor.due(busy));
        assert_eq!(governor.look(busy, 0, &HashSet::new(), &HashSet::new), []);
        assert!(governor.cost.is_some_and(|cost| cost > 0.0));
        assert!(!governor.due(busy * 2) && !rates.are_wanted(), "the next look is later");
    }

    #[test]
    fn a_breakpoint_s_calls_are_judged_by_what_they_cost() {
        for (traps, off) in [(HashSet::new(), None), (HashSet::from([7]), Some(7))] {
            let rates = Rates::default();
            let mut governor = Governor::new(&rates, 0.05, Duration::ZERO);
            (0..8_000).for_each(|_| rates.count(SiteId(7)));
            (0..1_000).for_each(|_| rates.count(SiteId(8)));
            let disabled = governor.look(Duration::from_millis(100), 0, &traps, &HashSet::new);
            assert_eq!(disabled.first().map(|disabled| disabled.site.0), off, "{traps:?}: {disabled:?}");
        }
    }

    #[test]
    fn what_costs_little_stays_on() {
        check(&[], 0);
        check(&[(400_000, 1), (10, 2)], 0);
    }

    #[test]
    fn the_most_frequent_go_first_and_as_few_as_need_be() {
        check(&[(2_000_000, 1), (300_000, 2), (10, 3)], 1);
        check(&[(2_000_000, 1), (1_900_000, 2), (200_000, 3)], 2);
    }

    #[test]
    fn no_more_goes_than_must() {
        // Of 74.6 ms of the program's own, 2.98 may stay: the second costs 2.9, the third 2.5.
        assert_eq!(chosen(&[(2_000_000, 1), (290_000, 2), (250_000, 3)], &[]), [1, 3]);
    }

    #[test]
    fn what_the_user_named_goes_last() {
        let counts = [(350_000, 1), (300_000, 2), (200_000, 3)];
        assert_eq!(chosen(&counts, &[]), [1, 3]);
        assert_eq!(chosen(&counts, &[1]), [2, 3]);
        // Alone it is too frequent, too.
        assert_eq!(chosen(&[(3_000_000, 1), (200_000, 2), (10, 3)], &[1]), [2, 3, 1]);
    }

    #[test]
    fn where_everything_is_too_frequent_everything_goes() {
        check(&[(3_000_000, 1), (3_000_000, 2)], 2);
    }
}
