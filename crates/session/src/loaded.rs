//! A module of a process, and where the sites of its functions lead.

use crate::ahead::Ahead;
use crate::journal::Entry;
use crate::maps::Region;
use crate::modules::Mapped;
use crate::news::{NewSite, NewSites, News};
use crate::stubs::{HopRange, Stubs};
use crate::text::ProcessText;
use calltap_patch::{Avma, Bias, Change, Demand, Fate, Site, State, Wanted, calls_out};
use calltap_sites::{Binary, Function};
use calltap_trace::{Module, Record};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the tracers want of a function: which of them (bit mask by tracer id), and in which form.
pub type Wish = Option<(u32, Wanted)>;

/// A module of a process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where it is.
    pub mapped: Mapped,
    /// As the trace has it.
    pub record: Module,
    /// The record is in the trace: something of the module was chosen.
    pub recorded: bool,
    /// Nobody can be running it yet: it was mapped while the dynamic linker waits for us.
    pub fresh: bool,
    binary: Arc<Binary>,
    bias: Bias,
    /// Those that were wanted at some time, in the order of their addresses.
    sites: Vec<Placed>,
    /// By function: where it is among them, plus one.
    places: Vec<u32>,
    hops: Vec<HopRange>,
}

/// A site that was wanted at some time.
#[derive(Clone, Debug)]
struct Placed {
    /// Index of the function.
    function: usize,
    site: Site,
    /// What its bytes are.
    state: State,
    /// Where batches that were cut short led to: its bytes may also be something on the way there.
    torn: Vec<State>,
    /// Other bytes were found than expected: never touched again.
    refused: bool,
    /// Nobody is inside it, so it may be switched.
    drained: bool,
    /// The stubs it has.
    stubs: Given,
    /// What it shall lead to.
    wanted: Option<Wanted>,
    /// It shall not: it is called too often, or whoever watches has switched it off.
    muted: bool,
    /// If it leads nowhere, it shall be a NOP: what it calls otherwise is for us alone.
    quiet: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stub {
    /// What it is for.
    wanted: Wanted,
    id: u32,
    /// Where the site jumps: the stub or its hop.
    target: Avma,
}

/// The stubs that a site was given, one for whatever was wanted of it at some time. Nearly always that is one.
#[derive(Clone, Default, Debug)]
struct Given {
    first: Option<Stub>,
    more: Vec<Stub>,
}

impl Given {
    fn all(&self) -> impl Iterator<Item = &Stub> {
        self.first.iter().chain(&self.more)
    }

    fn of(&self, wanted: Wanted) -> Option<&Stub> {
        self.all().find(|stub| stub.wanted == wanted)
    }

    fn add(&mut self, stub: Stub) {
        match &mut self.first {
            Some(_) => self.more.push(stub),
            none => *none = Some(stub),
        }
    }

    fn retain(&mut self, keep: impl Fn(&Stub) -> bool) {
        self.first.take_if(|stub| !keep(stub));
        self.more.retain(keep);
    }
}

/// A function that can be traced.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// Linker symbol,
    pub function: String,
    /// and its other names.
    pub aliases: Vec<String>,
    /// Where it is in the process.
    pub address: u64,
    /// Bytes, 0 when unknown.
    pub size: u64,
    /// File name of its module.
    pub module: String,
    /// That is not the program itself.
    pub library: bool,
    /// It was on at some time.
    pub known: bool,
    /// It leads to a stub.
    pub on: bool,
    /// Other bytes were found there than expected: it is never touched again.
    pub failed: bool,
}

impl Placed {
    fn new(function: usize, site: Site) -> Placed {
        let (torn, refused, drained, wanted) = (Vec::new(), false, false, None);
        Placed {
            function,
            site,
            state: State::Original,
            torn,
            refused,
            drained,
            stubs: Given::default(),
            wanted,
            muted: false,
            quiet: false,
        }
    }

