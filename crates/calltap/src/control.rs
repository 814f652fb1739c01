//! Decides which ops want which functions, and switches the sites accordingly: the slow part of the
//! library, under one lock.
//!
//! Each site has a filter mask and a notrace mask, with a bit for each ops; ops in the first and
//! not in the second are interested in the function. A change of filters takes three steps:
//!
//! 1. Every site's cell gets its new combination, which takes effect at once.
//! 2. Sites that are wanted now and were not before, and the other way round, are switched, all in
//!    one batch. The others stay as they are.
//! 3. Combinations that no site has any more are freed after a grace period.
//!
//! After step 3 no thread runs a callback for a function that does not want it, whether step 2
//! could change the site or not.

use crate::callee::SendCallee;
use crate::error::Error;
use crate::objects::{self, Object, Pin};
use crate::refusal::{NotEnabled, Refusal};
use crate::returns::{self, Returned};
use crate::table::{self, Function, Module};
use crate::text::{LocalText, is_single_threaded};
use crate::trampoline::{self, Callee, Combination, MAX_OPS};
use crate::{gates, grace, scan};
use calltap_names::Glob;
use calltap_patch::{Change, Demand, State, Text as _, carry_out};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::atomic::Ordering::*;

/// The present state of a site.
struct SiteState {
    state: State,
    /// Whether its gate was written.
    has_gate: bool,
    filter: u32,
    notrace: u32,
    refusal: Option<Refusal>,
}

impl SiteState {
    fn wanted(&self) -> u32 {
        self.filter & !self.notrace
    }

    fn is_on(&self) -> bool {
        matches!(self.state, State::Enabled(_))
    }
}

/// A module, and the states of its sites in the same order.
struct Mapped {
    module: &'static Module,
    places: Vec<SiteState>,
}

/// Registered ops.
pub(crate) struct Registered {
    pub id: u64,
    pub name: String,
    pub filter: Vec<Glob>,
    pub notrace: Vec<Glob>,
    pub callee: SendCallee,
    /// Data of the callee: kept alive, not read.
    #[allow(dead_code)]
    pub callback: Box<dyn Any + Send + Sync>,
    /// Callback for returns.
    pub returned: Option<Box<dyn Returned>>,
}

/// The state under the lock.
#[derive(Default)]
pub(crate) struct Control {
    ops: [Option<Registered>; MAX_OPS],
    last_id: u64,
    /// Objects that were loaded at the last scan.
    seen: Vec<Object>,
    modules: Vec<Mapped>,
    /// Modules that were unloaded: they may be loaded again.
    past: Vec<&'static Module>,
    combinations: BTreeMap<u32, Box<Combination>>,
    /// Combinations of callbacks for returns.
    at_returns: BTreeMap<u32, Box<Combination>>,
    is_prepared: bool,
}

impl Control {
    /// Looks for modules for the first time.
    pub(crate) fn prepare(&mut self) -> Result<(), Error> {
        if !self.is_prepared {
            if !trampoline::prepare() {
                return Err(Error::NoXsave);
            }
            self.rescan()?;
            self.is_prepared = true;
        }
        Ok(())
    }

    /// Looks for modules that were loaded or unloaded.
    pub(crate) fn rescan(&mut self) -> Result<(), Error> {
        let mut text = LocalText::open()?;
        let objects = objects::loaded();
        let mut old = std::mem::take(&mut self.modules);
        for object in &objects {
            if let Some(n) = old.iter().position(|mapped| scan::is_same(mapped.module, object, &mut text)) {
                let mut mapped = old.swap_remove(n);
                Self::check_again(&mut mapped, &mut text);
                self.modules.push(mapped);
                continue;
            }
            let known = self.past.iter().position(|module| scan::is_same(module, object, &mut text));
            let module = match known {
                Some(n) => Some(self.past.swap_remove(n)),
                None => scan::module(object, &mut text).map(|module| &*Box::leak(Box::new(module))),
            };
            self.modules.extend(module.map(Mapped::new));
        }
        for gone in old {
            self.forget(gone);
        }
        self.seen = objects;
        self.modules.sort_by_key(|mapped| mapped.module.start);
        for n in 0..MAX_OPS {
            self.choose(n);
        }
        table::publish(self.modules.iter().map(|mapped| mapped.module).collect());
        if is_single_threaded() {
            self.normalize(&mut text);
        }
        self.update()
    }

