//! Converts calls of the profiling function that were recorded at their first execution: to NOPs,
//! or to calls of stubs if tracers want their functions.
//!
//! A record is an address out of a program's memory and may be arbitrary. It is accepted if
//! executable memory is mapped there and holds a call that leads to a profiling function. Like
//! every site, it is checked again right before it is written.

use super::Planner;
use crate::error::Error;
use crate::plan::journal::{Entries, Entry};
use crate::plan::loaded::{Call, ProcessModule};
use crate::plan::modules::{Mapped, is_shared_text};
use crate::plan::reason::{CodeBytes, NotACall};
use calltap_collect::metadata::Metadata;
use calltap_patch::{Avma, Site, Text};
use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::target::Target;
use calltap_selection::Ftraced;
use calltap_sites::{ProfilingFunction, SiteKind, Svma};
use calltap_trace::{Module, Record};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// How far in front of its call to search for the start of a function without a symbol.
const BEFORE: u64 = 64;
/// Maximum distance of the start of a function that has a symbol.
const MAX_DISTANCE: u64 = 512;
/// Maximum size of a linker's stub.
const STUB: usize = 11;

/// A recorded address that is no call of the profiling function.
#[derive(Debug)]
struct Failed {
    /// Index of the process, plus one.
    process: u32,
    /// The recorded return address.
    ip: u64,
    /// Number of the address's record, which stays in the hash so that the address is not recorded
    /// again.
    record: u32,
}

/// Calls that were recorded at their first execution and are not converted.
#[derive(Default)]
pub(super) struct FirstCalls {
    /// Records that turned out to be of no call of the profiling function.
    failed: Vec<Failed>,
    /// Whether a found call could not be converted yet.
    pending: bool,
}

