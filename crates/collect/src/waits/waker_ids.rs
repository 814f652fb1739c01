//! The ids of threads that woke others, in the namespace of the traced process.

use calltap_trace::Waking;
use std::collections::HashMap;

/// Translates ids of threads from the recorder's namespace, which the kernel's records have, to
/// that of the traced process, which traces have.
#[derive(Default)]
pub(super) struct WakerIds {
    /// Process, and ids in its own namespace, of each of the session's threads.
    known: HashMap<u32, (u32, (u32, u32))>,
    /// Whether a process has other ids in its own namespace.
    differ: bool,
}

impl WakerIds {
    /// Notes the ids of a thread and its process, in the recorder's namespace and in their own.
    pub(super) fn know(&mut self, (pid, tid): (u32, u32), own: (u32, u32)) {
        self.differ |= (pid, tid) != own;
        self.known.insert(tid, (pid, own));
    }

    /// Translates the ids of a waking.
    pub(super) fn translate(&self, waking: &mut Waking) {
        if !self.differ {
            return;
        }
        match self.known.get(&waking.tid) {
            Some((pid, own)) if *pid == waking.pid => (waking.pid, waking.tid) = *own,
            // A thread of the program may have the same id in its namespace.
            _ => waking.tid = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakers_have_the_ids_of_their_own_namespace() {
        let translated = |wakers: &WakerIds, pid, tid| {
            let mut waking = Waking { pid, tid, at: 1, interrupt: false, comm: String::new() };
            wakers.translate(&mut waking);
            (waking.pid, waking.tid)
        };
        let mut wakers = WakerIds::default();
        wakers.know((700, 700), (700, 700));
        assert_eq!([translated(&wakers, 700, 700), translated(&wakers, 15, 15)], [(700, 700), (15, 15)]);
        wakers.know((815, 816), (1, 15));
        let all = [(700, 700), (815, 816), (15, 15), (15, 816)];
        let expected = [(700, 700), (1, 15), (15, 0), (15, 0)];
        assert_eq!(all.map(|(pid, tid)| translated(&wakers, pid, tid)), expected);
    }
}