    /// Detects that the same file was unloaded and loaded again at the same address: its sites are
    /// as in the file then.
    fn check_again(mapped: &mut Mapped, text: &mut LocalText) {
        if mapped.module.is_program {
            return;
        }
        for (site, place) in mapped.module.sites.iter().zip(&mut mapped.places) {
            let mut bytes = vec![0; site.len()];
            if place.state == State::Original || text.read(site.address(), &mut bytes).is_err() {
                continue;
            }
            if !site.is(place.state, &bytes) && site.is(State::Original, &bytes) {
                (place.state, place.refusal) = (State::Original, None);
            }
        }
    }

    /// Makes one instruction of sites that are several, while no thread can be between them.
    fn normalize(&mut self, text: &mut LocalText) {
        let mut all = Vec::new();
        for (m, mapped) in self.modules.iter().enumerate() {
            for (n, (site, place)) in mapped.module.sites.iter().zip(&mapped.places).enumerate() {
                let demand = site.demand(place.state, State::Disabled);
                if place.state == State::Original && place.refusal.is_none() && demand != Demand::Nothing {
                    all.push((m, n, State::Disabled));
                }
            }
        }
        self.carry_out(&all, text);
    }

    /// Forgets a module that was unloaded; its memory may belong to any other.
    fn forget(&mut self, gone: Mapped) {
        let cells = gone.module.cells.iter().chain(&gone.module.returns);
        cells.for_each(|cell| cell.combination.store(ptr::null_mut(), SeqCst));
        self.past.push(gone.module);
    }

    /// Sets the bits of an ops in the masks of all sites.
    fn choose(&mut self, n: usize) {
        let bit = 1 << n;
        let ops = self.ops[n].as_ref();
        for mapped in &mut self.modules {
            for (function, place) in mapped.module.functions.iter().zip(&mut mapped.places) {
                let filter = ops.is_some_and(|ops| ops.filter.is_empty() || any(&ops.filter, function));
                let notrace = ops.is_some_and(|ops| any(&ops.notrace, function));
                for (mask, is_in) in [(&mut place.filter, filter), (&mut place.notrace, notrace)] {
                    *mask = if is_in { *mask | bit } else { *mask & !bit };
                }
            }
        }
    }

    /// Registers ops. Returns their number and id.
    pub(crate) fn add(
        &mut self,
        make: impl FnOnce(u64) -> Registered,
        may_match_nothing: bool,
    ) -> Result<(usize, u64), Error> {
        // Objects that were loaded since the last scan are traced, too.
        if objects::loaded() != self.seen {
            self.rescan()?;
        }
        let n = self.ops.iter().position(Option::is_none).ok_or(Error::TooMany)?;
        let new = make(self.last_id + 1);
        if new.returned.is_some() {
            returns::prepare()?;
        }
        if !may_match_nothing
            && !new.filter.is_empty()
            && !self.places().any(|(function, _)| new.matches(function))
        {
            return Err(Error::NothingMatches(new.patterns()));
        }
        self.last_id += 1;
        let new = self.ops[n].insert(new);
        if let Some(returned) = &new.returned {
            returned.registered(1 << n);
        }
        self.choose(n);
        match self.update() {
            Ok(()) => Ok((n, self.last_id)),
            Err(error) => {
                drop(self.remove(n));
                Err(error)
            }
        }
    }

    /// Unregisters ops. When this returns, none of their callbacks runs; the caller drops them
    /// without the lock.
    pub(crate) fn remove(&mut self, n: usize) -> Result<Registered, Error> {
        let registered = self.ops[n].take().ok_or(Error::InCallback)?;
        self.choose(n);
        // Even if the text cannot be written, the cells have changed: the callbacks have seen their
        // last call.
        let _ = self.update();
        Ok(registered)
    }

    /// Changes the filters of ops. Returns how many functions are enabled for them.
    pub(crate) fn change(&mut self, n: usize, change: impl FnOnce(&mut Registered)) -> Result<usize, Error> {
        self.ops[n].as_mut().map(change);
        self.choose(n);
        self.update()?;
        Ok(self.count(1 << n))
    }

    /// Returns the registered ops: name, id, bit, number of functions that are enabled for them.
    pub(crate) fn list(&self) -> Vec<(String, u64, u32, usize)> {
        let all = self.ops.iter().enumerate().filter_map(|(n, ops)| Some((n, ops.as_ref()?)));
        all.map(|(n, ops)| (ops.name.clone(), ops.id, 1 << n, self.count(1 << n))).collect()
    }

    /// Returns all functions; sites at ends of frames have no function of their own.
    fn places(&self) -> impl Iterator<Item = (&'static Function, &SiteState)> {
        let all = self
            .modules
            .iter()
            .flat_map(|mapped| mapped.module.functions.iter().zip(&mapped.places).zip(&mapped.module.ends));
        all.filter(|(_, is_end)| !**is_end).map(|(place, _)| place)
    }

