//! Makes a process map the veneers and out-of-line copies that were planned for it.

use super::Planner;
use crate::plan::stubs::VeneerRange;
use calltap_abi::plan;
use calltap_collect::metadata::Metadata;
use calltap_patch::Avma;
use calltap_process::proc;
use calltap_trace::Record;
use rustix::io::Errno;
use std::collections::HashSet;
use std::sync::atomic::Ordering::*;

/// Number of places that are tried for a range if the process maps something there itself.
const PLACES: usize = 4;

/// A range that could not be mapped.
struct Unmapped {
    address: u64,
    /// The error number; [`NOT_TRIED`] if the agent has not reached this range.
    errno: u64,
}

/// Value in place of an error number.
const NOT_TRIED: u64 = u64::MAX;

impl Unmapped {
    /// Whether the process had mapped something there itself.
    fn is_taken(&self) -> bool {
        self.errno == Errno::EXIST.raw_os_error() as u64
    }

    fn note(&self, process: u32) -> Metadata {
        let Unmapped { address, errno } = self;
        let why = match self {
            _ if self.is_taken() => {
                format!("the program has mapped the range, at each of {PLACES} addresses that were tried")
            }
            _ if *errno == NOT_TRIED => "its agent did not process this range".to_owned(),
            _ => Errno::from_raw_os_error(*errno as i32).to_string(),
        };
        let text = format!(
            "process {process}: the veneers at {address:#x} could not be mapped: {why}; the functions near there are not traced"
        );
        Record::Note { text }.into()
    }
}

impl Planner<'_> {
    /// Makes the agent of a process map the planned ranges, by calling `map`. A range where the
    /// process has mapped something meanwhile is planned anew elsewhere. If `map` fails, nothing
    /// leads to unmapped ranges.
    pub(crate) fn map_planned<E>(
        &mut self,
        index: u32,
        pid: u32,
        fresh: bool,
        map: &mut dyn FnMut(&mut Self) -> Result<(), E>,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), E> {
        let mut places = PLACES;
        loop {
            self.write_journal(index, pid, emit);
            self.write_plan(pid);
            let mapped = map(self);
            let unmapped = self.take_mapped(index);
            places -= 1;
            if mapped.is_err() || places == 0 || !unmapped.iter().any(Unmapped::is_taken) {
                unmapped.iter().for_each(|range| emit(range.note(index)));
                return mapped;
            }
            let mut records = Vec::new();
            self.update_process(index, pid, fresh, &mut records);
            records.into_iter().for_each(&mut *emit);
        }
    }

    /// Writes planned changes to the journal. If that fails, drops the stubs and the ranges that
    /// were planned: no site may lead to a stub that the journal does not name.
    fn write_journal(&mut self, index: u32, pid: u32, emit: &mut dyn FnMut(Metadata)) {
        let planned = std::mem::take(&mut self.stubs.to_note);
        let Err(error) = self.directory.journal.add(&planned) else { return };
        let sites: HashSet<(Avma, Avma)> = planned.sites().collect();
        let ranges = std::mem::take(&mut self.stubs.to_map);
        if let Some(process) = self.processes.get_mut(&index) {
            for module in &mut process.modules {
                module.lose_stubs(&sites);
                for range in &ranges {
                    module.lose_veneers(range.address, range.address + range.length);
                }
            }
            process.watch_through = None;
        }
        let text = format!(
            "process {pid}: {} sites are not enabled: the session's journal could not be written: {error}",
            sites.len()
        );
        emit(Record::Note { text }.into());
    }

    /// Writes the ranges to map to the plan area.
    fn write_plan(&mut self, pid: u32) {
        let ranges = &self.stubs.to_map;
        let Some((header, maps)) = self.shared.plan(ranges.len()) else {
            if let Some((header, _)) = self.shared.plan(0) {
                header.maps.store(0, Release);
            }
            return;
        };
        for (map, range) in maps.iter().zip(ranges) {
            map.address.store(range.address, Relaxed);
            map.offset.store(range.offset, Relaxed);
            map.length.store(range.length, Relaxed);
            map.errno.store(NOT_TRIED, Relaxed);
        }
        // Reading a filter would take a stop, and a filter may kill the process for a call that it
        // does not know.
        let may_duplicate = || !proc::threads(pid).into_iter().any(proc::is_filtered);
        header.may_duplicate.store(u32::from(!ranges.is_empty() && may_duplicate()), Relaxed);
        header.maps.store(maps.len() as u32, Release);
    }

    /// Drops the stubs whose veneers could not be mapped.
    fn take_mapped(&mut self, index: u32) -> Vec<Unmapped> {
        let ranges = std::mem::take(&mut self.stubs.to_map);
        let maps: &[plan::Map] = self.shared.plan(ranges.len()).map_or(&[], |(_, maps)| maps);
        let errno = |n: usize| maps.get(n).map_or(NOT_TRIED, |map| map.errno.load(Relaxed));
        let errors: Vec<u64> = (0..ranges.len()).map(errno).collect();
        let mut unmapped = Vec::new();
        for (VeneerRange { address, length, .. }, errno) in ranges.into_iter().zip(errors) {
            if errno == 0 {
                continue;
            }
            unmapped.push(Unmapped { address, errno });
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| module.lose_veneers(address, address + length));
            process.watch_through.take_if(|through| (address..address + length).contains(&through.0));
        }
        unmapped
    }
}
