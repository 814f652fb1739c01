//! A module of a process: its sites, their states, and the stubs they lead to.

mod found;
mod process_site;
mod recalled;
mod requested;
mod untraceable;

use crate::plan::journal::Entry;
use crate::plan::modules::{Mapped, is_among};
use crate::plan::stubs::{Stubs, VeneerRange};
use calltap_collect::metadata::{Metadata, NewSite, NewSites};
use calltap_names::{FunctionNames, GlobSet};
use calltap_patch::{Avma, Bias, Change, ChangeError, Demand, HookSet, Site, State};
use calltap_process::frames::Pushed;
use calltap_process::memory::maps::Region;
use calltap_selection::{Listed, SiteRequest};
use calltap_sites::{Binary, Function, SiteForm, SiteKind, Svma};
use calltap_trace::{Module, Record};
use process_site::ProcessSite;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub(crate) use found::Call;

/// A module of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessModule {
    /// The mappings of the file.
    pub mapped: Mapped,
    /// The module's record for the trace, which has an id once a function of the module was
    /// selected.
    pub record: Module,
    /// Whether the record is in the trace.
    pub recorded: bool,
    /// Whether no thread can be running it yet: it was mapped while the dynamic linker waits for
    /// the planner.
    pub fresh: bool,
    binary: Arc<Binary>,
    bias: Bias,
    /// All sites that were ever selected, in the order of addresses.
    sites: Vec<ProcessSite>,
    /// For each function, the index of its site plus one.
    places: Vec<u32>,
    veneers: Vec<VeneerRange>,
    /// Calls of the profiling function that were found at their first execution, by function.
    found: HashMap<usize, (SiteKind, SiteForm)>,
    /// Whether the module's profiling functions lead to the recorder, as far as possible.
    led: bool,
    /// The known functions by address, if the code was made at run time and is in no file.
    made: Option<HashMap<u64, usize>>,
    /// Sites that were found with another tool's code, and are not in the journal as such yet.
    unwritten: Vec<Avma>,
    /// Start of the function that leads to the agent's watch of the dynamic linker; it is not
    /// traced.
    watched: Option<Avma>,
    /// Addresses of the functions of which it was told that they cannot be traced.
    told: BTreeSet<Svma>,
}

impl ProcessModule {
    /// Returns advice for the user if most of its functions have no names.
    pub(crate) fn hint(&self) -> Option<String> {
        // The advice names the file, which is another one if it was replaced.
        let mapped = Some(&self.mapped).filter(|mapped| !mapped.is_replaced())?;
        calltap_selection::debug_files::hint(&self.binary, &mapped.path)
    }

    /// Creates a module without sites.
    pub(crate) fn new(
        mapped: Mapped,
        record: Module,
        binary: Arc<Binary>,
        bias: Bias,
        fresh: bool,
    ) -> ProcessModule {
        let (sites, places, veneers) = (Vec::new(), vec![0; binary.functions.len()], Vec::new());
        let (recorded, found, led, made, watched) = (false, HashMap::new(), false, None, None);
        let (unwritten, told) = (Vec::new(), BTreeSet::new());
        ProcessModule {
            mapped,
            record,
            recorded,
            fresh,
            binary,
            bias,
            sites,
            places,
            veneers,
            found,
            led,
            made,
            unwritten,
            watched,
            told,
        }
    }

    /// Creates a module for code that is in no file. Its functions become known one by one.
    pub(crate) fn made(mapped: Mapped, record: Module) -> ProcessModule {
        let made = Some(HashMap::new());
        ProcessModule { made, ..ProcessModule::new(mapped, record, Arc::default(), Bias(0), false) }
    }

    /// Copies the module for a forked child. Free space in its veneers stays the parent's.
    pub(crate) fn inherited(&self) -> ProcessModule {
        ProcessModule { veneers: Vec::new(), ..self.clone() }
    }

