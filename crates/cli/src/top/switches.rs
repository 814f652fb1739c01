//! The state shared by the thread that watches a process and the one that displays it: requested
//! switches, and the present state of functions.

use calltap_analysis::intervals::{FunctionCalls, Interval};
use calltap_session::{Controls, Spent};
use calltap_trace::SiteId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two counts of the enabled functions: a count has to look at all sites.
const COUNT: Duration = Duration::from_millis(250);

/// Whether calls of a function are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Calls are seen.
    On,
    /// The user has switched the function off.
    Off,
    /// The overhead limit has disabled the function.
    DisabledByLimit,
}

impl State {
    /// Returns the state as one word, for people and for awk.
    pub fn word(self) -> &'static str {
        match self {
            State::On => "on",
            State::Off => "off(user)",
            State::DisabledByLimit => "off(limit)",
        }
    }
}

/// The state of the process apart from its calls.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// Process id.
    pub pid: u32,
    /// Process name.
    pub name: String,
    /// Number of functions that are on, and of all that ever were.
    pub functions: (usize, usize),
    /// The cost of tracing in the last interval, as a share of the program's own time.
    pub cost: Option<f64>,
    /// The calls that are kept, as in `only calls of handle and what it calls`; None: all.
    pub kept: Option<String>,
}

#[derive(Default)]
struct Content {
    status: Status,
    /// The pending requests: sites, and whether they are switched on.
    requests: Vec<(HashSet<SiteId>, bool)>,
    off: HashSet<SiteId>,
    disabled_by_limit: HashSet<SiteId>,
    /// The sites that were off or over the limit at any time since the interval began.
    partial: HashSet<SiteId>,
    /// Time spent until now, and until the interval began.
    spent: Option<Spent>,
    spent_before: Spent,
    counted: Option<Instant>,
}

/// The switches of a process's functions.
pub struct Switches {
    content: Mutex<Content>,
    over: AtomicBool,
}

/// Ends the watching on drop.
pub struct EndGuard<'a>(&'a Switches);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Release);
    }
}

impl Switches {
    /// Returns the switches of a process.
    pub fn new(pid: u32) -> Switches {
        let status = Status { pid, ..Status::default() };
        let content = Content { status, ..Content::default() };
        Switches { content: Mutex::new(content), over: AtomicBool::new(false) }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // A thread that panicked leaves no half-changed value behind.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a guard that ends the watching on drop.
    pub fn end_on_drop(&self) -> EndGuard<'_> {
        EndGuard(self)
    }

