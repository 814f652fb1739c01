//! Requests of the tracers for a module's functions: creates the sites and stubs.

use super::ProcessModule;
use super::process_site::{ProcessSite, Stub};
use crate::plan::journal::Entry;
use crate::plan::reason::NoStubs;
use crate::plan::stubs::{Added, Batch, BatchRoom, Displaced, Stubs};
use calltap_collect::metadata::{Metadata, NewSite, NewSites};
use calltap_patch::{Demand, HookSet, Site, State};
use calltap_process::memory::maps::Region;
use calltap_selection::SiteRequest;
use calltap_sites::{Binary, Function};
use calltap_trace::{Captured, Record};
use std::io;
use std::sync::Arc;

/// A function that needs a stub.
struct NewStub {
    function: usize,
    tracers: u32,
    hook_set: HookSet,
    captured: Option<Arc<Captured>>,
}

/// Results of a batch of stubs.
#[derive(Default)]
struct StubResults {
    sites: Vec<NewSite>,
    /// Exits of functions: function, site, and stub.
    exits: Vec<(usize, Site, Stub)>,
    /// Number of functions whose displaced instructions refer to addresses out of reach.
    unreached: usize,
}

impl ProcessModule {
    /// Evaluates the requests for functions of this name.
    pub(crate) fn ask_about(&self, name: &str, site_request: &dyn Fn(&Function) -> Option<SiteRequest>) {
        let named = self.traceable().filter(|(_, function)| function.name == name);
        named.for_each(|(_, function)| drop(site_request(function)));
    }

    /// Records the requests, and gives every requested function a site and a stub. New stubs are
    /// described in `records`; the mappings that they need are left with `stubs`.
    pub(crate) fn want(
        &mut self,
        site_request: &dyn Fn(&Function) -> Option<SiteRequest>,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<Metadata>,
    ) {
        let site_requests: Vec<(usize, SiteRequest)> =
            self.traceable().filter_map(|(index, function)| Some((index, site_request(function)?))).collect();
        for placed in &mut self.sites {
            placed.hook_set = None;
        }
        if site_requests.is_empty() {
            return;
        }
        let is_traced = |(_, site_request): &(usize, SiteRequest)| !site_request.hook_set.only_watches();
        if !self.recorded && site_requests.iter().any(is_traced) {
            self.recorded = true;
            self.record.id = stubs.number_module();
            records.push(Record::Module(self.record.clone()).into());
        }
        let binary = Arc::clone(&self.binary);
        let mut new = Vec::with_capacity(site_requests.len());
        self.sites.reserve(site_requests.len());
        for (function, SiteRequest { tracers, mut hook_set, program, .. }) in site_requests {
            let captured = program.as_ref().map(|program| Arc::clone(&program.captured));
            stubs.names_callers |= hook_set.names_callers();
            if let Some(program) = program {
                stubs.unwinds |= program.captured.unwinds();
                hook_set = hook_set.reading(stubs.number_program(&program.words_at(self.bias.0), records));
            }
            let found = self.found.get(&function).map(|(_, form)| form.clone());
            let Some(form) = found.as_ref().or(binary.functions[function].form()) else { continue };
            let Some(place) = self.place_of(function, |bias| Site::new(form, bias)) else { continue };
            let placed = &mut self.sites[place];
            placed.drained |=
                self.fresh || placed.site.demand(State::Original, State::Disabled) == Demand::Nothing;
            placed.hook_set = Some(hook_set);
            match placed.stubs.of_mut(hook_set) {
                Some(stub) => stub.captured = captured,
                None => new.push(NewStub { function, tracers, hook_set, captured }),
            }
        }
        self.put_in_order();
        self.create_stubs(&new, &binary, stubs, regions, records);
        self.copy_requests_to_exits();
    }

    /// Creates stubs for the sites of functions.
    fn create_stubs(
        &mut self,
        new: &[NewStub],
        binary: &Arc<Binary>,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<Metadata>,
    ) {
        let mut note = |text| records.push(Record::Note { text }.into());
        let name = self.mapped.name();
        let room = stubs.room();
        if new.len() > room {
            note(format!(
                "only the first {room} of {} functions of {name} are traced: the stub region is full",
                new.len()
            ));
        }
        let new = &new[..new.len().min(room)];
        if new.is_empty() {
            return;
        }
        let mut all = StubResults { sites: Vec::with_capacity(new.len()), ..StubResults::default() };
        for (new, room) in self.batches(new, binary) {
            let (mut made, count) =
                (self.create_batch((new, &room), binary, stubs, regions, &mut all), new.len());
            if room.is_windowed()
                && let Err(why) = &made
            {
                note(format!("of {count} functions of {name} only entries are recorded: {why}"));
                let new = self.without_returns(new);
                let batches = self.batches(&new, binary);
                let mut give =
                    |(new, room)| self.create_batch((new, &room), binary, stubs, regions, &mut all);
                made = batches
                    .into_iter()
                    .try_for_each(|(new, room): (&[NewStub], BatchRoom)| give((new, room)));
            }
            if let Err(why) = made {
                note(format!("{count} functions of {name} are not traced: {why}"));
            }
        }
        self.add_exits(all.exits);
        if all.unreached > 0 {
            note(format!(
                "{} functions of {name} are not traced: no free memory within 2 GB of the code and data that their prologues address",
                all.unreached
            ));
        }
        if self.recorded {
            let (module, binary) = (self.record.id, Arc::clone(binary));
            records.push(Metadata::Sites(NewSites { module, binary, sites: all.sites }));
        }
    }