    /// What its bytes shall be now.
    fn shall(&self) -> State {
        let stub = self.wanted.filter(|_| !self.muted).and_then(|wanted| self.stubs.of(wanted));
        match (stub, self.state) {
            (None, State::Original) if !self.quiet => State::Original,
            (Some(stub), _) if self.drained => State::On(stub.target),
            (None | Some(_), _) => State::Ready,
        }
    }

    /// The change to that, if it is not so.
    fn change(&self) -> Option<Change<'_>> {
        let (from, to) = (self.state, self.shall());
        let is_needed = !self.refused && (from != to || !self.torn.is_empty());
        is_needed.then_some(Change { site: &self.site, from, to, recover: &self.torn })
    }

    /// A change was made, or why not.
    fn settle(&mut self, to: State, fate: Option<&Fate<Errno>>) {
        match fate {
            None => {
                self.state = to;
                self.torn.clear();
            }
            // It is none: other bytes were there.
            Some(Fate::Surprise(_)) => self.refused = true,
            // It is between its states.
            Some(Fate::Torn(_)) if !self.torn.contains(&to) => self.torn.push(to),
            Some(_) => {}
        }
    }

    /// Finds out what it is now.
    fn look(&mut self, text: &mut Ahead<'_>) {
        let Ok(actual) = text.at(self.site.address(), self.site.len()) else {
            self.refused = true;
            return;
        };
        let targets = || self.stubs.all().map(|stub| State::On(stub.target));
        match self.site.state_of(actual, targets()) {
            Some(state) => self.state = state,
            None => (self.state, self.torn) = (State::Ready, targets().chain([State::Original]).collect()),
        }
        // Whoever switched it on had seen to that; what is as in the file has to be dressed again.
        self.drained &= self.state != State::Original;
        self.drained |= matches!(self.state, State::On(_))
            || self.site.demand(State::Original, State::Ready) == Demand::Nothing;
    }
}

impl Loaded {
    /// A module nothing of which was ever wanted.
    pub fn new(mapped: Mapped, record: Module, binary: Arc<Binary>, bias: Bias, fresh: bool) -> Loaded {
        let (sites, places, hops) = (Vec::new(), vec![0; binary.functions.len()], Vec::new());
        Loaded { mapped, record, recorded: false, fresh, binary, bias, sites, places, hops }
    }

    /// Its functions that can be traced, with their indices.
    fn traceable(&self) -> impl Iterator<Item = (usize, &Function)> {
        self.binary.functions.iter().enumerate().filter(|(_, function)| function.form.is_some())
    }

    /// Calls to the profiling function become NOPs, wanted or not, in code that nobody can be running yet.
    pub fn quieten(&mut self, stubs: &mut Stubs<'_>) {
        if !self.fresh {
            return;
        }
        let binary = Arc::clone(&self.binary);
        for (function, described) in binary.functions.iter().enumerate() {
            let Some(form) = described.form.as_ref().filter(|form| calls_out(form)) else { continue };
            let Some(site) = Site::new(form, self.bias) else { continue };
            let Some(place) = self.place_of(function, |_| Some(site)) else { continue };
            self.sites[place].quiet = true;
            self.sites[place].drained = true;
            let (process, inode) = (self.record.process, self.mapped.file.1);
            stubs.to_note.push(&Entry::Site { process, site, target: Avma(0), stub: None, inode });
        }
        self.put_in_order();
    }

    /// Notes what is wanted, and gives every wanted function a site and a stub. New stubs are described in `records`; the mappings
    /// they need are left with `stubs`.
    pub fn want(
        &mut self,
        wish: &dyn Fn(&Function) -> Wish,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<News>,
    ) {
        let wishes: Vec<(usize, u32, Wanted)> = self
            .traceable()
            .filter_map(|(index, function)| wish(function).map(|(tracers, wanted)| (index, tracers, wanted)))
            .collect();
        for placed in &mut self.sites {
            placed.wanted = None;
        }
        if wishes.is_empty() {
            return;
        }
        if !self.recorded {
            self.recorded = true;
            records.push(Record::Module(self.record.clone()).into());
        }
        let binary = Arc::clone(&self.binary);
        let mut new = Vec::with_capacity(wishes.len());
        self.sites.reserve(wishes.len());
        for (function, tracers, wanted) in wishes {
            let Some(form) = &binary.functions[function].form else { continue };
            let Some(place) = self.place_of(function, |bias| Site::new(form, bias)) else { continue };
            let placed = &mut self.sites[place];
            placed.drained |=
                self.fresh || placed.site.demand(State::Original, State::Ready) == Demand::Nothing;
            placed.wanted = Some(wanted);
            if placed.stubs.of(wanted).is_none() {
                new.push((function, tracers, wanted));
            }
        }
        self.put_in_order();
        self.give_stubs(&new, &binary, stubs, regions, records);
    }

