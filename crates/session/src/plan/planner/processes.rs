//! The processes of a session: the living ones, and the changes that earlier controllers made to
//! them.

use super::Planner;
use crate::error::Error;
use crate::plan::journal::{self, Entry, UNLISTED};
use calltap_patch::Avma;
use calltap_process::agent;
use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;
use calltap_process::proc;
use calltap_process::ptrace::followed::may_share_memory;
use calltap_process::target::Target;
use calltap_sites::Discovery;
use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

impl<'a> Planner<'a> {
    /// Restores the state of a session from the journal and from the text of its processes.
    pub(crate) fn recall(&mut self, target: &Target) -> Result<(), Error> {
        let entries = self.directory.journal.read().map_err(|error| target.refuse(error))?;
        self.stubs.recall(&entries);
        let is_prologue = |entry: &Entry| matches!(entry, Entry::Site { copy: Some(_), .. });
        self.files.reaching = usize::from(entries.iter().any(is_prologue));
        self.policy.int3 |=
            entries.iter().any(|entry| matches!(entry, Entry::Site { site, .. } if site.is_trap()));
        for (index, Target { pid, .. }) in self.living(target) {
            self.add_process(index, pid, &entries);
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| module.number(&mut self.stubs));
        }
        self.recall_pending();
        Ok(())
    }

    /// Adds the processes that are not known yet.
    pub(crate) fn meet_new(&mut self, living: &[(u32, Target)]) -> Result<(), Error> {
        let is_new = |(index, _): &&(u32, Target)| !self.processes.contains_key(index);
        let new: Vec<&(u32, Target)> = living.iter().filter(is_new).collect();
        let Some((_, target)) = new.first() else { return Ok(()) };
        let entries = self.directory.journal.read().map_err(|error| target.refuse(error))?;
        new.iter().for_each(|(index, Target { pid, .. })| self.add_process(*index, *pid, &entries));
        Ok(())
    }

    /// Adds a process with its state from the journal and the text. Its modules enter the trace
    /// once a function of them is selected.
    fn add_process(&mut self, index: u32, pid: u32, entries: &[Entry]) {
        let (Ok(regions), Ok(mut text)) = (maps::read(pid), ProcessText::open(pid)) else { return };
        text.after_int3 = self.shared.has_traps();
        self.see_modules(index, pid, false, &regions, &mut Vec::new());
        let line = (index & UNLISTED == 0).then(|| self.shared.line(index));
        let code = self.directory.code_inode();
        let shows = |address, offset| regions.iter().any(|region| region.shows(address, code, offset));
        let standing = journal::standing(entries, line.as_deref(), shows);
        if self.policy.discovery == Discovery::FirstCall {
            self.recall_calls(index, &regions, &standing, &mut text);
        }
        let watched = self.image(index, &regions).map_or(0, |image| image.loader_brk.load(Acquire));
        let Some(process) = self.processes.get_mut(&index) else { return };
        for module in &mut process.modules {
            module.leave_watched(Avma(watched));
            module.recall(&standing, &mut text);
        }
        process.watched =
            entries.iter().any(|entry| matches!(entry, Entry::Site { site, .. } if site.is_empty_function()));
        process.text = Some(text);
    }

    /// Returns the living processes of the session by index: the first one and its children.
    /// Children that have not called a traced function since their fork are in no table, and have
    /// [another number](UNLISTED).
    pub(crate) fn living(&self, first: &Target) -> Vec<(u32, Target)> {
        let session = self.directory.identity();
        let (ids, mut ours) = (proc::Ids::default(), HashMap::new());
        let living = |index: u32| {
            let entry = self.shared.process(index)?;
            let pid = if index == 0 { first.pid } else { ids.pid_of(entry) };
            if self.shared.was_replaced(index) {
                return None;
            }
            // The id may be another process's by now: only one that maps the session's memory
            // belongs to it.
            let is_ours = ours.entry(pid).or_insert_with(|| agent::has_mapped(pid, &session));
            let target = Target::of_child(pid).filter(|_| *is_ours)?;
            Some((index, target))
        };
        let listed: Vec<(u32, Target)> = self.shared.processes().filter_map(living).collect();
        // A process that shares another's memory, after vfork, is changed with it.
        let is_new = |pid: &u32| {
            listed.iter().all(|(_, known)| known.pid != *pid && !may_share_memory(known.pid, *pid))
        };
        let known: Vec<u32> =
            [first.pid].into_iter().chain(listed.iter().map(|(_, known)| known.pid)).collect();
        let program = first.program.as_deref();
        let others = agent::who_maps(&session, &known, program).into_iter().filter(is_new);
        let others: Vec<(u32, Target)> =
            others.filter_map(|pid| Some((UNLISTED | pid, Target::of_child(pid)?))).collect();
        listed.into_iter().chain(others).collect()
    }

    /// Finds a jump target for the dynamic linker's empty function: the agent, or a veneer if the
    /// agent is out of reach.
    pub(super) fn reach_watch(&mut self, index: u32, regions: &[Region]) {
        let Some(image) = self.image(index, regions) else { return };
        let (brk, hook) = (Avma(image.loader_brk.load(Acquire)), Avma(image.loader_hook.load(Acquire)));
        let Some(process) = self.processes.get_mut(&index) else { return };
        if brk.0 == 0 || process.watched || process.watch_through.is_some() {
            return;
        }
        let Some(linker) = regions.iter().find(|region| (region.start..region.end).contains(&brk.0)) else {
            return;
        };
        let range = (linker.start, linker.end);
        process.watch_through = self.stubs.lead(index, range, [brk, hook], regions, &mut Vec::new());
    }

    /// Restores the meaning of the values that stubs of an earlier controller read.
    pub(crate) fn recall_values(&mut self) {
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            self.for_each_module(index, |module, site_request, stubs| {
                module.recall_values(site_request, stubs)
            });
        }
    }
}
