//! A module of a process, and where the sites of its functions lead.

mod placed;

use crate::ahead::Ahead;
use crate::journal::Entry;
use crate::maps::Region;
use crate::modules::Mapped;
use crate::news::{NewSite, NewSites, News};
use crate::stubs::{Added, Displaced, HopRange, Stubs};
use crate::text::ProcessText;
use calltap_patch::{Avma, Bias, Change, Demand, Fate, Site, State, Text, Wanted, calls_out};
use calltap_sites::types::Types;
use calltap_sites::{Binary, Function, Hook, Returns, SiteForm, SiteKind, Svma};
use calltap_trace::{Captured, Module, Record};
use calltap_values::{Program, Trouble};
use placed::{Placed, Stub};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The number of a call after a prologue among the [parts](Site::parts) of a site.
const CALL: u8 = 1;

/// What the tracers want of a function.
pub struct Wish {
    /// Which of them: bit mask by tracer id.
    pub tracers: u32,
    /// In which form.
    pub wanted: Wanted,
    /// What is to be read of its calls besides.
    pub program: Option<Arc<Program>>,
    /// Why that cannot be.
    pub trouble: Option<Trouble>,
    /// There is more that they want and cannot have: only its entry can be traced.
    pub cut: bool,
}

/// Reads the debugging information of a function's file, if there is any.
pub type Typed<'t> = &'t dyn Fn() -> Option<Arc<Types>>;

/// A function that shall have a stub.
struct New {
    function: usize,
    tracers: u32,
    wanted: Wanted,
    captured: Option<Arc<Captured>>,
}

/// A module of a process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where it is.
    pub mapped: Mapped,
    /// As the trace has it; it has a number there when something of it was chosen.
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
    /// Calls of the profiling function that were found when they were made, by function.
    found: HashMap<usize, (SiteKind, SiteForm)>,
    /// The profiling functions that it defines lead to the recorder, as far as that can be.
    led: bool,
    /// It is in no file, but was made at run time: by address, the functions that are known of it.
    made: Option<HashMap<u64, usize>>,
}

/// A call of the profiling function that was found when it was made.
pub struct Call {
    /// Index of the function.
    pub function: usize,
    /// Where it is,
    pub at: Avma,
    /// and its bytes.
    pub old: Vec<u8>,
    /// How its function can be patched, if it can.
    pub form: Option<(SiteKind, SiteForm)>,
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

impl Loaded {
    /// A module nothing of which was ever wanted.
    pub fn new(mapped: Mapped, record: Module, binary: Arc<Binary>, bias: Bias, fresh: bool) -> Loaded {
        let (sites, places, hops) = (Vec::new(), vec![0; binary.functions.len()], Vec::new());
        let (recorded, found, led, made) = (false, HashMap::new(), false, None);
        Loaded { mapped, record, recorded, fresh, binary, bias, sites, places, hops, found, led, made }
    }

    /// Code that is in no file. Its functions become known one by one.
    pub fn made(mapped: Mapped, record: Module) -> Loaded {
        let made = Some(HashMap::new());
        Loaded { made, ..Loaded::new(mapped, record, Arc::default(), Bias(0), false) }
    }

    /// The same in a child that was forked: what is left of its hops is the parent's.
    pub fn inherited(&self) -> Loaded {
        Loaded { hops: Vec::new(), ..self.clone() }
    }

    /// More of its functions are known to be traceable.
    pub fn know_more(&mut self, binary: Arc<Binary>) {
        if binary.functions.len() == self.binary.functions.len() {
            self.binary = binary;
        }
    }