    /// Where the site of a function is among the sites; it is put there if it is not yet.
    fn place_of(&mut self, function: usize, site: impl Fn(Bias) -> Option<Site>) -> Option<usize> {
        if let Some(place) = self.places.get(function)?.checked_sub(1) {
            return Some(place as usize);
        }
        let site = site(self.bias)?;
        self.sites.push(Placed::new(function, site));
        self.places[function] = self.sites.len() as u32;
        Some(self.sites.len() - 1)
    }

    /// Sorts the sites. They come in the order of the file's functions, nearly always that of addresses.
    fn put_in_order(&mut self) {
        if self.sites.is_sorted_by_key(|placed| placed.site.address()) {
            return;
        }
        self.sites.sort_by_key(|placed| placed.site.address());
        for (place, placed) in self.sites.iter().enumerate() {
            self.places[placed.function] = place as u32 + 1;
        }
    }

    /// Gives the sites of functions stubs.
    fn give_stubs(
        &mut self,
        new: &[(usize, u32, Wanted)],
        binary: &Arc<Binary>,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<News>,
    ) {
        let name = self.mapped.name();
        let room = stubs.room();
        if new.len() > room {
            let text = format!(
                "only the first {room} of {} functions of {name} are traced: the stub region is full",
                new.len()
            );
            records.push(Record::Note { text }.into());
        }
        let new = &new[..new.len().min(room)];
        if new.is_empty() {
            return;
        }
        let range = self.mapped.range;
        let process = self.record.process;
        let inode = self.mapped.file.1;
        let mut batch = match stubs.begin(process, range, new.len(), regions, &mut self.hops) {
            Ok(batch) => batch,
            Err(length) => {
                let text = format!("{name} is not traced: no free address range of {length} bytes near it");
                records.push(Record::Note { text }.into());
                return;
            }
        };
        let mut sites = Vec::with_capacity(new.len());
        for (function, tracers, wanted) in new {
            let placed = &mut self.sites[self.places[*function] as usize - 1];
            let Some(form) = &binary.functions[*function].form else { continue };
            let Some((id, target)) = batch.add(form, self.bias, *wanted) else { continue };
            placed.stubs.add(Stub { wanted: *wanted, id, target });
            let (site, stub) = (placed.site, Some((id, *wanted)));
            batch.note(&Entry::Site { process, site, target, stub, inode });
            sites.push(NewSite { function: *function as u32, stub: id, tracers: *tracers });
        }
        if let Err(error) = batch.finish() {
            records.push(Record::Note { text: format!("{name} is not traced: {error}") }.into());
            return;
        }
        let (module, binary) = (self.record.id, Arc::clone(binary));
        records.push(News::Sites(NewSites { module, binary, sites }));
    }

    /// Finds out which of its sites have stubs, and what they are now, from what [stands](journal::standing) in the journal and from the text.
    pub fn recall(&mut self, entries: &[&Entry], text: &mut ProcessText) {
        let functions: HashMap<Avma, usize> = self
            .traceable()
            .filter_map(|(index, function)| {
                Some((Site::new(function.form.as_ref()?, self.bias)?.address(), index))
            })
            .collect();
        let drained = entries.iter().rposition(|entry| matches!(entry, Entry::Drained { .. }));
        for (n, entry) in entries.iter().enumerate() {
            let Entry::Site { site, target, stub: Some((id, wanted)), inode, .. } = entry else { continue };
            if *inode != self.mapped.file.1 {
                continue;
            }
            let Some(function) = functions.get(&site.address()) else { continue };
            let Some(place) = self.place_of(*function, |_| Some(*site)) else { continue };
            let placed = &mut self.sites[place];
            placed.stubs.add(Stub { wanted: *wanted, id: *id, target: *target });
            placed.drained |= drained.is_some_and(|drained| n < drained);
        }
        self.recorded = !self.sites.is_empty();
        self.put_in_order();
        let mut text = Ahead::new(text);
        for placed in &mut self.sites {
            placed.look(&mut text);
        }
    }

