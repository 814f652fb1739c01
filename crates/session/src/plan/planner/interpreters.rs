//! Python functions that are selected while the processes run: changes the selection of their
//! interpreters, and describes them to the trace.

use super::Planner;
use super::policy::Choose;
use crate::error::Error;
use crate::python::Unfit;
use calltap_abi::Clock;
use calltap_collect::metadata::Metadata;
use calltap_collect::python::MODULE;
use calltap_selection::{EVALUATOR, Selection};
use calltap_trace::{Module, Record, TracerKind};
use std::collections::HashSet;
use std::sync::atomic::Ordering::*;

impl<'a> Planner<'a> {
    /// Replaces the selection of native and Python functions. Called before sites are switched; an
    /// error leaves the former selection. Calls of Python functions are recorded only after
    /// [`Planner::resume_python`]: until then, the trace may lack their module.
    pub(crate) fn choose_other(
        &mut self,
        choose: Box<Choose<'a>>,
        words: &Selection,
        before: &Selection,
    ) -> Result<(), Error> {
        let is_same = words.python_arguments == before.python_arguments;
        self.read_python(&words.python_arguments, is_same)?;
        let chosen = std::mem::replace(&mut self.policy.choose, choose);
        let checked = self.check_new_values(words);
        let is_other = words.python != before.python;
        let selected = checked.and_then(|()| if is_other { self.select_python(words) } else { Ok(()) });
        // Where no Python functions were traced, there was no memory for the rules before.
        let done = selected.and_then(|()| self.read_python(&words.python_arguments, is_same));
        if done.is_err() {
            self.policy.choose = chosen;
            let _ = self.read_python(&before.python_arguments, is_same);
        }
        done
    }

    /// Sets the rules for arguments of Python functions, unless they are the same as before.
    fn read_python(&self, rules: &[String], is_same: bool) -> Result<(), Error> {
        let read = if is_same { Ok(()) } else { self.shared.read_python(rules) };
        read.map_err(|source| Error::system("-A", source))
    }

    /// Resumes the recording of Python calls, unless it is switched off or paused.
    pub(crate) fn resume_python(&self, on: bool, words: &Selection) {
        self.shared.pause_python(!on || words.paused);
    }

    /// Resumes the recording of Python calls if the trace has their module.
    pub(crate) fn resume_python_if_described(&self, on: bool, words: &Selection) {
        self.shared.pause_python(!on || words.paused || self.python_module().is_none());
    }

    fn select_python(&mut self, words: &Selection) -> Result<(), Error> {
        if !words.traces_python() {
            let before = self.python_on();
            self.shared.leave_python();
            self.tally_python(&before);
            return Ok(());
        }
        let is_graph = |kind| kind == Some(TracerKind::FunctionGraph);
        if !(words.tracers.is_empty() || words.tracers.iter().any(|tracer| is_graph(tracer.kind))) {
            return Err(Error::PythonUnfit(Unfit::NoReturns));
        }
        if self.shared.control().clock.load(Relaxed) == Clock::Sparse as u32 {
            return Err(Error::PythonUnfit(Unfit::Sparse));
        }
        self.check_interpreters()?;
        let (before, next) = (self.python_on(), self.stubs.next_number());
        let selected = self.shared.select_python(&words.python, words.futures, next);
        selected.map_err(|source| Error::system("--python", source))?;
        self.tally_python(&before);
        Ok(())
    }

    /// Fails if the session's processes have interpreters, but none whose functions can be traced.
    fn check_interpreters(&mut self) -> Result<(), Error> {
        (self.values.python, self.values.no_python) = (None, None);
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            self.for_each_module(index, |module, site_request, _| module.ask_about(EVALUATOR, site_request));
        }
        match (self.values.no_python.take(), self.values.python) {
            (Some((interpreter, why)), None) => Err(Error::Python { interpreter, why }),
            _ => Ok(()),
        }
    }

    fn python_on(&self) -> HashSet<u32> {
        self.shared.python_sites_on().collect()
    }

    /// Counts the functions that another filter has switched.
    fn tally_python(&mut self, before: &HashSet<u32>) {
        let now = self.python_on();
        self.tally.on += now.difference(before).count() as u32;
        self.tally.off += before.difference(&now).count() as u32;
    }

    /// Describes the module of Python functions, once, when there is an interpreter.
    pub(super) fn introduce_python(&mut self, process: u32, tracers: u32, records: &mut Vec<Metadata>) {
        let Some(table) = self.shared.python() else { return };
        if std::mem::replace(&mut self.introduced_python, true) || table.module().is_some() {
            return;
        }
        let id = self.stubs.number_module();
        table.header.module.store(id, Relaxed);
        table.header.process.store(process, Relaxed);
        table.header.tracers.store(tracers, Release);
        records.extend(self.python_module());
    }

    /// Returns the module of Python functions, if there is an interpreter.
    pub(super) fn python_module(&self) -> Option<Metadata> {
        let table = self.shared.python()?;
        let process = table.header.process.load(Relaxed);
        Some(Metadata::Record(Record::Module(Module::without_file(table.module()?, process, MODULE))))
    }
}