    /// Is it code that is in no file?
    pub fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// Is it still there? `now`: the files that are mapped. What was made at run time is forgotten as far as it is gone.
    pub fn is_there(&mut self, now: &[Mapped], regions: &[Region]) -> bool {
        if !self.is_made() {
            return now.iter().any(|now| now.is_same(&self.mapped));
        }
        let is_there = |site: &Site| {
            let (start, end) = (site.address().0, site.address().0 + site.len() as u64);
            regions.iter().any(|region| region.executable && region.start <= start && end <= region.end)
        };
        self.forget(|placed| !is_there(&placed.site));
        let (start, end) = self.mapped.range;
        regions.iter().any(|region| region.executable && region.start < end && start < region.end)
    }

    /// How a function can be patched.
    fn form(&self, function: usize) -> Option<&SiteForm> {
        let known = || self.binary.functions.get(function)?.form.as_ref();
        self.found.get(&function).map(|(_, form)| form).or_else(known)
    }

    /// What the compiler left at it.
    fn kind(&self, function: usize) -> SiteKind {
        self.found.get(&function).map_or(self.binary.functions[function].kind, |(kind, _)| *kind)
    }

    /// Its functions that can be traced, with their indices.
    fn traceable(&self) -> impl Iterator<Item = (usize, &Function)> {
        let is_traceable = |(index, function): &(usize, &Function)| {
            function.form.is_some() || self.found.contains_key(index)
        };
        self.binary.functions.iter().enumerate().filter(is_traceable)
    }

    /// The profiling functions that it defines: each by all addresses that a call may name.
    pub fn profilers(&self) -> impl Iterator<Item = (u64, Hook)> {
        self.binary.profilers.iter().flat_map(|profiler| {
            let place = profiler.place.as_ref().map_or(profiler.address, |(at, _)| *at);
            [profiler.address, place].map(|at| (self.bias.apply(at).0, profiler.hook))
        })
    }

    /// Leads the profiling functions that it defines to the recorder, and keeps room near it for the calls that will be found.
    pub fn lead(&mut self, hook: Avma, stubs: &mut Stubs<'_>, regions: &[Region], records: &mut Vec<News>) {
        if hook.0 == 0 || self.is_made() || std::mem::replace(&mut self.led, true) {
            return;
        }
        let (process, range) = (self.record.process, self.mapped.range);
        let binary = Arc::clone(&self.binary);
        // (What only defines them for others has few functions.)
        let most = binary.functions.len().min(stubs.room());
        // (Without room in advance, it is found when it is needed, or not.)
        let _ = stubs.reserve(process, range, most, regions, &mut self.hops);
        for profiler in &binary.profilers {
            let function =
                binary.functions.binary_search_by_key(&profiler.address, |function| function.address);
            let mut note = |why: &str| {
                let name = self.mapped.name();
                let text = format!("calls of {} in {name} are not recorded: {why}", profiler.name);
                records.push(Record::Note { text }.into());
            };
            let (at, bytes) = match &profiler.place {
                Ok(place) => *place,
                Err(why) => {
                    note(why);
                    continue;
                }
            };
            let (Ok(function), Some(site)) = (function, Site::function(self.bias.apply(at), bytes)) else {
                continue;
            };
            let Some(target) = stubs.lead(process, range, [site.address(), hook], regions, &mut self.hops)
            else {
                note("there is no free address range near it");
                continue;
            };
            self.note_site(site, target, stubs);
            let (lead, drained, apart) = (Some(target), self.fresh, true);
            self.sites.push(Placed { lead, drained, apart, ..Placed::new(function, site) });
        }
        self.put_in_order();
    }

    /// The function that an address is in, as far as it is known.
    pub fn function_at(&self, at: u64) -> Option<(usize, Svma, Svma)> {
        let address = Svma(at.wrapping_sub(self.bias.0));
        let functions = &self.binary.functions;
        let index = functions.partition_point(|function| function.address <= address).checked_sub(1)?;
        let function = &functions[index];
        let is_inside = function.size == 0 || address.0 < function.address.0 + function.size;
        is_inside.then_some((index, function.address, address))
    }

