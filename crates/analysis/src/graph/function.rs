//! The part of a call tree around one function.

use crate::paths::{NODES, Of, Paths};

/// Levels of callers kept.
const CALLERS: usize = 64;

/// Callers and callees of the functions asked for.
pub(crate) struct Found {
    /// Paths upwards: a node's children are its callers.
    pub(crate) callers: Paths,
    /// The functions themselves and, below them, what they call. A call of the function from within itself is
    /// below it, not beside it.
    pub(crate) callees: Paths,
    /// Calls, recursive ones included.
    pub(crate) calls: u64,
    /// Ticks in outermost activations.
    pub(crate) total: u64,
}

/// `None` when no node is a target.
pub(crate) fn find(paths: &Paths, is_target: impl Fn(u32) -> bool) -> Option<Found> {
    let mut found = Found { callers: Paths::new(NODES), callees: Paths::new(NODES), calls: 0, total: 0 };
    // Where a node inside a target is found among the callees.
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
            add_callers(paths, node.parent, node.calls, ticks, &mut found.callers);
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
        }
    }
    any.then_some(found)
}

fn add_callers(paths: &Paths, mut from: u32, calls: u64, ticks: u64, callers: &mut Paths) {
    let mut at = 0;
    for _ in 0..CALLERS {
        let Of::Site(site) = paths.of(from) else { return };
        let Some(child) = callers.child(at, site) else { return };
        at = child;
        callers.nodes[at as usize].calls += calls;
        let total = &mut callers.nodes[at as usize].total;
        *total = total.saturating_add(ticks);
        from = paths.nodes[from as usize].parent;
    }
}
