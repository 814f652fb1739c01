//! Reports the mappings of a process to the collector, for unwinding stacks, and describes the
//! files that callers may be in.

use super::Planner;
use crate::plan::modules::mapped;
use calltap_collect::callers::Mapped;
use calltap_collect::metadata::Metadata;
use calltap_process::memory::maps::{self, Region};
use calltap_process::target::TextSegment;
use calltap_trace::{Module, Record};
use object::{Object, ReadCache};

impl Planner<'_> {
    /// Reports the mappings of all processes, for stacks that were copied before.
    pub(crate) fn map_all(&mut self, emit: &mut dyn FnMut(Metadata)) {
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        let mut records = Vec::new();
        for index in indices {
            let pid = self.pid_of(index);
            // A process that has ended has no mappings: the callers of its calls remain unknown.
            if let Ok(regions) = maps::read(pid) {
                self.map_out(index, pid, &regions, &mut records);
            }
        }
        records.into_iter().for_each(emit);
    }

    /// Reports the mappings if stacks are copied, and describes files without traced functions if
    /// callers may be in them.
    pub(super) fn map_out(&mut self, index: u32, pid: u32, regions: &[Region], records: &mut Vec<Metadata>) {
        if !self.stubs.unwinds && !self.stubs.names_callers {
            return;
        }
        let session = self.directory.inside();
        let all = mapped(regions, session);
        let Some(process) = self.processes.get_mut(&index) else { return };
        let loaded = &process.modules;
        process.named.retain(|named| all.iter().any(|file| file.is_same(named)));
        for file in all {
            let is_recorded = loaded.iter().any(|module| module.recorded && module.mapped.is_same(&file));
            if is_recorded || process.named.iter().any(|named| named.is_same(&file)) {
                continue;
            }
            let Some(opened) = file.open(pid) else { continue };
            let data = ReadCache::new(&opened);
            let Some(text) = TextSegment::of(&data) else { continue };
            let build_id =
                object::File::parse(&data).ok().and_then(|object| object.build_id().ok()?.map(hexadecimal));
            let module = Module {
                id: self.stubs.number_module(),
                process: index,
                path: file.path.to_string_lossy().into_owned(),
                link: file.link.clone(),
                build_id,
                bias: file.base().wrapping_sub(text.address.wrapping_sub(text.offset)),
                range: file.range,
                unloaded_ticks: None,
                untraceable: calltap_trace::Untraceable::default(),
            };
            records.push(Record::Module(module).into());
            process.named.push(file);
        }
        if !self.stubs.unwinds {
            return;
        }
        let executable = regions.iter().filter(|region| region.executable && region.file.1 != 0);
        records.push(Metadata::Mapped(Mapped {
            process: index,
            pid,
            regions: executable.cloned().collect(),
        }));
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