    /// Describes the module and its sites.
    pub fn describe(&self, emit: &mut dyn FnMut(News)) {
        if !self.recorded {
            return;
        }
        emit(Record::Module(self.record.clone()).into());
        let stubs = self.sites.iter().flat_map(|placed| {
            let (function, tracers) = (placed.function as u32, u32::MAX);
            placed.stubs.all().map(move |stub| NewSite { function, stub: stub.id, tracers })
        });
        let sites = stubs.collect();
        emit(News::Sites(NewSites { module: self.record.id, binary: Arc::clone(&self.binary), sites }));
    }

    /// Its functions that can be traced, in the order of their addresses.
    pub fn list(&self, library: bool, listed: &mut Vec<Listed>) {
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
                known: placed.is_some(),
                on: placed.is_some_and(|placed| matches!(placed.state, State::On(_))),
                failed: placed.is_some_and(|placed| placed.refused),
            });
        }
    }

    /// Sites that lead to a stub, and all that ever did.
    pub fn count(&self) -> (usize, usize) {
        let on = self.sites.iter().filter(|placed| matches!(placed.state, State::On(_)));
        (on.count(), self.sites.len())
    }

    /// A range of hops could not be mapped: no site may lead there.
    pub fn lose_hops(&mut self, start: u64, end: u64) {
        self.hops.retain(|range| range.address != start);
        for placed in &mut self.sites {
            placed.stubs.retain(|stub| !(start..end).contains(&stub.target.0));
        }
    }

    /// What has to be done for its sites to be what they shall be now.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.sites.iter().filter_map(Placed::change)
    }

    /// Notes what became of these [`changes`](Loaded::changes): `fate` says of each in turn why it was not made, if it was not. Each is reported with the
    /// function's name.
    pub fn settle(
        &mut self,
        mut fate: impl FnMut() -> Option<Fate<Errno>>,
        mut report: impl FnMut(&str, Change<'_>, Option<&Fate<Errno>>),
    ) {
        for placed in &mut self.sites {
            let Some(change) = placed.change() else { continue };
            let (to, fate) = (change.to, fate());
            report(&self.binary.functions[placed.function].name, change, fate.as_ref());
            placed.settle(to, fate.as_ref());
        }
    }

    /// Has sites stay off, or no longer, by their stubs. The names of those for which that is new.
    pub fn mute(&mut self, stubs: &HashSet<u32>, muted: bool) -> Vec<(u32, String)> {
        let mut names = Vec::new();
        for placed in &mut self.sites {
            let found = placed.stubs.all().find(|stub| stubs.contains(&stub.id));
            if let Some(stub) = found.filter(|_| placed.muted != muted) {
                placed.muted = muted;
                names.push((stub.id, self.binary.functions[placed.function].name.clone()));
            }
        }
        names
    }

    /// The sites that wait for proof that nobody is inside.
    pub fn undrained(&self) -> impl Iterator<Item = &Site> {
        let waiting = |placed: &&Placed| placed.wanted.is_some() && !placed.drained && !placed.refused;
        self.sites.iter().filter(waiting).map(|placed| &placed.site)
    }

    /// Nobody is inside those for which `inside` is false.
    pub fn drain(&mut self, inside: &dyn Fn(&Site) -> bool) {
        for placed in self.sites.iter_mut().filter(|placed| !placed.drained) {
            placed.drained = placed.state == State::Ready && !inside(&placed.site);
        }
    }
}