impl Planner<'_> {
    /// Converts the calls recorded since the last time, in one batch. `first`: the process that was
    /// started or attached to.
    pub(crate) fn convert(
        &mut self,
        first: &Target,
        own: &mut Ftraced,
        emit: &mut (dyn FnMut(Metadata) + Send),
    ) -> Result<(), Error> {
        let Some(hash) = self.shared.first_calls() else { return Ok(()) };
        self.forget_failed();
        let was_triggered = hash.counters.trigger.swap(0, AcqRel) != 0;
        if !was_triggered && !self.first_calls.pending {
            self.shared.replenish_first();
            return Ok(());
        }
        let start = Instant::now();
        let mut taken: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
        hash.take(|record, process, ip| taken.entry(process).or_default().push((record, ip)));
        own.skipped = hash.counters.skipped.load(Relaxed);
        let before = self.converted();
        let (mut done, mut pending) = (Ok(()), false);
        let living = self.living(first);
        self.meet_new(&living)?;
        for (index, target) in living {
            let mut calls = taken.remove(&(index + 1)).unwrap_or_default();
            if calls.is_empty() && !self.is_undrained(index, false) {
                continue;
            }
            calls.sort_by_key(|(_, ip)| *ip);
            self.add_calls(index, &target, &calls, own, emit);
            let ended = self.sync_sites(index, &target, &mut Stops::default(), emit);
            pending |= self.is_undrained(index, false);
            // A process that has ended meanwhile is skipped.
            if target.lives() {
                done = done.and(ended);
            }
        }
        self.first_calls.pending = pending;
        self.shared.replenish_first();
        let converted = self.converted();
        let changes = converted.saturating_sub(before) as u64;
        let warning = own.update(changes, converted as u64, start.elapsed());
        for module in self.processes.values().flat_map(|process| &process.modules) {
            module.failures().for_each(|what| own.fail(what));
        }
        if let Some(text) = warning {
            hash.counters.suspended.store(1, Release);
            self.warnings.push(text.clone());
            emit(Record::Note { text }.into());
        }
        done
    }

    /// Resumes the recording of first calls.
    pub(crate) fn resume_recording(&self) {
        self.shared.control().first_calls.suspended.store(0, Release);
    }

    fn converted(&self) -> usize {
        self.processes.values().flat_map(|process| &process.modules).map(ProcessModule::converted).sum()
    }

    /// Removes the records of code that is gone: new code at the address is recorded again.
    fn forget_failed(&mut self) {
        if self.first_calls.failed.is_empty() {
            return;
        }
        let Some(hash) = self.shared.first_calls() else { return };
        let mut maps: HashMap<u32, Vec<Region>> = HashMap::new();
        let pid = |process: u32| self.pid_of(process.wrapping_sub(1));
        let processes: Vec<u32> = self.first_calls.failed.iter().map(|failed| failed.process).collect();
        for process in processes {
            maps.entry(process).or_insert_with(|| maps::read(pid(process)).unwrap_or_default());
        }
        self.first_calls.failed.retain(|failed| {
            let is_there =
                maps.get(&failed.process).is_some_and(|regions| code_at(regions, failed.ip).is_some());
            if !is_there {
                hash.forget(failed.record);
            }
            is_there
        });
    }

    /// Creates the sites of recorded calls in a process.
    fn add_calls(
        &mut self,
        index: u32,
        target: &Target,
        calls: &[(u32, u64)],
        own: &mut Ftraced,
        emit: &mut dyn FnMut(Metadata),
    ) {
        let Ok(regions) = maps::read(target.pid) else { return };
        let mut records = Vec::new();
        self.see_modules(index, target.pid, false, &regions, &mut records);
        if let Err(why) = self.open_text(index, target.pid) {
            records.push(Record::Note { text: why.to_string() }.into());
        }
        records.into_iter().for_each(emit);
        let Some(mut process) = self.processes.remove(&index) else { return };
        if let Some(text) = &mut process.text {
            let profilers = process.modules.iter().flat_map(ProcessModule::profilers).collect();
            let mut reader = CodeReader { regions: &regions, profilers, text, converted: None };
            let mut found = CallsByModule::new();
            for (record, ip) in calls {
                let why = match find_call(index, &mut process.modules, &mut reader, *ip) {
                    Ok(call) => {
                        call.into_iter()
                            .for_each(|(module, call)| found.entry(module).or_default().push(call));
                        continue;
                    }
                    Err(why) => why,
                };
                own.fail(format!("{ip:#x}: {why}"));
                // An unmapped address has no place in the hash.
                if code_at(&regions, *ip).is_some()
                    && let Some(hash) = self.shared.first_calls()
                {
                    hash.put_back(*record);
                    self.first_calls.failed.push(Failed { process: index + 1, ip: *ip, record: *record });
                }
            }
            found.into_iter().for_each(|(module, calls)| process.modules[module].add(calls, &mut self.stubs));
        }
        self.processes.insert(index, process);
    }

    /// Restores the sites of calls that earlier controllers have found, from the entries that
    /// [apply](crate::plan::journal::standing).
    pub(super) fn recall_calls(
        &mut self,
        index: u32,
        regions: &[Region],
        entries: &[&Entry],
        text: &mut ProcessText,
    ) {
        let Some(mut process) = self.processes.remove(&index) else { return };
        let profilers = process.modules.iter().flat_map(ProcessModule::profilers).collect();
        let mut reader = CodeReader { regions, profilers, text, converted: None };
        let seen = entries.iter().filter_map(|entry| match entry {
            Entry::Site { site, target: Avma(0), stub: None, .. } => Some((site.address(), *site)),
            _ => None,
        });
        let (seen, mut found): (BTreeMap<Avma, Site>, _) = (seen.collect(), CallsByModule::new());
        for (at, site) in seen {
            reader.converted = Some(site);
            // A place that is no call any more is left out.
            if let Ok(Some((module, call))) =
                find_call(index, &mut process.modules, &mut reader, at.0 + site.len() as u64)
            {
                found.entry(module).or_default().push(call);
            }
        }
        found.into_iter().for_each(|(module, calls)| process.modules[module].add(calls, &mut self.stubs));
        // The journal has these entries already.
        self.stubs.to_note = Entries::default();
        self.processes.insert(index, process);
    }

    /// Notes whether calls of earlier controllers are still to be converted.
    pub(super) fn recall_pending(&mut self) {
        self.first_calls.pending = self.processes.keys().any(|index| self.is_undrained(*index, false));
    }

    /// Takes the warnings for the user.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

/// Found calls, by the index of their module.
type CallsByModule = BTreeMap<usize, Vec<Call>>;

