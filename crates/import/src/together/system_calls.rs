//! Which threads of the output have their system calls among their events: a reader adds those of
//! the others from their logs.

use super::lane::Counts;
use super::tables::Tables;
use super::{Recording, Refused};
use calltap_trace::ThreadId;
use std::collections::{BTreeSet, HashMap};

/// Note in a trace whose reader adds no system calls to some threads.
pub(super) const HIDDEN: &str = "system calls are not shown as calls in threads with functions of the kernel, whose place in them is not known; 'calltap why' names those that threads waited in";

/// The threads to which a reader adds no system calls.
pub(super) struct Shown {
    pub(super) threads: BTreeSet<ThreadId>,
    /// Whether the system calls of some of them are among no events.
    pub(super) hidden: bool,
}

impl Shown {
    /// Finds the threads. `nested`: numbers of the kernel's events within those of programs.
    pub(super) fn find(
        recordings: &[Recording],
        tables: &Tables,
        nested: &HashMap<ThreadId, Counts>,
    ) -> Result<Shown, Refused> {
        let mut threads = BTreeSet::new();
        for (recording, ids) in recordings.iter().zip(&tables.ids) {
            let own = recording.reader.meta().calls_in_events();
            threads.extend(own.filter_map(|thread| ids.thread(thread)));
        }
        // Where the log is from a recording of the kernel, the calls are in that one's thread.
        for row in &tables.threads {
            let Some(beside) = row.beside else { continue };
            let own = || recordings[row.own.recording].reader.system_calls(row.own.thread);
            let mut of_kernel = recordings[beside.recording].reader.meta().calls_in_events();
            if of_kernel.any(|thread| thread == beside.thread) && own()?.entries.is_empty() {
                threads.insert(row.thread.id);
            }
        }
        // A system call that a reader adds has no calls in it: beside functions of the kernel it
        // would not be where it was.
        let with_functions =
            nested.iter().filter(|(_, counts)| counts.entries > 0).map(|(thread, _)| *thread);
        let without_calls: Vec<ThreadId> =
            with_functions.filter(|thread| !threads.contains(thread)).collect();
        let hidden = !without_calls.is_empty();
        threads.extend(without_calls);
        Ok(Shown { threads, hidden })
    }
}
