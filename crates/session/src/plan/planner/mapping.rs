//! Has a process map the veneers and copies that were planned for it.

use super::Planner;
use crate::plan::stubs::VeneerRange;
use calltap_abi::plan;
use calltap_collect::metadata::Metadata;
use calltap_process::proc;
use calltap_trace::Record;
use rustix::io::Errno;
use std::sync::atomic::Ordering::*;

/// Places that are tried for a range in which the process has mapped something since its mappings were read.
const PLACES: usize = 4;

/// A range that could not be mapped.
struct Unmapped {
    address: u64,
    /// The number of the error; [`NOT_TRIED`] where the agent has not come to it.
    errno: u64,
}

/// In place of the number of an error.
const NOT_TRIED: u64 = u64::MAX;

impl Unmapped {
    /// Had the process mapped something there itself?
    fn is_taken(&self) -> bool {
        self.errno == Errno::EXIST.raw_os_error() as u64
    }

    fn note(&self, process: u32) -> Metadata {
        let Unmapped { address, errno } = self;
        let why = match self {
            _ if self.is_taken() => {
                format!("the process had mapped something there itself, at {PLACES} places")
            }
            _ if *errno == NOT_TRIED => "its agent did not get there".to_owned(),
            _ => Errno::from_raw_os_error(*errno as i32).to_string(),
        };
        let text = format!(
            "process {process}: jumps could not be mapped at {address:#x}: {why}; the functions near there are not traced"
        );
        Record::Note { text }.into()
    }
}

impl Planner<'_> {
    /// Has the agent of a process map what was planned for it; `map` lets the agent do that. What the process has mapped there meanwhile is planned anew, in
    /// another place. Where `map` fails, nothing leads to what was not mapped.
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
            self.hand_over(pid);
            let mapped = map(self);
            let unmapped = self.take_mapped(index);
            places -= 1;
            if mapped.is_err() || places == 0 || !unmapped.iter().any(Unmapped::is_taken) {
                unmapped.iter().for_each(|range| emit(range.note(index)));
                return mapped;
            }
            let mut records = Vec::new();
            self.look(index, pid, fresh, &mut records);
            records.into_iter().for_each(&mut *emit);
        }
    }

    /// Writes down what will be done, and what a process has to map into the plan area.
    fn hand_over(&mut self, pid: u32) {
        // If that fails, the file system is full: then stubs could not be written either.
        let _ = self.directory.journal.add(&std::mem::take(&mut self.stubs.to_note));
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
        // Reading a filter would take a stop, and a filter may kill the process for a call that it does not know.
        let may_duplicate = || !proc::threads(pid).into_iter().any(proc::is_filtered);
        header.may_duplicate.store(u32::from(!ranges.is_empty() && may_duplicate()), Relaxed);
        header.maps.store(maps.len() as u32, Release);
    }

    /// Takes back the stubs whose veneers could not be mapped.
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