/// Returns the call that returns to `ip`, with the index of its module; None if its site is known
/// already. The error is the reason why there is no call of the profiling function.
fn find_call(
    index: u32,
    modules: &mut Vec<ProcessModule>,
    reader: &mut CodeReader<'_>,
    ip: u64,
) -> Result<Option<(usize, Call)>, NotACall> {
    let region = code_at(reader.regions, ip).ok_or(NotACall::Gone)?;
    if is_shared_text(region) {
        return Err(NotACall::Shared);
    }
    // The call was converted while a thread was on its way from it.
    let sites = [ip.wrapping_sub(5), ip.wrapping_sub(6)].map(Avma);
    if modules.iter().any(|module| sites.iter().any(|at| module.is_known(*at, reader.text))) {
        return Ok(None);
    }
    let (at, old, hook) = reader.call(region, ip)?;
    let kind = match hook {
        ProfilingFunction::Fentry => SiteKind::Fentry,
        ProfilingFunction::Mcount => SiteKind::Mcount,
    };
    let inside = |module: &ProcessModule| (module.mapped.range.0..module.mapped.range.1).contains(&at);
    let in_file = modules.iter().position(|module| !module.is_made() && inside(module));
    if let Some(number) = in_file {
        let found = modules[number].function_at(at);
        let form = found.and_then(|(function, start, svma)| {
            let code = reader.code(at - (svma.0 - start.0), ip)?;
            let known = modules[number].function(function);
            Some((kind, calltap_sites::called(known, &code, start, svma, hook)?))
        });
        let function = found.map_or(usize::MAX, |(function, ..)| function);
        return Ok(Some((number, Call { function, at: Avma(at), old, form })));
    }
    let made = modules.iter().position(|module| module.is_made() && inside(module));
    let number = made.unwrap_or_else(|| {
        let mapped = Mapped::made(region);
        let record = Module {
            id: 0,
            process: index,
            path: mapped.path.to_string_lossy().into_owned(),
            link: None,
            build_id: None,
            bias: 0,
            range: mapped.range,
            unloaded_ticks: None,
            untraceable: calltap_trace::Untraceable::default(),
        };
        modules.push(ProcessModule::made(mapped, record));
        modules.len() - 1
    });
    let before = reader.code(region.start.max(at.saturating_sub(BEFORE)), at).unwrap_or_default();
    let start = calltap_sites::beginning(&before, Svma(at), hook);
    let form = start.and_then(|start| {
        let code = reader.code(start.0, ip)?;
        Some((kind, calltap_sites::called(None, &code, start, Svma(at), hook)?))
    });
    let function = modules[number].made_at(start.map_or(at, |start| start.0));
    Ok(Some((number, Call { function, at: Avma(at), old, form })))
}

/// Returns the executable region that contains the call before `ip`.
fn code_at(regions: &[Region], ip: u64) -> Option<&Region> {
    let last = ip.wrapping_sub(1);
    regions.iter().find(|region| region.executable && (region.start..region.end).contains(&last))
}

/// Access to a process's code, to resolve the targets of calls.
struct CodeReader<'a> {
    regions: &'a [Region],
    /// Profiling functions by address.
    profilers: HashMap<u64, ProfilingFunction>,
    text: &'a mut ProcessText,
    /// A converted call, which is read as it was before.
    converted: Option<Site>,
}

impl CodeReader<'_> {
    /// Returns the call that returns to `ip`: its address, its bytes, and the profiling function
    /// that it leads to.
    fn call(&mut self, region: &Region, ip: u64) -> Result<(u64, Vec<u8>, ProfilingFunction), NotACall> {
        let length = (ip - region.start).min(6);
        let code = self.code(ip - length, ip).ok_or(NotACall::Unreadable)?;
        let operand = |code: &[u8]| {
            let bytes = code.last_chunk::<4>()?;
            Some(ip.wrapping_add_signed(i32::from_le_bytes(*bytes).into()))
        };
        let (length, hook) = match code[..] {
            [.., 0xE8, _, _, _, _] => (5, operand(&code).and_then(|target| self.profiler_at(target))),
            [0xFF, 0x15, _, _, _, _] => {
                let target = operand(&code).and_then(|slot| self.word(slot));
                (6, target.and_then(|target| self.profiler_at(target)))
            }
            _ => (0, None),
        };
        match hook {
            Some(hook) => Ok((ip - length, code[code.len() - length as usize..].to_vec(), hook)),
            None => Err(NotACall::OtherCode { code: CodeBytes(code) }),
        }
    }

    /// Returns the profiling function at an address, or the one that a linker's stub there leads
    /// to.
    fn profiler_at(&mut self, target: u64) -> Option<ProfilingFunction> {
        let known = self.profilers.get(&target).copied();
        known.or_else(|| {
            let code = self.code(target, target + STUB as u64)?;
            let slot = calltap_sites::plt_slot(&code, target)?;
            let target = self.word(slot)?;
            self.profilers.get(&target).copied()
        })
    }

    fn word(&mut self, slot: u64) -> Option<u64> {
        let word = self.code(slot, slot.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// Reads the bytes from `start` to `end`.
    fn code(&mut self, start: u64, end: u64) -> Option<Vec<u8>> {
        let length = end.checked_sub(start).filter(|length| *length <= MAX_DISTANCE)?;
        let mut code = vec![0; length as usize];
        self.text.read(Avma(start), &mut code).ok()?;
        if let Some(site) = &self.converted {
            let (at, (_, original)) = (site.address().0, site.parts());
            for (place, byte) in (at..).zip(original).filter(|(place, _)| (start..end).contains(place)) {
                code[(place - start) as usize] = *byte;
            }
        }
        Some(code)
    }
}