    /// Whether all displays have ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Sets the name of the process.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.content().status.name);
    }

    /// Sets which calls are kept from now on.
    pub fn set_kept(&self, calls: Option<String>) {
        self.content().status.kept = calls;
    }

    /// Returns the state of the process.
    pub fn status(&self) -> Status {
        self.content().status.clone()
    }

    /// Returns the state of a row's function.
    pub fn state(&self, row: &FunctionCalls) -> State {
        self.state_of(&row.sites)
    }

    /// Returns the state of the function that has these sites.
    pub fn state_of(&self, sites: &[SiteId]) -> State {
        let content = self.content();
        let any = |set: &HashSet<SiteId>| sites.iter().any(|site| set.contains(site));
        if any(&content.off) {
            State::Off
        } else if any(&content.disabled_by_limit) {
            State::DisabledByLimit
        } else {
            State::On
        }
    }

    /// Marks the functions of an ended interval that were off for a part of it.
    pub fn marked(&self, interval: Option<Interval>) -> Option<Interval> {
        let mut interval = interval?;
        let mut content = self.content();
        let Content { off, disabled_by_limit, partial, .. } = &mut *content;
        for row in &mut interval.rows {
            row.is_partial = row.sites.iter().any(|site| partial.contains(site));
        }
        *partial = off.union(disabled_by_limit).copied().collect();
        let spent = content.spent.unwrap_or_default();
        content.status.cost = spent.share_since(content.spent_before);
        content.spent_before = spent;
        Some(interval)
    }

    /// Requests that a function be switched: off if it is on, else on.
    pub fn toggle(&self, row: &FunctionCalls) {
        self.switch(&row.sites, self.state(row) != State::On);
    }

    /// Requests that the function with these sites be switched.
    pub fn switch(&self, sites: &[SiteId], on: bool) {
        let mut content = self.content();
        for site in sites {
            if on {
                content.off.remove(site);
                content.disabled_by_limit.remove(site);
            } else {
                content.off.insert(*site);
                content.partial.insert(*site);
            }
        }
        content.requests.push((sites.iter().copied().collect(), on));
    }

    /// Executes the requests, and updates the state.
    pub fn serve(&self, controls: &mut Controls<'_, '_>) {
        let requests = std::mem::take(&mut self.content().requests);
        // The lock is free meanwhile, so that the thread that draws does not wait for the process.
        for (sites, on) in &requests {
            controls.switch(sites, *on);
        }
        let is_due = {
            let content = self.content();
            let is_late = content.counted.is_none_or(|counted| counted.elapsed() >= COUNT);
            is_late || content.disabled_by_limit != *controls.disabled_by_limit()
        };
        let functions = (is_due || !requests.is_empty()).then(|| controls.functions());
        let mut content = self.content();
        if let Some(functions) = functions {
            (content.status.functions, content.counted) = (functions, Some(Instant::now()));
        }
        content.spent = controls.spent();
        if content.requests.is_empty() && content.disabled_by_limit != *controls.disabled_by_limit() {
            content.disabled_by_limit.clone_from(controls.disabled_by_limit());
            content.partial.extend(controls.disabled_by_limit());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sites: &[u32]) -> FunctionCalls {
        let sites = sites.iter().map(|site| SiteId(*site)).collect();
        FunctionCalls {
            function: "f".to_owned(),
            module: "app".to_owned(),
            sites,
            ..FunctionCalls::default()
        }
    }

    #[test]
    fn a_function_goes_off_and_on_again_with_all_its_sites_and_no_other() {
        let (switches, f, g) = (Switches::new(1), row(&[1, 2]), row(&[3]));
        assert_eq!(switches.state(&f), State::On);
        switches.toggle(&f);
        assert_eq!((switches.state(&f), switches.state(&g)), (State::Off, State::On));
        switches.toggle(&f);
        assert_eq!(switches.state(&f), State::On);
        let asked: Vec<(usize, bool)> =
            switches.content().requests.iter().map(|(s, on)| (s.len(), *on)).collect();
        assert_eq!(asked, [(2, false), (2, true)]);
    }

    #[test]
    fn functions_disabled_by_limit_can_be_enabled_by_key() {
        let (switches, f) = (Switches::new(1), row(&[7]));
        switches.content().disabled_by_limit.insert(SiteId(7));
        assert_eq!(switches.state(&f), State::DisabledByLimit);
        switches.toggle(&f);
        assert_eq!(switches.state(&f), State::On);
        assert!(switches.content().requests[0].1);
    }

    #[test]
    fn function_disabled_during_interval_is_marked_in_that_interval_only() {
        let switches = Switches::new(1);
        let marked = |rows: Vec<FunctionCalls>| {
            let interval =
                switches.marked(Some(Interval { rows, ..Interval::default() })).unwrap_or_default();
            interval.rows.iter().map(|row| row.is_partial).collect::<Vec<_>>()
        };
        let rows = || vec![row(&[1, 2]), row(&[3])];
        assert_eq!(marked(rows()), [false, false]);
        switches.toggle(&row(&[1, 2]));
        switches.toggle(&row(&[1, 2]));
        assert_eq!(marked(rows()), [true, false], "off and on again");
        assert_eq!(marked(rows()), [false, false]);
        switches.toggle(&row(&[3]));
        assert_eq!([marked(rows()), marked(rows())], [[false, true], [false, true]], "off for longer");
    }

    #[test]
    fn dropping_the_view_ends_switches() {
        let switches = Switches::new(1);
        let leave = switches.end_on_drop();
        assert!(!switches.is_over());
        drop(leave);
        assert!(switches.is_over());
    }
}
