//! Several processes in one table: each by itself, or all with their functions summed up by name.

use super::switches::{State, Switches};
use super::view;
use calltap_analysis::intervals::{FunctionCalls, Interval};
use calltap_trace::SiteId;
use std::collections::HashMap;

/// A function across processes: its name and its module.
type Name = (String, String);

/// The processes of a table.
pub struct Together<'a> {
    switches: &'a [Switches],
    newest: Vec<Option<Interval>>,
    /// Index of the process that is displayed; `None` for all together.
    chosen: Option<usize>,
    /// Sites of functions, by process.
    sites: HashMap<Name, Vec<(usize, Vec<SiteId>)>>,
}

impl<'a> Together<'a> {
    /// Returns the processes before any interval. Several are displayed together.
    pub fn new(switches: &'a [Switches]) -> Together<'a> {
        let (newest, chosen) = (vec![None; switches.len()], (switches.len() == 1).then_some(0));
        Together { switches, newest, chosen, sites: HashMap::new() }
    }

    /// Whether there are several processes.
    pub fn is_several(&self) -> bool {
        self.switches.len() > 1
    }

    /// Takes the newest interval of a process. Returns whether the process is displayed.
    pub fn set(&mut self, at: usize, interval: Option<Interval>) -> bool {
        for row in interval.iter().flat_map(|interval| &interval.rows) {
            let of = self.sites.entry(name(row)).or_default();
            of.retain(|(process, _)| *process != at);
            of.push((at, row.sites.clone()));
        }
        self.newest[at] = interval;
        self.chosen.is_none_or(|chosen| chosen == at)
    }

    /// Displays the next process, or the previous one if `back`; all together follow the last and
    /// precede the first.
    pub fn turn(&mut self, back: bool) {
        let count = self.switches.len();
        self.chosen = match (self.chosen, back) {
            _ if count < 2 => return,
            (None, false) => Some(0),
            (None, true) => Some(count - 1),
            (Some(at), false) => Some(at + 1).filter(|at| *at < count),
            (Some(at), true) => at.checked_sub(1),
        };
    }

    /// Returns the displayed interval: of one process, or summed up over all.
    pub fn interval(&self) -> Option<Interval> {
        if let Some(at) = self.chosen {
            return self.newest[at].clone();
        }
        let (mut sum, mut rows) = (Interval::default(), HashMap::<Name, FunctionCalls>::new());
        let known = self.newest.iter().flatten();
        for interval in known.clone() {
            sum.length_ns = sum.length_ns.max(interval.length_ns);
            sum.events += interval.events;
            sum.lost += interval.lost;
            for row in &interval.rows {
                let all = rows.entry(name(row)).or_insert_with(|| FunctionCalls {
                    sites: Vec::new(),
                    calls: 0,
                    ended: 0,
                    total_ns: 0,
                    is_partial: false,
                    max_ns: 0,
                    ..row.clone()
                });
                all.calls += row.calls;
                all.avg_ns = mean(all, row);
                all.ended += row.ended;
                all.total_ns += row.total_ns;
                all.is_partial |= row.is_partial;
                all.max_ns = all.max_ns.max(row.max_ns);
            }
        }
        sum.rows = rows.into_values().collect();
        sum.rows.sort_by(|a, b| (&a.function, &a.module).cmp(&(&b.function, &b.module)));
        (known.count() > 0).then_some(sum)
    }

    /// Returns the line above the table.
    pub fn heading(&self, interval: &Interval) -> String {
        match self.chosen {
            Some(at) => {
                let of = if self.is_several() {
                    format!("{} of {}: ", at + 1, self.switches.len())
                } else {
                    String::new()
                };
                of + &view::heading(&self.switches[at].status(), interval)
            }
            None => {
                let all: Vec<_> = self.switches.iter().map(Switches::status).collect();
                view::heading_of_all(&all, interval)
            }
        }
    }

    /// Returns the state of a function. In all processes together it is on only if it is on in
    /// each.
    pub fn state(&self, row: &FunctionCalls) -> State {
        if let Some(at) = self.chosen {
            return self.switches[at].state(row);
        }
        let states = self.of(row).map(|(switches, sites)| switches.state_of(sites));
        states.fold(State::On, |all, one| match (all, one) {
            (State::Off, _) | (_, State::Off) => State::Off,
            (State::DisabledByLimit, _) | (_, State::DisabledByLimit) => State::DisabledByLimit,
            (State::On, State::On) => State::On,
        })
    }

    /// Requests that a function be switched, in all displayed processes.
    pub fn toggle(&self, row: &FunctionCalls) {
        if let Some(at) = self.chosen {
            return self.switches[at].toggle(row);
        }
        let on = self.state(row) != State::On;
        self.of(row).for_each(|(switches, sites)| switches.switch(sites, on));
    }

    fn of(&self, row: &FunctionCalls) -> impl Iterator<Item = (&'a Switches, &[SiteId])> {
        let all = self.sites.get(&name(row)).into_iter().flatten();
        all.map(|(at, sites)| (&self.switches[*at], sites.as_slice()))
    }
}

fn name(row: &FunctionCalls) -> Name {
    (row.function.clone(), row.module.clone())
}

/// Returns the mean time of the ended calls of both rows.
fn mean(a: &FunctionCalls, b: &FunctionCalls) -> u64 {
    let time = |row: &FunctionCalls| u128::from(row.avg_ns) * u128::from(row.ended);
    let count = u128::from(a.ended) + u128::from(b.ended);
    (time(a) + time(b)).checked_div(count).map_or(0, |mean| mean as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(rows: &[(&str, u64, u64)]) -> Option<Interval> {
        Some(Interval { length_ns: 1_000_000_000, events: 10, lost: 1, rows: crate::top::rows_of(rows) })
    }

    fn shown(together: &Together<'_>) -> String {
        let rows = together.interval().map(|interval| interval.rows).unwrap_or_default();
        let rows: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {} {}", row.function, row.calls, row.avg_ns, row.max_ns))
            .collect();
        rows.join(", ")
    }

    #[test]
    fn functions_of_all_are_added_up_and_each_is_shown_by_itself() {
        let switches = [Switches::new(1), Switches::new(2)];
        let mut together = Together::new(&switches);
        assert!(together.set(0, interval(&[("f", 1, 100), ("g", 5, 7)])));
        assert!(together.set(1, interval(&[("h", 2, 3), ("f", 3, 20)])));
        assert_eq!(shown(&together), "f 4 40 100, g 5 7 7, h 2 3 3");
        assert_eq!(together.interval().map(|interval| (interval.events, interval.lost)), Some((20, 2)));
        together.turn(false);
        assert_eq!(shown(&together), "f 1 100 100, g 5 7 7");
        assert!(!together.set(1, None), "the other is not shown");
        together.turn(true);
        assert_eq!(shown(&together), "f 1 100 100, g 5 7 7", "one has ended");
    }

    #[test]
    fn key_switches_function_in_all_its_processes() {
        let switches = [Switches::new(1), Switches::new(2)];
        let mut together = Together::new(&switches);
        let (first, second) = (interval(&[("f", 1, 1), ("g", 1, 1)]), interval(&[("g", 1, 1), ("f", 1, 1)]));
        together.set(0, first.clone());
        together.set(1, second.clone());
        let [f, g] = &together.interval().unwrap_or_default().rows[..] else { panic!("two rows") };
        together.toggle(f);
        assert_eq!((together.state(f), together.state(g)), (State::Off, State::On));
        let of = |at: usize, interval: &Option<Interval>| {
            let rows = interval.iter().flat_map(|interval| &interval.rows);
            rows.map(|row| switches[at].state(row)).collect::<Vec<_>>()
        };
        assert_eq!(
            (of(0, &first), of(1, &second)),
            (vec![State::Off, State::On], vec![State::On, State::Off])
        );
        // A function that is off in a single process is switched on in all.
        together.turn(false);
        together.toggle(&first.clone().unwrap_or_default().rows[0]);
        together.toggle(&first.unwrap_or_default().rows[1]);
        together.turn(true);
        assert_eq!((together.state(f), together.state(g)), (State::Off, State::Off));
        together.toggle(g);
        assert_eq!(together.state(g), State::On);
    }
}
