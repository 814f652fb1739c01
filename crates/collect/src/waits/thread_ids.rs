//! The session's threads, and the ids by which the kernel knows them.

use calltap_trace::ThreadId;
use std::collections::HashMap;

/// The id of each thread, with a value. Found from both sides in constant time, as a program may
/// begin a hundred thousand threads in a second.
pub(super) struct ThreadIds<T> {
    of: HashMap<ThreadId, (u32, T)>,
    owners: HashMap<u32, ThreadId>,
}

impl<T> Default for ThreadIds<T> {
    fn default() -> Self {
        ThreadIds { of: HashMap::new(), owners: HashMap::new() }
    }
}

impl<T: Copy> ThreadIds<T> {
    /// Gives an id to a thread. A former owner has ended, and is forgotten.
    pub(super) fn claim(&mut self, thread: ThreadId, tid: u32, value: T) {
        if let Some(former) = self.owners.insert(tid, thread) {
            self.of.remove(&former);
        }
        self.of.insert(thread, (tid, value));
    }

    /// Returns the thread with this id.
    pub(super) fn owner(&self, tid: u32) -> Option<ThreadId> {
        self.owners.get(&tid).copied()
    }

    pub(super) fn get(&self, thread: ThreadId) -> Option<(u32, T)> {
        self.of.get(&thread).copied()
    }

    /// Forgets a thread.
    pub(super) fn remove(&mut self, thread: ThreadId) -> Option<(u32, T)> {
        let (tid, value) = self.of.remove(&thread)?;
        self.owners.remove(&tid);
        Some((tid, value))
    }

    /// Returns all threads, with their ids and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ThreadId, u32, T)> {
        self.of.iter().map(|(thread, (tid, value))| (*thread, *tid, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_belongs_to_its_newest_thread() {
        let mut ids = ThreadIds::default();
        ids.claim(ThreadId(1), 100, 'a');
        ids.claim(ThreadId(2), 200, 'b');
        ids.claim(ThreadId(3), 100, 'c');
        assert_eq!([100, 200, 300].map(|tid| ids.owner(tid)), [Some(ThreadId(3)), Some(ThreadId(2)), None]);
        assert_eq!((ids.get(ThreadId(1)), ids.remove(ThreadId(1))), (None, None));
        assert_eq!(ids.owner(100), Some(ThreadId(3)), "the former owner's end takes nothing");
        assert_eq!(ids.remove(ThreadId(3)), Some((100, 'c')));
        assert_eq!(Vec::from_iter(ids.iter()), [(ThreadId(2), 200, 'b')]);
        assert_eq!(ids.owner(100), None);
    }
}
