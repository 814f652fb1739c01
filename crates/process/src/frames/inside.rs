//! Whether stopped threads are inside patch sites.

use super::{CodeWord, Stacks, Whereabouts};
use calltap_patch::Site;

/// Origin of an address inside a site at which a thread continues.
///
/// Not every such word on a stack is one. An unwinder leaves many: it notes for each frame up to
/// which instruction it has read the table, and a row often begins inside a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// A call in the site, or the kernel for a signal handler: all that compiled code knows.
    ByCall,
    /// Anything. Go's runtime pushes the program counter of a goroutine that it preempts, and of
    /// code that is made at run time nothing is known.
    ByAnything,
}

impl Stacks {
    /// Returns the addresses inside these sites, sorted by address, at which threads are or may
    /// continue.
    pub fn inside(&self, sites: &[(Site, Pushed)]) -> Vec<u64> {
        let site_of = |address: u64| {
            let at = sites.partition_point(|(site, _)| site.inside().0 <= address).checked_sub(1)?;
            Some(&sites[at]).filter(|(site, _)| site.is_inside(address))
        };
        let counts = |word: &&CodeWord| {
            site_of(word.value).is_some_and(|(site, pushed)| {
                *pushed == Pushed::ByAnything || word.is_interrupted || site.may_return_to(word.value)
            })
        };
        let of_thread = |thread: &Whereabouts| {
            let now = Some(thread.rip).filter(|rip| site_of(*rip).is_some());
            let later = thread.words.iter().filter(counts).map(|word| word.value);
            Vec::from_iter(now.into_iter().chain(later))
        };
        self.threads.iter().flat_map(of_thread).collect()
    }
}
