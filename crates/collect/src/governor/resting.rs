//! Functions that the governor has disabled, and when each is enabled again for a trial: a burst
//! that has ended is no reason to miss a function for hours.
//!
//! The present cost of a disabled function is unknown. Its last known cost is assumed to halve with
//! every pause: cheap functions are tried soon and costly ones late. The pause of a function that
//! is still too costly doubles, so that trials cost less and less.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The first pause of a function.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause of a function.
const MAX_PAUSE: Duration = Duration::from_secs(120);
/// Share of the free cost that functions given back may be expected to take.
const PART: f64 = 0.5;

/// A disabled function.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rest {
    /// The function's cost when it was disabled, as a share of the program's own time.
    cost: f64,
    since: Instant,
    pause: Duration,
    /// Whether it was enabled again, and not disabled since.
    over: bool,
}

impl Rest {
    /// Returns its expected present cost; infinite during its first pause.
    fn expected(&self, now: Instant) -> f64 {
        let pauses = now.saturating_duration_since(self.since).as_secs_f64() / self.pause.as_secs_f64();
        if pauses < 1.0 { f64::INFINITY } else { self.cost * 0.5f64.powf(pauses) }
    }
}

/// Disabled functions, by site.
#[derive(Default)]
pub(super) struct Resting(HashMap<u32, Rest>);

impl Resting {
    /// Notes that a site is disabled, which cost this share of the program's own time.
    pub(super) fn begin(&mut self, site: u32, cost: f64, now: Instant) {
        let pause = self.0.get(&site).map_or(FIRST_PAUSE, |rest| (rest.pause * 2).min(MAX_PAUSE));
        self.0.insert(site, Rest { cost, since: now, pause, over: false });
    }

    /// Whether any site is disabled.
    pub(super) fn any(&self) -> bool {
        self.0.values().any(|rest| !rest.over)
    }

    /// Returns the sites to enable again, cheapest first, where `room` is free, a share of the
    /// program's own time.
    pub(super) fn give_back(&mut self, room: f64, now: Instant) -> Vec<u32> {
        let resting = self.0.iter().filter(|(_, rest)| !rest.over);
        let mut expected: Vec<(f64, u32)> = resting
            .map(|(site, rest)| (rest.expected(now), *site))
            .filter(|(cost, _)| cost.is_finite())
            .collect();
        expected.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut left = PART * room;
        let fits = |(cost, _): &(f64, u32)| {
            left -= cost;
            left >= 0.0
        };
        let sites: Vec<u32> = expected.into_iter().take_while(fits).map(|(_, site)| site).collect();
        for site in &sites {
            self.0.entry(*site).and_modify(|rest| rest.over = true);
        }
        sites
    }

    /// Makes all pauses end now.
    #[cfg(test)]
    pub(super) fn expire(&mut self) {
        self.0.values_mut().for_each(|rest| rest.pause = Duration::from_nanos(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when site 1 is given back, in seconds, if it costs `cost` and a twenty-fifth of the
    /// program's time is free; `times` times, as it is too costly each time.
    fn check(cost: f64, times: u32) -> Vec<u64> {
        let (mut resting, mut now, mut found) = (Resting::default(), Instant::now(), Vec::new());
        for _ in 0..times {
            let start = now;
            resting.begin(1, cost, now);
            while resting.give_back(0.04, now).is_empty() {
                now += Duration::from_millis(100);
                assert!(now - start < Duration::from_secs(10_000), "{cost} is never given back");
            }
            assert_eq!(resting.give_back(0.04, now + MAX_PAUSE * 20), [0; 0], "it is given back once");
            found.push((now - start).as_secs());
        }
        found
    }

    #[test]
    fn cheap_function_is_reenabled_after_one_pause() {
        assert_eq!(check(0.01, 1), [2]);
    }

    #[test]
    fn costly_function_is_reenabled_later() {
        assert_eq!(check(0.16, 1), [6]);
        assert_eq!(check(5.12, 1), [16]);
    }

    #[test]
    fn each_trial_that_fails_doubles_the_pause_up_to_a_limit() {
        assert_eq!(check(0.16, 8), [6, 12, 24, 48, 96, 192, 360, 360]);
    }

    #[test]
    fn no_more_come_back_than_there_is_room_for_the_cheapest_first() {
        let (mut resting, now) = (Resting::default(), Instant::now());
        for (site, cost) in [(1, 0.02), (2, 0.03), (3, 0.01)] {
            resting.begin(site, cost, now);
        }
        assert_eq!(resting.give_back(0.04, now + FIRST_PAUSE), [3, 1]);
        assert_eq!(resting.give_back(0.01, now + FIRST_PAUSE), [0; 0]);
        assert_eq!(resting.give_back(0.04, now + FIRST_PAUSE), [2]);
    }
}
