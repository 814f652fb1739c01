//! Calls of the profiling function that are found at their first execution and then redirected.

use super::ProcessModule;
use super::process_site::ProcessSite;
use crate::plan::stubs::Stubs;
use calltap_collect::metadata::Metadata;
use calltap_patch::{Avma, Demand, Site, State, Text, calls_out};
use calltap_process::memory::maps::Region;
use calltap_process::memory::text::ProcessText;
use calltap_sites::{Function, ProfilingFunction, Returns, Role, SiteForm, SiteKind, Svma, Verdict};
use calltap_trace::Record;
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

/// A call of the profiling function that was found at its first execution.
pub(crate) struct Call {
    /// Index of the function.
    pub function: usize,
    /// Address of the call.
    pub at: Avma,
    /// Bytes of the call.
    pub old: Vec<u8>,
    /// How its function can be patched, if it can.
    pub form: Option<(SiteKind, SiteForm)>,
}

/// Number of a call after a prologue in the [parts](Site::parts) of a site.
const CALL: u8 = 1;

impl ProcessModule {
    /// Returns the profiling functions that it defines, each with all addresses that a call may
    /// name.
    pub(crate) fn profilers(&self) -> impl Iterator<Item = (u64, ProfilingFunction)> {
        self.binary.profilers.iter().flat_map(|profiler| {
            let place = profiler.place.as_ref().map_or(profiler.address, |(at, _)| *at);
            [profiler.address, place].map(|at| (self.bias.apply(at).0, profiler.function))
        })
    }

    /// Makes the module's profiling functions jump to the recorder, and reserves veneers for the
    /// calls that will be found.
    pub(crate) fn lead(
        &mut self,
        hook: Avma,
        stubs: &mut Stubs<'_>,
        regions: &[Region],
        records: &mut Vec<Metadata>,
    ) {
        if hook.0 == 0 || self.is_made() || std::mem::replace(&mut self.led, true) {
            return;
        }
        let (process, range) = (self.record.process, self.mapped.range);
        let binary = Arc::clone(&self.binary);
        // A module that only defines them for others has few functions.
        let most = binary.functions.len().min(stubs.room());
        // If nothing can be reserved now, veneers are allocated when they are needed, if possible.
        let _ = stubs.reserve(process, range, most, regions, &mut self.veneers);
        for profiler in &binary.profilers {
            let function =
                binary.functions.binary_search_by_key(&profiler.address, |function| function.address);
            let mut note = |why: &dyn Display| {
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
            let Some(target) = stubs.lead(process, range, [site.address(), hook], regions, &mut self.veneers)
            else {
                note(&"there is no free address range near it");
                continue;
            };
            self.note_site(site, target, stubs);
            let (lead, drained, apart) = (Some(target), self.fresh, true);
            self.sites.push(ProcessSite { lead, drained, apart, ..ProcessSite::new(function, site) });
        }
        self.put_in_order();
    }

    /// Returns a function by its index.
    pub(crate) fn function(&self, index: usize) -> Option<&Function> {
        self.binary.functions.get(index)
    }

    /// Returns the function that contains an address: index, start, and the address in the file.
    pub(crate) fn function_at(&self, at: u64) -> Option<(usize, Svma, Svma)> {
        let address = Svma(at.wrapping_sub(self.bias.0));
        let functions = &self.binary.functions;
        let index = functions.partition_point(|function| function.address <= address).checked_sub(1)?;
        let function = &functions[index];
        let is_inside = function.size == 0 || address.0 < function.address.0 + function.size;
        is_inside.then_some((index, function.address, address))
    }

    /// Returns the function of run-time code that begins at an address, which is added if it is not
    /// known.
    pub(crate) fn made_at(&mut self, start: u64) -> usize {
        let functions = self.made.get_or_insert_default();
        *functions.entry(start).or_insert_with(|| {
            let function = Function {
                name: format!("{start:#x}"),
                aliases: Vec::new(),
                address: Svma(start),
                size: 0,
                role: Role::Function,
                verdict: Verdict::Open,
                returns: Returns::default(),
                poll: None,
                watch: None,
            };
            Arc::make_mut(&mut self.binary).functions.push(function);
            self.places.push(0);
            self.places.len() - 1
        })
    }

    /// Whether a site at an address is known and its bytes match its state.
    pub(crate) fn is_known(&self, at: Avma, text: &mut ProcessText) -> bool {
        let Ok(place) = self.sites.binary_search_by_key(&at, |placed| placed.site.address()) else {
            return false;
        };
        let placed = &self.sites[place];
        let mut bytes = vec![0; placed.site.len()];
        text.read(at, &mut bytes).is_ok() && placed.site.is(placed.state, &bytes)
    }

    /// Adds calls that were found at their first execution; `calls` are sorted by address. Each
    /// becomes the site of its function if that has a form, otherwise a NOP.
    pub(crate) fn add(&mut self, calls: Vec<Call>, stubs: &mut Stubs<'_>) {
        let functions: HashSet<usize> = calls.iter().map(|call| call.function).collect();
        let made = self.is_made();
        // Former sites at these places are gone, and in run-time code all sites of these functions.
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
                // Such a call only becomes a NOP.
                _ => (Site::from_parts(at, CALL, &old), true),
            };
            let Some(site) = site else { continue };
            let drained = site.demand(State::Original, State::Disabled) == Demand::Nothing;
            self.note_site(site, Avma(0), stubs);
            self.sites.push(ProcessSite {
                quiet: true,
                drained,
                apart,
                seen: true,
                ..ProcessSite::new(function, site)
            });
            if !apart {
                self.places[function] = self.sites.len() as u32;
            }
        }
        self.put_in_order();
    }

    /// Forgets sites.
    pub(super) fn forget(&mut self, gone: impl Fn(&ProcessSite) -> bool) {
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

    /// Counts the found calls that were converted.
    pub(crate) fn converted(&self) -> usize {
        self.sites.iter().filter(|placed| placed.seen && placed.state != State::Original).count()
    }

    /// Returns the places of found calls whose bytes were unexpected, and that are in no list of
    /// functions.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.sites.iter().filter(|placed| placed.seen && placed.apart && placed.refused);
        failed.map(|placed| format!("{:#x} [{}]", placed.site.address().0, self.mapped.name()))
    }

    /// Makes all calls of the profiling function NOPs, selected or not, in code that no thread can
    /// be running yet.
    pub(crate) fn quieten(&mut self, stubs: &mut Stubs<'_>) {
        if !self.fresh {
            return;
        }
        let binary = Arc::clone(&self.binary);
        for (function, described) in binary.functions.iter().enumerate() {
            let Some(form) = described.form().filter(|form| calls_out(form)) else { continue };
            let Some(site) = Site::new(form, self.bias) else { continue };
            let Some(place) = self.place_of(function, |_| Some(site)) else { continue };
            self.sites[place].quiet = true;
            self.sites[place].drained = true;
            self.note_site(site, Avma(0), stubs);
        }
        self.put_in_order();
    }
}
