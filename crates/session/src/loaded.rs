//! A module of a process, and where the sites of its functions lead.

use crate::journal::Entry;
use crate::maps::Region;
use crate::modules::Mapped;
use crate::stubs::{HopRange, Stubs};
use calltap_patch::{Avma, Bias, Demand, Site, State, Wanted};
use calltap_sites::{Binary, Function};
use calltap_trace::{Module, Record, SiteId};
use std::collections::BTreeMap;
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
    /// By index of the function.
    sites: BTreeMap<usize, Placed>,
    hops: Vec<HopRange>,
}

/// A site that was wanted at some time.
#[derive(Clone, Debug)]
struct Placed {
    site: Site,
    /// What its bytes are.
    state: State,
    /// Where batches that were cut short led to: its bytes may also be something on the way there.
    torn: Vec<State>,
    /// Other bytes were found than expected: never touched again.
    refused: bool,
    /// Nobody is inside it, so it may be switched.
    drained: bool,
    /// The stubs it has, by form.
    stubs: [Option<Stub>; 3],
    /// What it shall lead to.
    wanted: Option<Wanted>,
}

#[derive(Clone, Copy, Debug)]
struct Stub {
    /// Where the site jumps: the stub or its hop.
    target: Avma,
}

/// A site to change.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    function: usize,
    /// Its state then.
    pub to: State,
}

impl Loaded {
    /// A module nothing of which was ever wanted.
    pub fn new(mapped: Mapped, record: Module, binary: Arc<Binary>, bias: Bias, fresh: bool) -> Loaded {
        let (sites, hops) = (BTreeMap::new(), Vec::new());
        Loaded { mapped, record, recorded: false, fresh, binary, bias, sites, hops }
    }

    /// Its functions that can be traced, with their indices.
    fn traceable(&self) -> impl Iterator<Item = (usize, &Function)> {
        self.binary.functions.iter().enumerate().filter(|(_, function)| function.form.is_some())
    }

    /// Notes what is wanted, and gives every wanted function a site and a stub. New stubs are described in `records`; the mappings
    /// they need are left with `stubs`.
    pub fn want(
        &mut self,
        wish: &dyn Fn(&Function) -> Wish,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<Record>,
    ) {
        let wishes: Vec<(usize, u32, Wanted)> = self
            .traceable()
            .filter_map(|(index, function)| wish(function).map(|(tracers, wanted)| (index, tracers, wanted)))
            .collect();
        for placed in self.sites.values_mut() {
            placed.wanted = None;
        }
        if wishes.is_empty() {
            return;
        }
        if !self.recorded {
            self.recorded = true;
            records.push(Record::Module(self.record.clone()));
        }
        let binary = Arc::clone(&self.binary);
        let mut new = Vec::new();
        for (index, tracers, wanted) in wishes {
            let Some(form) = &binary.functions[index].form else { continue };
            if !self.sites.contains_key(&index) {
                let Some(site) = Site::new(form, self.bias) else { continue };
                let (state, stubs) = (State::Original, [None; 3]);
                let drained = self.fresh || site.demand(state, State::Ready) == Demand::Nothing;
                let (torn, refused, wanted) = (Vec::new(), false, None);
                let placed = Placed { site, state, torn, refused, drained, stubs, wanted };
                self.sites.insert(index, placed);
            }
            let Some(placed) = self.sites.get_mut(&index) else { continue };
            placed.wanted = Some(wanted);
            if placed.stubs[wanted as usize].is_none() {
                new.push((index, tracers, wanted));
            }
        }
        self.place(&new, &binary, stubs, regions, records);
    }

