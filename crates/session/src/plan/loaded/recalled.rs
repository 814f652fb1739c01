//! State of a module that earlier controllers have changed, from the journal and its text.

use super::ProcessModule;
use super::process_site::{ProcessSite, Stub};
use crate::plan::journal::Entry;
use crate::plan::read_ahead::ReadAhead;
use crate::plan::stubs::Stubs;
use calltap_patch::{Avma, Site};
use calltap_process::memory::text::ProcessText;
use calltap_selection::SiteRequest;
use calltap_sites::Function;
use std::collections::HashMap;
use std::sync::Arc;

impl ProcessModule {
    /// Restores sites and stubs from the entries that [apply](crate::plan::journal::standing), and
    /// reads their states from the text.
    pub(crate) fn recall(&mut self, entries: &[&Entry], text: &mut ProcessText) {
        let functions: HashMap<Avma, usize> = self
            .traceable()
            .filter_map(|(index, _)| Some((Site::new(self.form(index)?, self.bias)?.address(), index)))
            .collect();
        let drained = entries.iter().rposition(|entry| matches!(entry, Entry::Drained { .. }));
        let inode = self.mapped.file.1;
        let (mut owners, mut exits) = (HashMap::new(), Vec::new());
        for (n, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.file() == Some(inode)) {
            let Entry::Site { site, target, copy, stub, .. } = entry else { continue };
            let Some((id, hook_set)) = stub else {
                self.recall_lead(site, *target);
                continue;
            };
            let stub = Stub { hook_set: *hook_set, id: *id, target: *target, copy: *copy, captured: None };
            if site.is_exit() {
                // The entry of its function comes before.
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
        self.read_states(text);
    }

    /// Restores the meaning of values that an earlier controller's stubs read, for those that the
    /// current selection requests.
    pub(crate) fn recall_values(
        &mut self,
        site_request: &dyn Fn(&Function) -> Option<SiteRequest>,
        stubs: &mut Stubs<'_>,
    ) {
        let binary = Arc::clone(&self.binary);
        for placed in &mut self.sites {
            stubs.names_callers |= placed.stubs.all().any(|stub| stub.hook_set.names_callers());
            let reads = placed.stubs.all().any(|stub| stub.hook_set.program() != 0);
            let function = binary.functions.get(placed.function).filter(|_| reads && !placed.apart);
            let Some(SiteRequest { hook_set, program: Some(program), .. }) = function.and_then(site_request)
            else {
                continue;
            };
            let hook_set =
                hook_set.reading(stubs.number_program(&program.words_at(self.bias.0), &mut Vec::new()));
            stubs.unwinds |= program.captured.unwinds();
            if let Some(stub) = placed.stubs.of_mut(hook_set) {
                stub.captured = Some(Arc::clone(&program.captured));
            }
        }
    }

    /// Restores a profiling function that leads to the recorder.
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
        self.sites.push(ProcessSite { lead, apart, ..ProcessSite::new(function, *site) });
    }

    /// Reads the current states of the sites.
    pub(crate) fn read_states(&mut self, text: &mut ProcessText) {
        let mut text = ReadAhead::new(text);
        for placed in &mut self.sites {
            placed.read_states(&mut text);
        }
    }

    /// Numbers the module if a function of it was ever selected.
    pub(crate) fn number(&mut self, stubs: &mut Stubs<'_>) {
        self.recorded = self.sites.iter().any(ProcessSite::is_traced);
        if self.recorded {
            self.record.id = stubs.number_module();
        }
    }
}
