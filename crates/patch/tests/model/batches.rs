//! Tests of batches on the text of a program that no thread runs: refused changes, and the bytes
//! left when an operation fails.

use super::TRANSITIONS;
use super::proof;
use super::sites::{self, Case, PLACES};
use calltap_patch::{Avma, Change, ChangeError, Demand, Site, State, Text, Transition, carry_out};

const START: u64 = 0x40_0000;

/// The text of a program that no thread runs. One operation on it may fail.
struct Simulated {
    bytes: Vec<u8>,
    done: usize,
    fails: usize,
    /// Which bytes a failing write still stores: one out of this many.
    one_of: Option<usize>,
    writes: usize,
    transition: Transition,
}

impl Simulated {
    fn new(cases: &[Case]) -> Simulated {
        let mut bytes = vec![0xF4; 0x3000];
        for case in cases {
            put(&mut bytes, case.ground.base, &case.bytes(State::Original));
        }
        let transition = cases.first().map_or(Transition::Test, |case| case.transition);
        Simulated { bytes, done: 0, fails: usize::MAX, one_of: None, writes: 0, transition }
    }

    fn site(&self, site: &Site) -> &[u8] {
        &self.bytes[(site.address().0 - START) as usize..][..site.len()]
    }

    /// Counts an operation; returns an error if it is the failing one.
    fn step(&mut self) -> Result<(), usize> {
        self.done += 1;
        if self.done - 1 == self.fails { Err(self.fails) } else { Ok(()) }
    }
}

fn put(text: &mut [u8], at: u64, bytes: &[u8]) {
    text[(at - START) as usize..][..bytes.len()].copy_from_slice(bytes);
}

impl Text for Simulated {
    type Error = usize;

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), usize> {
        self.step()?;
        into.copy_from_slice(&self.bytes[(at.0 - START) as usize..][..into.len()]);
        Ok(())
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), usize> {
        self.writes += 1;
        let result = self.step();
        let step = if result.is_ok() { Some(1) } else { self.one_of };
        for (i, byte) in bytes.iter().enumerate().filter(|(i, _)| step.is_some_and(|n| (i + 1) % n == 0)) {
            put(&mut self.bytes, at.0 + i as u64, &[*byte]);
        }
        result
    }

    fn sync(&mut self) -> Result<(), usize> {
        self.step()
    }

    fn transition(&self) -> Transition {
        self.transition
    }
}

fn change<'a>(case: &'a Case, from: usize, to: usize, recover: &'a [State]) -> Change<'a> {
    Change { site: &case.site, from: case.state(from), to: case.state(to), recover }
}

/// Whether a site's bytes are those of this state.
fn is_in(text: &Simulated, case: &Case, state: usize) -> bool {
    text.site(&case.site) == case.bytes(case.state(state))
}

/// Sites of every kind, one of which straddles two pages.
fn a_program(transition: Transition) -> Vec<Case> {
    let kinds = sites::every_kind(PLACES[0]).len();
    let place = |n: usize| START + 0x1000 - 32 * (kinds as u64 / 2) + 32 * n as u64 - 3;
    sites::through(transition, (0..kinds).map(|n| sites::every_kind(place(n)).swap_remove(n)).collect())
}

#[test]
fn site_changed_by_another_tool_is_refused_alone() {
    let cases = a_program(Transition::Test);
    for (stale, case) in cases.iter().enumerate() {
        for offset in 0..case.site.len() {
            for recover in [&[][..], &[case.state(2)]] {
                let mut text = Simulated::new(&cases);
                // A byte that no site has in any state.
                put(&mut text.bytes, case.ground.base + offset as u64, &[0x06]);
                let (actual, before) = (text.site(&case.site).to_vec(), text.bytes.clone());
                let only = change(case, 0, 3, recover);
                let failed = carry_out(&mut text, [only], Demand::Stopped);
                assert_eq!(failed, [(0, ChangeError::Mismatch(actual.clone()))], "{}", case.name);
                assert_eq!((text.writes, &text.bytes), (0, &before), "{}", case.name);
                if !recover.is_empty() {
                    continue;
                }
                let changes = cases.iter().map(|case| change(case, 0, 2, &[]));
                let failed = carry_out(&mut text, changes, Demand::Stopped);
                assert_eq!(failed, [(stale, ChangeError::Mismatch(actual.clone()))]);
                assert_eq!(text.site(&case.site), actual);
                assert!(cases.iter().enumerate().all(|(n, case)| is_in(&text, case, 2) == (n != stale)));
            }
        }
    }
}