    /// Replaces the list of functions by one in which more can be traced.
    pub(crate) fn know_more(&mut self, binary: Arc<Binary>) {
        let place = |n: &usize| {
            let known = self.binary.functions.get(*n)?;
            binary.functions.binary_search_by_key(&known.address, |function| function.address).ok()
        };
        let sites = self.sites.iter().map(|placed| placed.function).filter(|n| *n != usize::MAX);
        let used: HashSet<usize> = sites.chain(self.found.keys().copied()).collect();
        let places: Option<HashMap<usize, usize>> = used.iter().map(|n| Some((*n, place(n)?))).collect();
        // A list that lacks a function of a site is another file's.
        let Some(places) = places else { return };
        for placed in &mut self.sites {
            placed.function = places.get(&placed.function).copied().unwrap_or(usize::MAX);
        }
        let found = std::mem::take(&mut self.found).into_iter();
        self.found = found.map(|(n, found)| (places[&n], found)).collect();
        self.places = vec![0; binary.functions.len()];
        self.binary = binary;
        self.note_places();
    }

    /// Whether the code is in no file.
    pub(crate) fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// Whether the module is still mapped; `now` are the mapped files. Sites of run-time code that
    /// is gone are forgotten.
    pub(crate) fn is_there(&mut self, now: &[Mapped], regions: &[Region]) -> bool {
        if !self.is_made() {
            return is_among(now, &self.mapped);
        }
        let is_there = |site: &Site| {
            let (start, end) = (site.address().0, site.address().0 + site.len() as u64);
            regions.iter().any(|region| region.executable && region.start <= start && end <= region.end)
        };
        self.forget(|placed| !is_there(&placed.site));
        let (start, end) = self.mapped.range;
        regions.iter().any(|region| region.executable && region.start < end && start < region.end)
    }

    /// Returns how a function can be patched.
    fn form(&self, function: usize) -> Option<&SiteForm> {
        let known = || self.binary.functions.get(function)?.form();
        self.found.get(&function).map(|(_, form)| form).or_else(known)
    }

    /// Returns the kind of room that the compiler left at a function.
    fn kind(&self, function: usize) -> SiteKind {
        self.found.get(&function).map_or(self.binary.functions[function].kind(), |(kind, _)| *kind)
    }

    /// Leaves the function at this address to the agent, which watches the dynamic linker there.
    pub(crate) fn leave_watched(&mut self, start: Avma) {
        self.watched = Some(start);
    }

    /// Returns the function that is left to the agent, if it is the only one of the module that is
    /// selected.
    pub(crate) fn wants_watched(
        &self,
        site_request: &dyn Fn(&Function) -> Option<SiteRequest>,
    ) -> Option<&Function> {
        let (n, start, address) = self.function_at(self.watched?.0)?;
        let function = self.binary.functions.get(n)?;
        let is_all = || !self.traceable().any(|(_, function)| site_request(function).is_some());
        let is_it = start == address && function.is_traceable();
        (is_it && site_request(function).is_some() && is_all()).then_some(function)
    }

    /// Evaluates the requests for all traceable functions without obeying them.
    pub(crate) fn evaluate(&self, site_request: &dyn Fn(&Function) -> Option<SiteRequest>) {
        self.traceable().for_each(|(_, function)| drop(site_request(function)));
    }

    /// Returns the traceable functions with their indices. If the program maps only a part of the
    /// file, only those in that part.
    fn traceable(&self) -> impl Iterator<Item = (usize, &Function)> {
        let is_traceable = |(index, function): &(usize, &Function)| {
            let start = self.bias.apply(function.address);
            (function.is_traceable() || self.found.contains_key(index))
                && self.mapped.contains(start)
                && self.watched != Some(start)
        };
        self.binary.functions.iter().enumerate().filter(is_traceable)
    }

    /// Returns the name of a site's function, for messages.
    fn name(&self, placed: &ProcessSite) -> String {
        let named = self.binary.functions.get(placed.function);
        named.map_or_else(|| format!("{:#x}", placed.site.address().0), |function| function.name.clone())
    }

    /// Records a site without a stub in the journal, and its target, if it has one.
    fn note_site(&self, site: Site, target: Avma, stubs: &mut Stubs<'_>) {
        let (process, inode, base) = (self.record.process, self.mapped.file.1, self.mapped.base());
        stubs.to_note.push(&Entry::Site { process, site, target, copy: None, stub: None, inode, base });
    }

    /// Returns the index of a function's site, which is created if there is none.
    fn place_of(&mut self, function: usize, site: impl Fn(Bias) -> Option<Site>) -> Option<usize> {
        if let Some(place) = self.places.get(function)?.checked_sub(1) {
            return Some(place as usize);
        }
        let site = site(self.bias)?;
        self.sites.push(ProcessSite::new(function, site));
        self.places[function] = self.sites.len() as u32;
        Some(self.sites.len() - 1)
    }

