//! Selected functions that cannot be traced: the trace names them, as it has no calls of them.

use super::ProcessModule;
use calltap_collect::metadata::Metadata;
use calltap_sites::{Function, Reason};
use calltap_trace::{Record, Untraceable, UntraceableFunction};

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
        let mut new: Vec<(&Function, &Reason)> = Vec::new();
        for (n, function) in self.binary.functions.iter().enumerate() {
            let is_new = !self.found.contains_key(&n) && !self.told.contains(&function.address);
            if let Some(reason) = function.reason().filter(|reason| is_new && reason.is_of_function())
                && is_selected(function)
            {
                new.push((function, reason));
            }
        }
        if new.is_empty() {
            return;
        }
        let Untraceable { count, named } = &mut self.record.untraceable;
        *count += new.len() as u64;
        for (function, reason) in new.iter().take(Untraceable::NAMED.saturating_sub(named.len())) {
            let (name, code) = (function.name.clone(), reason.code().to_owned());
            let reason = reason.to_string();
            named.push(UntraceableFunction { name, code, reason });
        }
        self.told.extend(new.into_iter().map(|(function, _)| function.address));
        records.push(Record::Module(self.record.clone()).into());
    }
}