#[test]
fn change_with_unmet_demand_is_not_written() {
    for case in sites::every_kind(PLACES[0]) {
        for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 3)] {
            for granted in [Demand::Nothing, Demand::Outside, Demand::Stopped] {
                let mut text = Simulated::new(&[]);
                put(&mut text.bytes, case.ground.base, &case.bytes(case.state(from)));
                let demand = case.site.demand(case.state(from), case.state(to));
                let failed = carry_out(&mut text, [change(&case, from, to, &[])], granted);
                if demand > granted {
                    assert_eq!(
                        (failed, text.writes),
                        (vec![(0, ChangeError::Demands(demand))], 0),
                        "{}",
                        case.name
                    );
                } else {
                    assert_eq!(failed, [], "{}", case.name);
                    assert!(is_in(&text, &case, to), "{}", case.name);
                }
            }
        }
    }
}

/// Checks batches whose n-th operation fails, for every n.
fn check_failures(transition: Transition, from: usize, to: usize, one_of: Option<usize>) {
    let cases = a_program(transition);
    let before = Simulated::new(&cases).bytes;
    for fails in 0.. {
        let mut text = Simulated::new(&cases);
        for case in &cases {
            put(&mut text.bytes, case.ground.base, &case.bytes(case.state(from)));
        }
        (text.fails, text.one_of) = (fails, one_of);
        let changes = cases.iter().map(|case| change(case, from, to, &[]));
        let failed = carry_out(&mut text, changes, Demand::Stopped);
        let is_whole = text.done <= fails;
        text.fails = usize::MAX;
        let all: Vec<usize> = if is_whole { Vec::new() } else { (0..cases.len()).collect() };
        assert!(failed.iter().map(|(n, _)| n).eq(&all), "operation {fails}: {failed:?}");
        for case in &cases {
            // The code of stopped threads may be left in any state.
            let stopped = case.site.demand(case.state(from), case.state(to)) == Demand::Stopped;
            if one_of.is_none() || !stopped {
                let states = [case.state(from), case.state(to)];
                if let Err(harm) = proof::is_valid(case, text.site(&case.site), &states) {
                    panic!("{} when operation {fails} failed:\n{harm}", case.name);
                }
            }
        }
        let cut_short: Vec<_> = cases.iter().map(|case| [case.state(to)]).collect();
        let back = cases.iter().zip(&cut_short).map(|(case, cut_short)| change(case, from, 0, cut_short));
        let failed = carry_out(&mut text, back, Demand::Stopped);
        assert_eq!(failed, [], "when operation {fails} failed");
        assert!(text.bytes == before, "operation {fails}");
        if is_whole {
            return;
        }
    }
}

#[test]
fn failed_batch_leaves_runnable_and_restorable_code() {
    for (from, to) in [(0, 1), (0, 2), (1, 2), (2, 1), (2, 0), (1, 0), (2, 3)] {
        for transition in TRANSITIONS {
            for one_of in [None, Some(1), Some(2), Some(3)] {
                check_failures(transition, from, to, one_of);
            }
        }
    }
}

#[test]
fn site_changed_by_another_tool_may_still_reach_the_stub() {
    for case in sites::every_kind(PLACES[0]) {
        let on = case.state(2);
        let (original, ours) = (case.bytes(State::Original), case.bytes(on));
        let elsewhere = case.bytes(case.state(3));
        for at in 0..original.len() {
            let changed = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                // A byte that is never written.
                bytes[at] = 0x42;
                bytes
            };
            assert!(case.site.is_foreign(&changed(&original), &[on]), "{}: byte {at}", case.name);
            // Bytes of the target differ between all targets.
            if ours[at] == elsewhere[at] && ours[at] == original[at] {
                assert!(!case.site.is_foreign(&changed(&ours), &[on]), "{}: byte {at}", case.name);
            }
        }
    }
}
