//! Lists of functions: those that can be traced, that are traced, and that ever were.

use super::Model;
use super::sets::{Which, has};
use calltap_names::GlobSet;
use calltap_selection::{Listed, TracerSelection};
use calltap_trace::TracerKind;

/// Size of the record that the kernel keeps for a function, in bytes.
const RECORD: usize = 128;
const PAGE: usize = 4096;

impl Model<'_> {
    /// Returns `name`, or `name [module]` for a function of a library.
    pub fn name(&self, function: &Listed) -> String {
        if function.library {
            format!("{} [{}]", function.function, function.module)
        } else {
            function.function.clone()
        }
    }

    fn names(&self, wanted: impl Fn(&Listed) -> bool) -> String {
        self.functions
            .iter()
            .filter(|function| wanted(function))
            .map(|function| self.name(function) + "\n")
            .collect()
    }

    pub(crate) fn available(&self) -> String {
        self.names(|_| true)
    }

    pub(crate) fn failures(&self) -> String {
        let others = self.words.ftraced.iter().flat_map(|ftraced| &ftraced.failures);
        self.names(|function| function.failed) + &others.map(|what| format!("{what}\n")).collect::<String>()
    }

    pub(crate) fn enabled(&self) -> String {
        self.counted(|function| function.on)
    }

    pub(crate) fn touched(&self) -> String {
        self.counted(|function| function.known)
    }

    /// Lists functions with the number of tracers that trace them: `name (2)`.
    fn counted(&self, wanted: impl Fn(&Listed) -> bool) -> String {
        let paused =
            |tracer: &&TracerSelection| !self.words.paused || tracer.kind == Some(TracerKind::Profile);
        let set = |tracer, which| self.set(tracer, which);
        let mut sets: Vec<(GlobSet, GlobSet)> = self
            .registered()
            .filter(paused)
            .map(|tracer| (set(Some(tracer), Which::Filter), set(Some(tracer), Which::Notrace)))
            .collect();
        if self.words.tracers.is_empty() {
            sets.push((set(None, Which::Filter), set(None, Which::Notrace)));
        }
        let users = |function: &Listed| {
            let uses = |(filter, notrace): &&(GlobSet, GlobSet)| {
                (filter.is_empty() || has(filter, function)) && !has(notrace, function)
            };
            if function.on { sets.iter().filter(uses).count() } else { 0 }
        };
        let lines = self.functions.iter().filter(|function| wanted(function));
        lines.map(|function| format!("{} ({})\n", self.name(function), users(function))).collect()
    }

    pub(crate) fn info(&self) -> String {
        let mut modules: Vec<&str> = self.functions.iter().map(|function| &*function.module).collect();
        modules.dedup();
        // The daemon converts calls, and some of them do not begin a function.
        let converted = self.words.ftraced.as_ref().map(|ftraced| ftraced.converted as usize);
        let sites = converted.unwrap_or(self.functions.len());
        let (pages, times) = ((sites * RECORD).div_ceil(PAGE), self.update_times());
        format!("{sites} pages:{pages} groups: {}\n{times}", modules.len())
    }
}
