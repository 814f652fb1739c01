//! The part of a call tree around one function.

use crate::off::Off;
use crate::paths::{NODES, NodeOff, Of, Paths};

/// Levels of callers kept.
const CALLERS: usize = 64;

/// Callers and callees of the requested functions.
pub(crate) struct FunctionGraph {
    /// Paths upwards: the children of a node are its callers.
    pub(crate) callers: Paths,
    /// The functions and, below them, their callees. A recursive call of the function is below it,
    /// not beside it.
    pub(crate) callees: Paths,
    /// Calls, recursive ones included.
    pub(crate) calls: u64,
    /// Time in outermost activations, ticks.
    pub(crate) total: u64,
    /// Off-CPU part of `total`; `None` if context switches were not recorded.
    pub(crate) off: Option<Off>,
}

impl FunctionGraph {
    /// Returns the paths of the callees or the callers, whose root has the functions' time.
    pub(crate) fn whole(self, callers: bool) -> Paths {
        let mut paths = if callers { self.callers } else { self.callees };
        paths.nodes[0].total = self.total;
        paths.add_off(0, &NodeOff { total: self.off.unwrap_or_default(), own: Off::default() });
        paths
    }
}

/// Merges the callers and callees of all target nodes; `None` if there is no target.
pub(crate) fn find(paths: &Paths, is_target: impl Fn(u32) -> bool) -> Option<FunctionGraph> {
    let empty = || Paths::switching(NODES, paths.off(0).is_some());
    let off = paths.off(0).map(|_| Off::default());
    let mut found = FunctionGraph { callers: empty(), callees: empty(), calls: 0, total: 0, off };
    // For each node inside a target, the corresponding node of the callees.
    let mut images: Vec<Option<u32>> = vec![None; paths.nodes.len()];
    let mut any = false;
    for at in 1..paths.nodes.len() as u32 {
        let node = &paths.nodes[at as usize];
        let above = images[node.parent as usize];
        let target = is_target(at);
        let outermost = target && above.is_none();
        if target {
            any = true;
            found.calls += node.calls;
            let ticks = if outermost { node.total } else { 0 };
            found.total = found.total.saturating_add(ticks);
            let off = paths.off(at).map_or(Off::default(), |off| off.total);
            let off = if outermost { off } else { Off::default() };
            if let Some(all) = &mut found.off {
                *all += off;
            }
            add_callers(paths, node.parent, (node.calls, ticks, off), &mut found.callers);
        }
        if let Some(parent) = if outermost { Some(0) } else { above }
            && let Of::Site(site) = paths.of(at)
        {
            let child = found.callees.child(parent, site);
            images[at as usize] = Some(child.unwrap_or(parent));
            let image = &mut found.callees.nodes[child.unwrap_or(parent) as usize];
            image.own = image.own.saturating_add(node.own);
            image.lost = image.lost.saturating_add(node.lost);
            if child.is_some() {
                image.calls += node.calls;
                image.cut += node.cut;
                image.total = image.total.saturating_add(node.total);
            }
            if let Some(NodeOff { total, own }) = paths.off(at) {
                let total = if child.is_some() { total } else { Off::default() };
                found.callees.add_off(child.unwrap_or(parent), &NodeOff { total, own });
            }
        }
    }
    any.then_some(found)
}

fn add_callers(paths: &Paths, mut from: u32, (calls, ticks, off): (u64, u64, Off), callers: &mut Paths) {
    let mut at = 0;
    for _ in 0..CALLERS {
        let Of::Site(site) = paths.of(from) else { return };
        let Some(child) = callers.child(at, site) else { return };
        at = child;
        callers.nodes[at as usize].calls += calls;
        let total = &mut callers.nodes[at as usize].total;
        *total = total.saturating_add(ticks);
        callers.add_off(at, &NodeOff { total: off, own: Off::default() });
        from = paths.nodes[from as usize].parent;
    }
}