    /// Returns the number of sites that are enabled for these bits.
    pub(crate) fn count(&self, mask: u32) -> usize {
        self.places().filter(|(_, place)| place.wanted() & mask != 0 && place.is_on()).count()
    }

    pub(crate) fn functions(&self) -> Vec<&'static Function> {
        self.places().map(|(function, _)| function).collect()
    }

    pub(crate) fn failures(&self) -> Vec<(&'static Function, String)> {
        let reason = |place: &SiteState| Some(place.refusal.as_ref()?.why.to_string());
        self.places().filter_map(|(function, place)| Some((function, reason(place)?))).collect()
    }

    /// Returns the number of combinations in use.
    pub(crate) fn combinations(&self) -> usize {
        self.combinations.len()
    }

    /// Returns the combination of a mask, with the callee that watches returns if some of its ops
    /// want them.
    fn combination(&mut self, mask: u32) -> *mut Combination {
        let (ops, watched) = (&self.ops, mask & self.with_returns() != 0);
        let callees = || -> Vec<Callee> {
            let own = of(ops, mask).map(|ops| ops.callee.get());
            own.chain(watched.then(returns::watch)).collect()
        };
        combination(&mut self.combinations, mask, callees)
    }

    /// Returns the combination of the callbacks for returns of a mask.
    fn at_return(&mut self, mask: u32) -> *mut Combination {
        let (ops, mask) = (&self.ops, mask & self.with_returns());
        let callees = || of(ops, mask).filter_map(|ops| Some(ops.returned.as_ref()?.callee())).collect();
        combination(&mut self.at_returns, mask, callees)
    }

    /// Returns the bits of ops that have a callback for returns.
    fn with_returns(&self) -> u32 {
        let has = |ops: &Option<Registered>| ops.as_ref().is_some_and(|ops| ops.returned.is_some());
        self.ops.iter().enumerate().filter(|(_, ops)| has(ops)).fold(0, |mask, (n, _)| mask | 1 << n)
    }

    /// Makes all ops that want a function's entry want the end of its frame, too. The function is
    /// found by its name, as drops are not always inlined.
    fn choose_ends(&mut self) {
        let with_returns = self.with_returns();
        let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
        for (function, place) in self.places().filter(|(function, _)| function.has_frame) {
            for name in &function.names {
                *wanted.entry(name).or_default() |= place.wanted();
            }
        }
        for mapped in &mut self.modules {
            let module = mapped.module;
            for (n, place) in mapped.places.iter_mut().enumerate().filter(|(n, _)| module.ends[*n]) {
                let name = module.functions[n].name();
                place.filter = wanted.get(name).copied().unwrap_or(0) & with_returns;
                place.notrace = 0;
            }
        }
    }

    /// Performs the three steps of a change.
    fn update(&mut self) -> Result<(), Error> {
        self.choose_ends();
        let (mut wanted, with_returns) = (BTreeSet::new(), self.with_returns());
        for m in 0..self.modules.len() {
            let module = self.modules[m].module;
            for n in 0..module.cells.len() {
                let mask = self.modules[m].places[n].wanted();
                wanted.insert(mask);
                let at_return = self.at_return(mask);
                module.returns[n].combination.store(at_return, SeqCst);
                let at_entry = if module.ends[n] { at_return } else { self.combination(mask) };
                module.cells[n].combination.store(at_entry, SeqCst);
            }
        }
        let done = LocalText::open().map(|mut text| self.switch(&mut text));
        let returns: BTreeSet<u32> = wanted.iter().map(|mask| mask & with_returns).collect();
        let dead = (retire(&mut self.combinations, &wanted), retire(&mut self.at_returns, &returns));
        // Even if no combination is dead, a callback may be running for a function that was taken
        // from it.
        grace::synchronize();
        drop(dead);
        done
    }

    /// Enables the sites that some ops want, and disables the others.
    fn switch(&mut self, text: &mut LocalText) {
        let mut changes = Vec::new();
        // The modules stay mapped until the batch is done.
        let mut pins = Vec::new();
        for (m, Mapped { module, places }) in self.modules.iter_mut().enumerate() {
            let is_tried = |place: &SiteState| place.refusal.as_ref().is_none_or(|refusal| !refusal.for_good);
            let differs = |place: &SiteState| (place.wanted() != 0) != place.is_on() && is_tried(place);
            let mut differing: Vec<usize> = (0..places.len()).filter(|n| differs(&places[*n])).collect();
            if differing.is_empty() {
                continue;
            }
            if !module.is_program {
                let Some(pin) = Pin::new(&module.path, module.bias) else { continue };
                pins.push(pin);
            }
            let lacking = |n: &usize| places[*n].wanted() != 0 && !places[*n].has_gate;
            let lacking: Vec<usize> = differing.iter().copied().filter(lacking).collect();
            if !lacking.is_empty() {
                let written = gates::write(module, &lacking, text);
                for n in lacking {
                    places[n].has_gate = written.is_ok();
                    let why = written.err().map(NotEnabled::Gates);
                    places[n].refusal = why.map(|why| Refusal { for_good: false, why });
                }
                differing.retain(|n| places[*n].wanted() == 0 || places[*n].has_gate);
            }
            let to = |n: usize| {
                if places[n].is_on() { State::Disabled } else { State::Enabled(gates::gate(module, n)) }
            };
            changes.extend(differing.iter().map(|n| (m, *n, to(*n))));
        }
        self.carry_out(&changes, text);
    }

    /// Carries out a batch of changes, each a module, a site and its new state.
    fn carry_out(&mut self, changes: &[(usize, usize, State)], text: &mut LocalText) {
        if changes.is_empty() {
            return;
        }
        // A single thread is here, so no thread is in a site.
        let granted = if is_single_threaded() { Demand::Stopped } else { Demand::Nothing };
        let change = |(m, n, to): &(usize, usize, State)| {
            let Mapped { module, places } = &self.modules[*m];
            Change { site: &module.sites[*n], from: places[*n].state, to: *to, recover: &[] }
        };
        let batch: Vec<Change<'_>> = changes.iter().map(change).collect();
        let mut failed = carry_out(text, batch, granted).into_iter().peekable();
        for (i, (m, n, to)) in changes.iter().enumerate() {
            let Mapped { module, places } = &mut self.modules[*m];
            let place = &mut places[*n];
            match failed.next_if(|(number, _)| *number == i) {
                None => (place.state, place.refusal) = (*to, None),
                Some((_, failure)) => {
                    let expected = module.sites[*n].bytes(place.state).ok();
                    place.refusal = Some(Refusal::new(failure, expected.as_deref().unwrap_or_default()));
                }
            }
        }
    }
}