    /// The function of code made at run time that begins there.
    pub fn made_at(&mut self, start: u64) -> usize {
        let functions = self.made.get_or_insert_default();
        *functions.entry(start).or_insert_with(|| {
            let (kind, form, reason) = (SiteKind::None, None, String::new());
            let (name, aliases) = (format!("{start:#x}"), Vec::new());
            let (address, on_demand, poll) = (Svma(start), false, None);
            let returns = Returns::default();
            let function =
                Function { name, aliases, address, size: 0, kind, form, returns, reason, on_demand, poll };
            Arc::make_mut(&mut self.binary).functions.push(function);
            self.places.push(0);
            self.places.len() - 1
        })
    }

    /// Is a site known at an address, and as it was left?
    pub fn is_known(&self, at: Avma, text: &mut ProcessText) -> bool {
        let Ok(place) = self.sites.binary_search_by_key(&at, |placed| placed.site.address()) else {
            return false;
        };
        let placed = &self.sites[place];
        let mut bytes = vec![0; placed.site.len()];
        text.read(at, &mut bytes).is_ok() && placed.site.is(placed.state, &bytes)
    }

    /// Calls were found when they were made, in the order of their addresses: they become NOPs, or what is wanted of their functions, if those have a form.
    pub fn add(&mut self, calls: Vec<Call>, stubs: &mut Stubs<'_>) {
        let functions: HashSet<usize> = calls.iter().map(|call| call.function).collect();
        let made = self.is_made();
        // What was at these places, and in code made anew what was in these functions, is not there any more.
        self.forget(|placed| {
            calls.binary_search_by_key(&placed.site.address(), |call| call.at).is_ok()
                || made && functions.contains(&placed.function) && !placed.apart
        });
        for Call { function, at, old, form } in calls {
            let own = self.places.get(function) == Some(&0);
            let (site, apart) = match form {
                Some((kind, form)) if own => {
                    let site = Site::new(&form, self.bias);
                    self.found.insert(function, (kind, form));
                    (site, false)
                }
                // Only a NOP will be made of it.
                _ => (Site::from_parts(at, CALL, &old), true),
            };
            let Some(site) = site else { continue };
            let drained = site.demand(State::Original, State::Ready) == Demand::Nothing;
            self.note_site(site, Avma(0), stubs);
            self.sites.push(Placed {
                quiet: true,
                drained,
                apart,
                seen: true,
                ..Placed::new(function, site)
            });
            if !apart {
                self.places[function] = self.sites.len() as u32;
            }
        }
        self.put_in_order();
    }

    /// Forgets sites.
    fn forget(&mut self, gone: impl Fn(&Placed) -> bool) {
        if !self.sites.iter().any(&gone) {
            return;
        }
        for placed in self.sites.iter().filter(|placed| gone(placed) && !placed.apart) {
            self.found.remove(&placed.function);
            self.places[placed.function] = 0;
        }
        self.sites.retain(|placed| !gone(placed));
        self.note_places();
    }

    /// Calls that were found when they were made, and are calls no more.
    pub fn converted(&self) -> usize {
        self.sites.iter().filter(|placed| placed.seen && placed.state != State::Original).count()
    }

    /// What is found of those to be other bytes than expected, and is in no list of functions.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.sites.iter().filter(|placed| placed.seen && placed.apart && placed.refused);
        failed.map(|placed| format!("{:#x} [{}]", placed.site.address().0, self.mapped.name()))
    }

    /// A site's function, for people.
    fn name(&self, placed: &Placed) -> String {
        let named = self.binary.functions.get(placed.function);
        named.map_or_else(|| format!("{:#x}", placed.site.address().0), |function| function.name.clone())
    }