    /// Sorts the sites. New ones come in the order of the file's functions, which is nearly always
    /// that of addresses.
    fn put_in_order(&mut self) {
        if self.sites.is_sorted_by_key(|placed| placed.site.address()) {
            return;
        }
        self.sites.sort_by_key(|placed| placed.site.address());
        self.note_places();
    }

    /// Records the index of each site.
    fn note_places(&mut self) {
        for (place, placed) in self.sites.iter().enumerate().filter(|(_, placed)| !placed.apart) {
            self.places[placed.function] = place as u32 + 1;
        }
    }

    /// Emits the records of the module and its sites.
    pub(crate) fn describe(&self, emit: &mut dyn FnMut(Metadata)) {
        if !self.recorded {
            return;
        }
        emit(Record::Module(self.record.clone()).into());
        let entries = self.sites.iter().filter(|placed| !placed.site.is_exit() && placed.is_traced());
        let stubs = entries.flat_map(|placed| {
            let (function, tracers) = (placed.function as u32, u32::MAX);
            let kind = self
                .binary
                .functions
                .get(placed.function)
                .map_or(SiteKind::None, |_| self.kind(placed.function));
            // A function that was traced before may by now be watched alone.
            placed.stubs.all().filter(|stub| !stub.hook_set.only_watches()).map(move |stub| NewSite {
                function,
                stub: stub.id,
                tracers,
                kind,
                captured: stub.captured.clone(),
            })
        });
        let sites = stubs.collect();
        emit(Metadata::Sites(NewSites { module: self.record.id, binary: Arc::clone(&self.binary), sites }));
    }

    /// Lists the traceable functions, in the order of addresses.
    pub(crate) fn list(&self, library: bool, listed: &mut Vec<Listed>) {
        if self.binary.is_watched_alone() {
            return;
        }
        let mut functions: Vec<(usize, &Function)> = self.traceable().collect();
        functions.sort_by_key(|(_, function)| function.address.0);
        for (index, function) in functions {
            let placed = self.places[index].checked_sub(1).map(|place| &self.sites[place as usize]);
            listed.push(Listed {
                function: function.name.clone(),
                aliases: function.aliases.clone(),
                address: self.bias.apply(function.address).0,
                size: function.size,
                module: self.mapped.name(),
                library,
                known: placed.is_some_and(ProcessSite::is_traced),
                on: placed.is_some_and(ProcessSite::is_on),
                failed: placed.is_some_and(|placed| placed.refused),
            });
        }
    }

    /// Returns the functions that were ever traced, by index, each with whether it is now.
    pub(crate) fn traced(&self) -> impl Iterator<Item = (usize, bool)> {
        let ever = self.sites.iter().filter(|placed| placed.is_traced() && !placed.site.is_exit());
        ever.map(|placed| (placed.function, placed.is_on()))
    }

    /// Returns the names of the functions that are traced now.
    pub(crate) fn names_on(&self) -> impl Iterator<Item = &str> {
        let on = self.traced().filter(|(_, is_on)| *is_on);
        on.filter_map(|(function, _)| Some(&*self.binary.functions.get(function)?.name))
    }

    /// Returns the stubs that sites lead to now.
    pub(crate) fn stubs_on(&self) -> impl Iterator<Item = u32> {
        let on = self.sites.iter().filter(|placed| placed.is_on());
        on.filter_map(|placed| Some(placed.stub_on()?.id))
    }

    /// Returns the stubs of functions whose exits are rewritten.
    pub(crate) fn stubs_at_exits(&self) -> impl Iterator<Item = u32> {
        let exits = self.sites.iter().filter(|placed| placed.site.is_exit());
        exits.flat_map(|placed| placed.stubs.all()).map(|stub| stub.id)
    }

    /// Drops the stubs of these sites with these targets, which the journal does not name.
    pub(crate) fn lose_stubs(&mut self, unjournaled: &HashSet<(Avma, Avma)>) {
        for placed in &mut self.sites {
            let at = placed.site.address();
            let lost = |target: Avma| unjournaled.contains(&(at, target));
            placed.stubs.retain(|stub| !lost(stub.target));
            placed.lead.take_if(|lead| lost(*lead));
            // Without an entry for its original bytes, a call must not become a NOP.
            placed.unjournaled |= lost(Avma(0));
        }
    }