    /// Creates the stubs of a batch of functions, or returns why not.
    fn create_batch(
        &mut self,
        (new, room): (&[NewStub], &BatchRoom),
        binary: &Binary,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        all: &mut StubResults,
    ) -> Result<(), NoStubs> {
        let (process, range) = (self.record.process, self.mapped.range);
        // The veneers are taken out meanwhile: the batch borrows them while the module takes the
        // stubs.
        let mut veneers = std::mem::take(&mut self.veneers);
        let made = stubs
            .begin(process, range, room, regions, &mut veneers)
            .map_err(|length| NoStubs::NoRange { length })
            .and_then(|batch| self.make_stubs(new, binary, batch, all).map_err(NoStubs::from));
        self.veneers = veneers;
        made
    }

    /// Requests only entries of Go functions whose exits lead to addresses without free memory.
    /// Returns the functions of the batch that have no stub for entries alone.
    fn without_returns(&mut self, new: &[NewStub]) -> Vec<NewStub> {
        let mut without = Vec::with_capacity(new.len());
        for NewStub { function, tracers, hook_set, captured } in new {
            let hook_set = match hook_set.knows_goroutine() {
                true => hook_set.on_goroutine(false),
                false => *hook_set,
            };
            let placed = &mut self.sites[self.places[*function] as usize - 1];
            placed.hook_set = Some(hook_set);
            if placed.stubs.of(hook_set).is_none() {
                let (function, tracers, captured) = (*function, *tracers, captured.clone());
                without.push(NewStub { function, tracers, hook_set, captured });
            }
        }
        without
    }

    /// Divides functions into batches that fit, with the space that each needs.
    fn batches<'n>(&self, new: &'n [NewStub], binary: &Binary) -> Vec<(&'n [NewStub], BatchRoom)> {
        let (mut batches, mut room, mut start) = (Vec::new(), BatchRoom::default(), 0);
        for (n, NewStub { function, hook_set, .. }) in new.iter().enumerate() {
            let Some(form) = self.form(*function) else { continue };
            let displaced = Displaced::new(form, &binary.functions[*function].returns, *hook_set);
            if !room.add(&displaced, self.bias, hook_set.only_watches()) {
                batches.push((&new[start..n], std::mem::take(&mut room)));
                (start, _) = (n, room.add(&displaced, self.bias, hook_set.only_watches()));
            }
        }
        batches.push((&new[start..], room));
        batches
    }

    /// Creates the stubs of a batch, and records in the journal which site each belongs to.
    fn make_stubs(
        &mut self,
        new: &[NewStub],
        binary: &Binary,
        mut batch: Batch<'_, '_>,
        all: &mut StubResults,
    ) -> io::Result<()> {
        let process = self.record.process;
        let (inode, base) = (self.mapped.file.1, self.mapped.base());
        let mut made = StubResults { sites: Vec::with_capacity(new.len()), ..StubResults::default() };
        for NewStub { function, tracers, hook_set, captured } in new {
            let known = &binary.functions[*function];
            let found = self.found.get(function);
            let kind = found.map_or(known.kind(), |(kind, _)| *kind);
            let Some(form) = found.map(|(_, form)| form).or(known.form()) else { continue };
            let placed = &mut self.sites[self.places[*function] as usize - 1];
            let Some(added) = batch.add(form, &known.returns, self.bias, *hook_set) else {
                made.unreached += 1;
                continue;
            };
            let (captured, Added { id, target, copy, exits: left }) = (captured.clone(), added);
            placed.stubs.add(Stub { hook_set: *hook_set, id, target, copy, captured: captured.clone() });
            let (site, stub) = (placed.site, Some((id, *hook_set)));
            batch.note(&Entry::Site { process, site, target, copy, stub, inode, base });
            for (site, target) in left {
                batch.note(&Entry::Site { process, site, target, copy: None, stub, inode, base });
                let stub = Stub { hook_set: *hook_set, id, target, copy: None, captured: None };
                made.exits.push((*function, site, stub));
            }
            if hook_set.only_watches() {
                continue;
            }
            made.sites.push(NewSite {
                function: *function as u32,
                stub: id,
                tracers: *tracers,
                kind,
                captured,
            });
        }
        batch.finish()?;
        all.sites.append(&mut made.sites);
        all.exits.append(&mut made.exits);
        all.unreached += made.unreached;
        Ok(())
    }

    /// Adds sites of functions' exits with their stubs.
    pub(super) fn add_exits(&mut self, mut exits: Vec<(usize, Site, Stub)>) {
        exits.sort_by_key(|(_, site, _)| site.address());
        let (known, mut new) = (&mut self.sites, Vec::<ProcessSite>::new());
        for (function, site, stub) in exits {
            let place = known.binary_search_by_key(&site.address(), |placed| placed.site.address());
            let again = new.last_mut().filter(|last| last.site.address() == site.address());
            if let Some(placed) = place.ok().map(|place| &mut known[place]).or(again) {
                placed.stubs.add(stub);
                continue;
            }
            let drained = site.demand(State::Original, State::Disabled) == Demand::Nothing;
            let mut placed = ProcessSite { apart: true, drained, ..ProcessSite::new(function, site) };
            placed.stubs.add(stub);
            new.push(placed);
        }
        self.sites.extend(new);
        self.put_in_order();
    }

    /// Copies the requests for functions to their exits.
    fn copy_requests_to_exits(&mut self) {
        for n in 0..self.sites.len() {
            if self.sites[n].site.is_exit() {
                let owner =
                    self.places[self.sites[n].function].checked_sub(1).map(|n| &self.sites[n as usize]);
                let (hook_set, disabled) =
                    owner.map_or((None, false), |owner| (owner.hook_set, owner.disabled));
                self.sites[n].hook_set = hook_set.filter(|hook_set| hook_set.returns());
                self.sites[n].disabled = disabled;
            }
        }
    }
}
