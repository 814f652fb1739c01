//! Selected functions that cannot be traced: the trace names them, as it has no calls of them.

use super::{ProcessModule, ProcessSite};
use crate::plan::reason::NotAsInFile;
use calltap_collect::metadata::Metadata;
use calltap_sites::Function;
use calltap_trace::{Record, Untraceable, UntraceableFunction};
use std::fmt::Display;
use std::sync::Arc;

impl ProcessModule {
    /// Adds the selected functions that cannot be traced to the module's record, and writes it
    /// again if there are new ones.
    pub(crate) fn tell_untraceable(
        &mut self,
        is_selected: &dyn Fn(&Function) -> bool,
        records: &mut Vec<Metadata>,
    ) {
        if !self.recorded {
            return;
        }
        let binary = Arc::clone(&self.binary);
        let mut new: Vec<(usize, &str, &dyn Display)> = Vec::new();
        for (n, function) in binary.functions.iter().enumerate() {
            let is_new = !self.found.contains_key(&n) && !self.told.contains(&function.address);
            if let Some(reason) = function.reason().filter(|reason| is_new && reason.is_of_function())
                && is_selected(function)
            {
                new.push((n, reason.code(), reason));
            }
        }
        self.add_untraceable(&new, records);
    }

    /// Adds the selected functions whose code is not as in the file.
    pub(crate) fn tell_changed(&mut self, records: &mut Vec<Metadata>) {
        if !self.recorded || self.made.is_some() {
            return;
        }
        let is_changed = |placed: &&ProcessSite| {
            placed.refused && placed.stub().is_some() && !placed.site.is_exit() && !placed.only_watches()
        };
        let changed = self.sites.iter().filter(is_changed).map(|placed| placed.function);
        let functions = &self.binary.functions;
        let is_new =
            |n: &usize| functions.get(*n).is_some_and(|function| !self.told.contains(&function.address));
        let why = NotAsInFile::Changed;
        let new: Vec<_> = changed.filter(is_new).map(|n| (n, why.code(), &why as &dyn Display)).collect();
        self.add_untraceable(&new, records);
    }

    /// Adds functions (index, code of the reason, reason) to the module's record, and writes it
    /// again if there are any.
    fn add_untraceable(&mut self, new: &[(usize, &str, &dyn Display)], records: &mut Vec<Metadata>) {
        if new.is_empty() {
            return;
        }
        let functions = &self.binary.functions;
        let Untraceable { count, named } = &mut self.record.untraceable;
        *count += new.len() as u64;
        for (n, code, reason) in new.iter().take(Untraceable::NAMED.saturating_sub(named.len())) {
            let (name, code, reason) = (functions[*n].name.clone(), (*code).to_owned(), reason.to_string());
            named.push(UntraceableFunction { name, code, reason });
        }
        self.told.extend(new.iter().map(|(n, ..)| functions[*n].address));
        records.push(Record::Module(self.record.clone()).into());
    }
}