    fn place(
        &mut self,
        new: &[(usize, u32, Wanted)],
        binary: &Binary,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<Record>,
    ) {
        let name = self.mapped.name();
        let room = stubs.room();
        if new.len() > room {
            let text = format!(
                "only the first {room} of {} functions of {name} are traced: the stub region is full",
                new.len()
            );
            records.push(Record::Note { text });
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
                records.push(Record::Note { text });
                return;
            }
        };
        let mut described = Vec::with_capacity(new.len());
        for (index, tracers, wanted) in new {
            let function = &binary.functions[*index];
            let Some(form) = &function.form else { continue };
            let Some((id, target)) = batch.add(form, self.bias, *wanted) else { continue };
            if let Some(placed) = self.sites.get_mut(index) {
                placed.stubs[*wanted as usize] = Some(Stub { target });
                let (site, stub) = (placed.site.clone(), Some((id, *wanted)));
                batch.note(Entry::Site { process, site, target, stub, inode });
            }
            described.push(calltap_trace::Site {
                id: SiteId(id),
                module: self.record.id,
                address: function.address.0,
                size: function.size,
                name: function.name.clone(),
                kind: function.kind.name().to_owned(),
                tracers: *tracers,
            });
        }
        if let Err(error) = batch.finish() {
            records.push(Record::Note { text: format!("{name} is not traced: {error}") });
            return;
        }
        records.push(Record::Sites { sites: described });
    }

    /// A range of hops could not be mapped: no site may lead there.
    pub fn lose_hops(&mut self, start: u64, end: u64) {
        self.hops.retain(|range| range.address != start);
        for stub in self.sites.values_mut().flat_map(|placed| &mut placed.stubs) {
            if stub.is_some_and(|stub| (start..end).contains(&stub.target.0)) {
                *stub = None;
            }
        }
    }

    /// The sites that are not what they shall be now.
    pub fn pending(&self) -> Vec<Pending> {
        let shall = |placed: &Placed| {
            let stub = placed.wanted.and_then(|wanted| placed.stubs[wanted as usize]);
            match (stub, placed.state) {
                (None, State::Original) => State::Original,
                (Some(stub), _) if placed.drained => State::On(stub.target),
                (None | Some(_), _) => State::Ready,
            }
        };
        self.sites
            .iter()
            .filter(|(_, placed)| !placed.refused)
            .map(|(function, placed)| (*function, placed, shall(placed)))
            .filter(|(_, placed, to)| placed.state != *to || !placed.torn.is_empty())
            .map(|(function, _, to)| Pending { function, to })
            .collect()
    }

    /// The change of a pending site.
    pub fn change(&self, pending: Pending) -> Option<calltap_patch::Change<'_>> {
        let placed = self.sites.get(&pending.function)?;
        Some(calltap_patch::Change {
            site: &placed.site,
            from: placed.state,
            to: pending.to,
            recover: &placed.torn,
        })
    }

    /// The site was changed.
    pub fn done(&mut self, pending: Pending) {
        if let Some(placed) = self.sites.get_mut(&pending.function) {
            placed.state = pending.to;
            placed.torn.clear();
        }
    }

    /// Writing was cut short: the site is between its states.
    pub fn tear(&mut self, pending: Pending) {
        if let Some(placed) = self.sites.get_mut(&pending.function)
            && !placed.torn.contains(&pending.to)
        {
            placed.torn.push(pending.to);
        }
    }

    /// The site is none: other bytes were there. Its name.
    pub fn refuse(&mut self, pending: Pending) -> String {
        if let Some(placed) = self.sites.get_mut(&pending.function) {
            placed.refused = true;
        }
        self.binary.functions.get(pending.function).map(|function| function.name.clone()).unwrap_or_default()
    }

    /// The sites that wait for proof that nobody is inside.
    pub fn undrained(&self) -> impl Iterator<Item = &Site> {
        let waiting = |placed: &&Placed| placed.wanted.is_some() && !placed.drained && !placed.refused;
        self.sites.values().filter(waiting).map(|placed| &placed.site)
    }

    /// Nobody is inside those for which `inside` is false.
    pub fn drain(&mut self, inside: &dyn Fn(&Site) -> bool) {
        for placed in self.sites.values_mut().filter(|placed| !placed.drained) {
            placed.drained = placed.state == State::Ready && !inside(&placed.site);
        }
    }
}