/// Whether one of the globs matches one of a function's names.
fn any(globs: &[Glob], function: &Function) -> bool {
    globs.iter().any(|glob| function.names().any(|name| glob.matches(name)))
}

impl Registered {
    /// Whether the ops would be enabled for a function.
    fn matches(&self, function: &Function) -> bool {
        (self.filter.is_empty() || any(&self.filter, function)) && !any(&self.notrace, function)
    }

    /// Returns the filter and its exceptions, as written.
    fn patterns(&self) -> String {
        let words = |globs: &[Glob]| globs.iter().map(Glob::pattern).collect::<Vec<_>>().join(" ");
        match self.notrace.is_empty() {
            true => words(&self.filter),
            false => format!("{} without {}", words(&self.filter), words(&self.notrace)),
        }
    }
}

/// Returns the ops of a mask, in order.
fn of(ops: &[Option<Registered>], mask: u32) -> impl Iterator<Item = &Registered> {
    ops.iter().enumerate().filter(move |(n, _)| mask & 1 << n != 0).filter_map(|(_, ops)| ops.as_ref())
}

/// Returns the combination of a mask, creating it if there is none; null for no ops.
fn combination(
    all: &mut BTreeMap<u32, Box<Combination>>,
    mask: u32,
    callees: impl FnOnce() -> Vec<Callee>,
) -> *mut Combination {
    if mask == 0 {
        return ptr::null_mut();
    }
    ptr::from_mut(&mut **all.entry(mask).or_insert_with(|| Combination::new(mask, callees())))
}

/// Removes and returns the combinations that no site has any more.
fn retire(
    all: &mut BTreeMap<u32, Box<Combination>>,
    wanted: &BTreeSet<u32>,
) -> BTreeMap<u32, Box<Combination>> {
    let (kept, dead) = std::mem::take(all).into_iter().partition(|(mask, _)| wanted.contains(mask));
    *all = kept;
    dead
}

impl Mapped {
    fn new(module: &'static Module) -> Mapped {
        let place =
            |_| SiteState { state: State::Original, has_gate: false, filter: 0, notrace: 0, refusal: None };
        Mapped { module, places: module.sites.iter().map(place).collect() }
    }
}