    /// Drops the stubs in a range of veneers that could not be mapped.
    pub(crate) fn lose_veneers(&mut self, start: u64, end: u64) {
        self.veneers.retain(|range| range.address != start);
        for placed in &mut self.sites {
            let lost = |at: &Avma| (start..end).contains(&at.0);
            placed.stubs.retain(|stub| !lost(&stub.target) && !stub.copy.as_ref().is_some_and(lost));
            placed.lead.take_if(|lead| (start..end).contains(&lead.0));
        }
    }

    /// Returns the changes that bring its sites to their desired states.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.sites.iter().filter_map(ProcessSite::change)
    }

    /// Returns where sites are breakpoints while they are switched through one.
    pub(crate) fn breakpoints(&self) -> impl Iterator<Item = u64> {
        self.sites.iter().filter_map(|placed| Some(placed.site.breakpoint()?.0))
    }

    /// Returns the permanent breakpoints with their targets. Includes the disabled ones: a thread
    /// may have executed one before.
    pub(crate) fn traps(&self) -> impl Iterator<Item = (u64, u64)> {
        let traps = self.sites.iter().filter(|placed| placed.site.is_trap());
        traps.filter_map(|placed| Some((placed.site.address().0, placed.leads()?.0)))
    }

    /// Returns the stubs that permanent breakpoints lead to.
    pub(crate) fn trap_stubs(&self) -> impl Iterator<Item = u32> {
        let traps = self.sites.iter().filter(|placed| placed.site.is_trap());
        traps.flat_map(|placed| placed.stubs.all().map(|stub| stub.id))
    }

    /// Counts the permanent breakpoints that are selected.
    pub(crate) fn wanted_traps(&self) -> usize {
        let is_wanted =
            |placed: &&ProcessSite| placed.site.is_trap() && !placed.refused && placed.stub().is_some();
        self.sites.iter().filter(is_wanted).count()
    }

    /// Sets whether the process handles permanent breakpoints; if not, they are disabled.
    pub(crate) fn handle_traps(&mut self, handled: bool) {
        for placed in self.sites.iter_mut().filter(|placed| placed.site.is_trap()) {
            placed.unhandled = !handled;
        }
    }

    /// Returns the sites that were found with another tool's code since the last call.
    pub(crate) fn take_unwritten(&mut self) -> Vec<Avma> {
        std::mem::take(&mut self.unwritten)
    }

    /// Records the results of these [`changes`](ProcessModule::changes): `failure` returns, for
    /// each in turn, why it was not made, or None. Each is reported with its function's name.
    pub(crate) fn settle(
        &mut self,
        mut failure: impl FnMut() -> Option<ChangeError<Errno>>,
        mut report: impl FnMut(&str, Change<'_>, Option<&ChangeError<Errno>>),
    ) {
        let names: Vec<String> =
            match self.sites.iter().any(|placed| placed.function >= self.binary.functions.len()) {
                true => self.sites.iter().map(|placed| self.name(placed)).collect(),
                false => Vec::new(),
            };
        for (n, placed) in self.sites.iter_mut().enumerate() {
            let Some(change) = placed.change() else { continue };
            let (to, failure) = (change.to, failure());
            let name = names.get(n).unwrap_or_else(|| &self.binary.functions[placed.function].name);
            // The user has not selected a function that is only watched.
            let is_broken =
                matches!(failure, Some(ChangeError::PartialWrite(_) | ChangeError::ReadFailed(_)));
            if !placed.only_watches() || is_broken {
                report(name, change, failure.as_ref());
            }
            if matches!((change.from, &failure), (State::Original, Some(ChangeError::Mismatch(_)))) {
                self.unwritten.push(change.site.address());
            }
            placed.settle(to, failure.as_ref());
            // The program may have protected its memory.
            placed.refused |= self.made.is_some()
                && matches!(failure, Some(ChangeError::PartialWrite(_) | ChangeError::ReadFailed(_)));
        }
    }

    /// Returns the stubs of functions that match a set.
    pub(crate) fn stubs_of(&self, set: &GlobSet) -> impl Iterator<Item = u32> {
        let name = self.mapped.name();
        let mapped = self.mapped.clone();
        let is_in_set = move |placed: &&ProcessSite| {
            let Some(function) = self.binary.functions.get(placed.function) else { return false };
            let symbols = function.aliases.iter().chain([&function.name]).map(String::as_str);
            set.has(&FunctionNames::new(symbols, Some(mapped.names(&name))))
        };
        self.sites.iter().filter(is_in_set).flat_map(|placed| placed.stubs.all().map(|stub| stub.id))
    }

    /// Disables sites, or enables them again, by their stubs. Returns the names of those that
    /// changed.
    pub(crate) fn disable(&mut self, stubs: &HashSet<u32>, disabled: bool) -> Vec<(u32, String)> {
        let mut names = Vec::new();
        for placed in &mut self.sites {
            let found = placed.stubs.all().find(|stub| stubs.contains(&stub.id));
            if let Some(stub) = found.filter(|_| placed.disabled != disabled) {
                placed.disabled = disabled;
                names.push((stub.id, self.binary.functions[placed.function].name.clone()));
            }
        }
        names
    }

    /// Whether a site waits for proof that no thread is inside. Sites of functions that are only
    /// watched count if `watched`.
    pub(crate) fn demands_stop(&self, watched: bool) -> bool {
        self.waiting().any(|placed| watched || !placed.only_watches())
    }

    /// Returns the names of the functions that wait for that proof to be traced; if `watched`, to
    /// be watched for nonlocal exits.
    pub(crate) fn waiting_functions(&self, watched: bool) -> BTreeSet<&str> {
        let watches = |placed: &ProcessSite| placed.hook_set.is_some_and(HookSet::watches_exits);
        let is_meant = |placed: &ProcessSite| if watched { watches(placed) } else { !placed.only_watches() };
        let waits = |placed: &&ProcessSite| placed.stub().is_some() && is_meant(placed);
        let functions = self.waiting().filter(waits).map(|placed| self.binary.functions.get(placed.function));
        functions.flatten().map(|function| &*function.name).collect()
    }

    /// Returns the sites that wait for proof that no thread is inside.
    pub(crate) fn undrained(&self) -> impl Iterator<Item = (Site, Pushed)> {
        let is_of_go = |placed: &ProcessSite| {
            let function = self.binary.functions.get(placed.function);
            function.and_then(Function::form).is_some_and(SiteForm::is_of_go)
        };
        self.waiting().map(move |placed| {
            let is_free = self.is_made() || is_of_go(placed);
            (placed.site, if is_free { Pushed::ByAnything } else { Pushed::ByCall })
        })
    }

    fn waiting(&self) -> impl Iterator<Item = &ProcessSite> {
        let meant = |placed: &ProcessSite| placed.hook_set.is_some() || placed.quiet || placed.lead.is_some();
        // Code made at run time is changed only while all threads are stopped: the program may
        // unmap it.
        let stops = |change: Change<'_>| {
            self.is_made() || change.site.demand(change.from, change.to) == Demand::Stopped
        };
        let waiting = move |placed: &&ProcessSite| {
            !placed.refused && (meant(placed) && !placed.drained || placed.change().is_some_and(stops))
        };
        self.sites.iter().filter(waiting)
    }

    /// Holds the sites back for which `inside` is true, and no others.
    pub(crate) fn hold_back(&mut self, inside: &dyn Fn(&Site) -> bool) {
        let mut kept = HashSet::new();
        for placed in &mut self.sites {
            placed.held_back = inside(&placed.site);
            if placed.held_back && placed.site.is_exit() {
                kept.insert(placed.function);
            }
        }
        // An entry is not enabled before the exits of its function.
        for placed in self.sites.iter_mut().filter(|placed| kept.contains(&placed.function)) {
            placed.held_back |= !matches!(placed.state, State::Enabled(_));
        }
    }

    /// Marks the disabled sites as free of threads for which `inside` is false.
    pub(crate) fn drain(&mut self, inside: &dyn Fn(&Site) -> bool) {
        for placed in self.sites.iter_mut().filter(|placed| !placed.drained) {
            placed.drained = placed.state == State::Disabled && !inside(&placed.site);
        }
    }
}