    /// Has a site written down that has no stub, and what it leads to, if to anything.
    fn note_site(&self, site: Site, target: Avma, stubs: &mut Stubs<'_>) {
        let (process, inode) = (self.record.process, self.mapped.file.1);
        stubs.to_note.push(&Entry::Site { process, site, target, copy: None, stub: None, inode });
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
            self.note_site(site, Avma(0), stubs);
        }
        self.put_in_order();
    }

    /// Notes what is wanted, and gives every wanted function a site and a stub. New stubs are described in `records`; the mappings
    /// they need are left with `stubs`.
    pub fn want(
        &mut self,
        wish: &dyn Fn(&Function) -> Option<Wish>,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<News>,
    ) {
        let wishes: Vec<(usize, Wish)> =
            self.traceable().filter_map(|(index, function)| Some((index, wish(function)?))).collect();
        for placed in &mut self.sites {
            placed.wanted = None;
        }
        if wishes.is_empty() {
            return;
        }
        if !self.recorded {
            self.recorded = true;
            self.record.id = stubs.number_module();
            records.push(Record::Module(self.record.clone()).into());
        }
        let binary = Arc::clone(&self.binary);
        let mut new = Vec::with_capacity(wishes.len());
        self.sites.reserve(wishes.len());
        for (function, Wish { tracers, mut wanted, program, .. }) in wishes {
            let captured = program.as_ref().map(|program| Arc::clone(&program.captured));
            if let Some(program) = program {
                wanted = wanted.reading(stubs.number_program(&program.words, records));
            }
            let found = self.found.get(&function).map(|(_, form)| form.clone());
            let Some(form) = found.as_ref().or(binary.functions[function].form.as_ref()) else { continue };
            let Some(place) = self.place_of(function, |bias| Site::new(form, bias)) else { continue };
            let placed = &mut self.sites[place];
            placed.drained |=
                self.fresh || placed.site.demand(State::Original, State::Ready) == Demand::Nothing;
            placed.wanted = Some(wanted);
            match placed.stubs.of_mut(wanted) {
                Some(stub) => stub.captured = captured,
                None => new.push(New { function, tracers, wanted, captured }),
            }
        }
        self.put_in_order();
        self.give_stubs(&new, &binary, stubs, regions, records);
        self.share_wishes();
    }

    /// Finds out what is read of calls through stubs that somebody else has made, as far as it is what is wanted now.
    pub fn recall_values(&mut self, wish: &dyn Fn(&Function) -> Option<Wish>, stubs: &mut Stubs<'_>) {
        let binary = Arc::clone(&self.binary);
        for placed in &mut self.sites {
            let reads = placed.stubs.all().any(|stub| stub.wanted.program() != 0);
            let function = binary.functions.get(placed.function).filter(|_| reads && !placed.apart);
            let Some(Wish { wanted, program: Some(program), .. }) = function.and_then(wish) else { continue };
            let wanted = wanted.reading(stubs.number_program(&program.words, &mut Vec::new()));
            if let Some(stub) = placed.stubs.of_mut(wanted) {
                stub.captured = Some(Arc::clone(&program.captured));
            }
        }
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
        self.note_places();
    }

    /// Notes which site is at which place.
    fn note_places(&mut self) {
        for (place, placed) in self.sites.iter().enumerate().filter(|(_, placed)| !placed.apart) {
            self.places[placed.function] = place as u32 + 1;
        }
    }

    /// Gives the sites of functions stubs.
    fn give_stubs(
        &mut self,
        new: &[New],
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
        let copies = new.iter().map(|new| {
            let returns = &binary.functions[new.function].returns;
            self.form(new.function).map_or(0, |form| Displaced::new(form, returns, new.wanted).room())
        });
        let room = (new.len(), copies.sum());
        let mut batch = match stubs.begin(process, range, room, regions, &mut self.hops) {
            Ok(batch) => batch,
            Err(length) => {
                let text = format!("{name} is not traced: no free address range of {length} bytes near it");
                records.push(Record::Note { text }.into());
                return;
            }
        };
        let (mut sites, mut unreached, mut exits) = (Vec::with_capacity(new.len()), 0, Vec::new());
        for New { function, tracers, wanted, captured } in new {
            let known = &binary.functions[*function];
            let found = self.found.get(function);
            let kind = found.map_or(known.kind, |(kind, _)| *kind);
            let Some(form) = found.map(|(_, form)| form).or(known.form.as_ref()) else { continue };
            let placed = &mut self.sites[self.places[*function] as usize - 1];
            let Some(added) = batch.add(form, &known.returns, self.bias, *wanted) else {
                unreached += 1;
                continue;
            };
            let (captured, Added { id, target, copy, exits: left }) = (captured.clone(), added);
            placed.stubs.add(Stub { wanted: *wanted, id, target, copy, captured: captured.clone() });
            let (site, stub) = (placed.site, Some((id, *wanted)));
            batch.note(&Entry::Site { process, site, target, copy, stub, inode });
            for (site, target) in left {
                batch.note(&Entry::Site { process, site, target, copy: None, stub, inode });
                let stub = Stub { wanted: *wanted, id, target, copy: None, captured: None };
                exits.push((*function, site, stub));
            }
            sites.push(NewSite { function: *function as u32, stub: id, tracers: *tracers, kind, captured });
        }
        if let Err(error) = batch.finish() {
            records.push(Record::Note { text: format!("{name} is not traced: {error}") }.into());
            return;
        }
        self.add_exits(exits);
        if unreached > 0 {
            let text =
                format!("{unreached} functions of {name} are not traced: what they refer to is out of reach");
            records.push(Record::Note { text }.into());
        }
        let (module, binary) = (self.record.id, Arc::clone(binary));
        records.push(News::Sites(NewSites { module, binary, sites }));
    }

    /// Exits of functions have something to lead to.
    fn add_exits(&mut self, mut exits: Vec<(usize, Site, Stub)>) {
        exits.sort_by_key(|(_, site, _)| site.address());
        let (known, mut new) = (&mut self.sites, Vec::<Placed>::new());
        for (function, site, stub) in exits {
            let place = known.binary_search_by_key(&site.address(), |placed| placed.site.address());
            let again = new.last_mut().filter(|last| last.site.address() == site.address());
            if let Some(placed) = place.ok().map(|place| &mut known[place]).or(again) {
                placed.stubs.add(stub);
                continue;
            }
            let drained = site.demand(State::Original, State::Ready) == Demand::Nothing;
            let mut placed = Placed { apart: true, drained, ..Placed::new(function, site) };
            placed.stubs.add(stub);
            new.push(placed);
        }
        self.sites.extend(new);
        self.put_in_order();
    }

    /// What is wanted of functions holds for their exits.
    fn share_wishes(&mut self) {
        for n in 0..self.sites.len() {
            if self.sites[n].site.is_exit() {
                let owner =
                    self.places[self.sites[n].function].checked_sub(1).map(|n| &self.sites[n as usize]);
                let (wanted, muted) = owner.map_or((None, false), |owner| (owner.wanted, owner.muted));
                self.sites[n].wanted = wanted.filter(|wanted| wanted.returns());
                self.sites[n].muted = muted;
            }
        }
    }

    /// Finds out which of its sites have stubs, and what they are now, from what [stands](journal::standing) in the journal and from the text.
    pub fn recall(&mut self, entries: &[&Entry], text: &mut ProcessText) {
        let functions: HashMap<Avma, usize> = self
            .traceable()
            .filter_map(|(index, _)| Some((Site::new(self.form(index)?, self.bias)?.address(), index)))
            .collect();
        let drained = entries.iter().rposition(|entry| matches!(entry, Entry::Drained { .. }));
        let inode = self.mapped.file.1;
        let (mut owners, mut exits) = (HashMap::new(), Vec::new());
        for (n, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.file() == Some(inode)) {
            let Entry::Site { site, target, copy, stub, .. } = entry else { continue };
            let Some((id, wanted)) = stub else {
                self.recall_lead(site, *target);
                continue;
            };
            let stub = Stub { wanted: *wanted, id: *id, target: *target, copy: *copy, captured: None };
            if site.is_exit() {
                // (Its function comes before it.)
                exits.extend(owners.get(id).map(|function| (*function, *site, stub)));
                continue;
            }
            let Some(function) = functions.get(&site.address()) else { continue };
            let Some(place) = self.place_of(*function, |_| Some(*site)) else { continue };
            let placed = &mut self.sites[place];
            owners.insert(*id, *function);
            placed.stubs.add(stub);
            placed.drained |= drained.is_some_and(|drained| n < drained);
        }
        self.put_in_order();
        self.add_exits(exits);
        self.look(text);
    }

    /// Finds out what its sites are now.
    pub fn look(&mut self, text: &mut ProcessText) {
        let mut text = Ahead::new(text);
        for placed in &mut self.sites {
            placed.look(&mut text);
        }
    }

    /// If something of it was ever wanted, it has a number.
    pub fn number(&mut self, stubs: &mut Stubs<'_>) {
        self.recorded = self.sites.iter().any(|placed| placed.stubs.first.is_some());
        if self.recorded {
            self.record.id = stubs.number_module();
        }
    }

    /// A profiling function of its own was led to the recorder.
    fn recall_lead(&mut self, site: &Site, target: Avma) {
        let profilers = self.binary.profilers.iter();
        let mut places =
            profilers.filter_map(|profiler| Some(self.bias.apply(profiler.place.as_ref().ok()?.0)));
        if self.is_made() || !site.is_function() || !places.any(|place| place == site.address()) {
            return;
        }
        self.led = true;
        let (lead, apart) = (Some(target), true);
        let function = self.function_at(site.address().0).map_or(usize::MAX, |(function, ..)| function);
        self.sites.retain(|placed| placed.site.address() != site.address());
        self.sites.push(Placed { lead, apart, ..Placed::new(function, *site) });
    }

    /// Describes the module and its sites.
    pub fn describe(&self, emit: &mut dyn FnMut(News)) {
        if !self.recorded {
            return;
        }
        emit(Record::Module(self.record.clone()).into());
        let entries = self.sites.iter().filter(|placed| !placed.site.is_exit());
        let stubs = entries.flat_map(|placed| {
            let (function, tracers) = (placed.function as u32, u32::MAX);
            let kind = self
                .binary
                .functions
                .get(placed.function)
                .map_or(SiteKind::None, |_| self.kind(placed.function));
            placed.stubs.all().map(move |stub| NewSite {
                function,
                stub: stub.id,
                tracers,
                kind,
                captured: stub.captured.clone(),
            })
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
                known: placed.is_some_and(|placed| placed.stubs.all().next().is_some()),
                on: placed.is_some_and(|placed| matches!(placed.state, State::On(_))),
                failed: placed.is_some_and(|placed| placed.refused),
            });
        }
    }

    /// Sites that lead to a stub, and all that ever did.
    pub fn count(&self) -> (usize, usize) {
        let ever = self.sites.iter().filter(|placed| placed.stubs.first.is_some() && !placed.site.is_exit());
        let on = ever.clone().filter(|placed| matches!(placed.state, State::On(_)));
        (on.count(), ever.count())
    }

    /// A range of hops could not be mapped: no site may lead there.
    pub fn lose_hops(&mut self, start: u64, end: u64) {
        self.hops.retain(|range| range.address != start);
        for placed in &mut self.sites {
            let lost = |at: &Avma| (start..end).contains(&at.0);
            placed.stubs.retain(|stub| !lost(&stub.target) && !stub.copy.as_ref().is_some_and(lost));
            placed.lead.take_if(|lead| (start..end).contains(&lead.0));
        }
    }

    /// What has to be done for its sites to be what they shall be now.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.sites.iter().filter_map(Placed::change)
    }

    /// Where its sites are breakpoints while they are switched through one.
    pub fn breakpoints(&self) -> impl Iterator<Item = u64> {
        self.sites.iter().filter_map(|placed| Some(placed.site.breakpoint()?.0))
    }

    /// Its breakpoints that stay: where they are, and what whoever meets one is led to. Also those that are off: somebody may have met one before.
    pub fn traps(&self) -> impl Iterator<Item = (u64, u64)> {
        let traps = self.sites.iter().filter(|placed| placed.site.is_trap());
        traps.filter_map(|placed| Some((placed.site.address().0, placed.leads()?.0)))
    }

    /// The stubs that they lead to.
    pub fn trap_stubs(&self) -> impl Iterator<Item = u32> {
        let traps = self.sites.iter().filter(|placed| placed.site.is_trap());
        traps.flat_map(|placed| placed.stubs.all().map(|stub| stub.id))
    }

    /// How many of them shall be on.
    pub fn wanted_traps(&self) -> usize {
        let is_wanted =
            |placed: &&Placed| placed.site.is_trap() && !placed.refused && placed.stub().is_some();
        self.sites.iter().filter(is_wanted).count()
    }

    /// They are handled in its process, or not: then they are off.
    pub fn handle_traps(&mut self, handled: bool) {
        for placed in self.sites.iter_mut().filter(|placed| placed.site.is_trap()) {
            placed.unhandled = !handled;
        }
    }

    /// Notes what became of these [`changes`](Loaded::changes): `fate` says of each in turn why it was not made, if it was not. Each is reported with the
    /// function's name.
    pub fn settle(
        &mut self,
        mut fate: impl FnMut() -> Option<Fate<Errno>>,
        mut report: impl FnMut(&str, Change<'_>, Option<&Fate<Errno>>),
    ) {
        let names: Vec<String> =
            match self.sites.iter().any(|placed| placed.function >= self.binary.functions.len()) {
                true => self.sites.iter().map(|placed| self.name(placed)).collect(),
                false => Vec::new(),
            };
        for (n, placed) in self.sites.iter_mut().enumerate() {
            let Some(change) = placed.change() else { continue };
            let (to, fate) = (change.to, fate());
            let name = names.get(n).unwrap_or_else(|| &self.binary.functions[placed.function].name);
            report(name, change, fate.as_ref());
            placed.settle(to, fate.as_ref());
            // (It is somebody's memory that he may have protected from us.)
            placed.refused |= self.made.is_some() && matches!(fate, Some(Fate::Torn(_) | Fate::Unread(_)));
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
        let meant = |placed: &Placed| placed.wanted.is_some() || placed.quiet || placed.lead.is_some();
        // (What was made at run time is changed only while all threads are stopped: whoever made it may unmake it.)
        let stops = |change: Change<'_>| {
            self.is_made() || change.site.demand(change.from, change.to) == Demand::NobodyRuns
        };
        let waiting = move |placed: &&Placed| {
            !placed.refused && (meant(placed) && !placed.drained || placed.change().is_some_and(stops))
        };
        self.sites.iter().filter(waiting).map(|placed| &placed.site)
    }

    /// Leaves those alone for now for which `inside` is true, and no others.
    pub fn hold_back(&mut self, inside: &dyn Fn(&Site) -> bool) {
        let mut kept = HashSet::new();
        for placed in &mut self.sites {
            placed.held_back = inside(&placed.site);
            if placed.held_back && placed.site.is_exit() {
                kept.insert(placed.function);
            }
        }
        // (Whose exit is not seen yet, whose entry is not either.)
        for placed in self.sites.iter_mut().filter(|placed| kept.contains(&placed.function)) {
            placed.held_back |= !matches!(placed.state, State::On(_));
        }
    }

    /// Nobody is inside those for which `inside` is false.
    pub fn drain(&mut self, inside: &dyn Fn(&Site) -> bool) {
        for placed in self.sites.iter_mut().filter(|placed| !placed.drained) {
            placed.drained = placed.state == State::Ready && !inside(&placed.site);
        }
    }
}
