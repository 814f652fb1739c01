//! The flame graph of the differences between a recording and another one, its base.

use super::{Explorer, Function};
use crate::boxes::{places, widths, widths_by_calls};
use crate::diff::functions::Functions;
use crate::error::Error;
use crate::graph::function;
use crate::paths::{self, By, Children, NODES, Of, Paths};
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use calltap_trace::SiteId;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A number of the base, and of the recording that is compared with it.
pub type Both = [u64; 2];

/// Index of the base in [`Both`].
const BASE: usize = 0;
/// Index of the compared recording in [`Both`].
const SHOWN: usize = 1;

/// The recording that another one is compared with. Functions are matched as in [`crate::diff`].
pub struct Base<S> {
    /// The recording.
    pub source: S,
    paths: Paths,
    functions: Functions,
    /// For each function, its identity in the compared recording.
    shown: Vec<Option<SiteId>>,
    /// The call paths of both recordings.
    all: OnceLock<Tree>,
}

/// The calls that a flame graph shows.
#[derive(Clone, Copy)]
pub enum Calls<'a> {
    /// All calls, above a box.
    All(u32),
    /// The callees of a function, or its callers.
    Of {
        /// The function.
        function: &'a Function,
        /// Whether its callers are shown.
        callers: bool,
    },
}

/// The widths of boxes.
#[derive(Clone, Copy)]
pub struct Width {
    /// The time that they stand for.
    pub by: By,
    /// Whether they are the base's.
    pub of_base: bool,
    /// Share of the lowest box's width below which boxes are left out.
    pub narrowest: f64,
}

/// A box of the flame graph.
#[derive(Clone, PartialEq, Debug)]
pub struct ComparedBox {
    /// The node, which can be passed as the root of another flame graph.
    pub node: u32,
    /// The function in the compared recording; `None` for the whole, and for a function that the
    /// base alone calls.
    pub site: Option<SiteId>,
    /// The function's name; `None` for the whole.
    pub name: Option<String>,
    /// Left end, as a share of the whole width.
    pub left: f64,
    /// Width, as a share of the whole width.
    pub width: f64,
    /// Number of boxes below it.
    pub level: u32,
    /// Number of calls.
    pub calls: Both,
    /// The requested time of its calls, nanoseconds; without times, its calls and all calls above
    /// it.
    pub weight: Both,
    /// The part of `weight` that is not in boxes above.
    pub own: Both,
}

/// A flame graph of differences, or the part above one box.
#[derive(Clone, Debug)]
pub struct ComparedFlame {
    /// The boxes, callers before callees.
    pub boxes: Vec<ComparedBox>,
    /// Node and function's name of the boxes below the lowest box, outermost first.
    pub below: Vec<(u32, Option<String>)>,
    /// Whether weights are times.
    pub timed: bool,
    /// Number of calls that count for their callers, as there are too many paths.
    pub merged: Both,
    /// Weight of paths that one recording alone has: that of the base, and that of the compared
    /// one.
    pub alone: Both,
}

/// The call paths of both recordings. Node 0 is the root, and each node follows its parent.
struct Tree {
    /// Parent and function.
    nodes: Vec<(u32, u32)>,
    children: Children,
    /// For each recording, the node of each of its paths.
    places: [Vec<u32>; 2],
}

impl Tree {
    fn new(of: [&Paths; 2], functions: &Functions) -> Tree {
        let mut nodes = vec![(0, u32::MAX)];
        let mut index: HashMap<(u32, u32), u32> = HashMap::new();
        let mut places = of.map(|paths| vec![0u32; paths.nodes.len()]);
        // The compared recording comes first: its order of functions is that of its own graph.
        for side in [SHOWN, BASE] {
            for (node, numbers) in of[side].nodes.iter().enumerate().skip(1) {
                let above = places[side][numbers.parent as usize];
                let function = match of[side].of(node as u32) {
                    Of::Site(site) => functions.of(side, 0, site),
                    _ => None,
                };
                let place = function.map(|function| {
                    *index.entry((above, function)).or_insert_with(|| {
                        nodes.push((above, function));
                        nodes.len() as u32 - 1
                    })
                });
                places[side][node] = place.unwrap_or(above);
            }
        }
        let children = Children::new(nodes.len(), |node| nodes[node].0);
        Tree { nodes, children, places }
    }

    /// Sums up the numbers of a recording's paths by node.
    fn sum(&self, side: usize, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut sums = vec![0u64; self.nodes.len()];
        for (place, number) in self.places[side].iter().zip(numbers) {
            let sum = &mut sums[*place as usize];
            *sum = sum.saturating_add(number);
        }
        sums
    }

    /// Returns the nodes that are paths of a recording.
    fn has(&self, side: usize) -> Vec<bool> {
        let mut has = vec![false; self.nodes.len()];
        self.places[side].iter().for_each(|place| has[*place as usize] = true);
        has
    }

    /// Returns the weight of a recording's paths that the other recording does not have.
    fn alone(&self, side: usize, weights: &[u64]) -> u64 {
        let (own, other) = (self.has(side), self.has(1 - side));
        let is_first = |node: &usize| own[*node] && !other[*node] && other[self.nodes[*node].0 as usize];
        (1..self.nodes.len()).filter(is_first).map(|node| weights[node]).fold(0, u64::saturating_add)
    }
}

impl<S: Source> Base<S> {
    /// Reads the call paths of a recording, with which `shown` is compared.
    pub fn new<T: Source>(source: S, shown: &Explorer<T>, progress: Progress<'_>) -> Result<Base<S>, Error> {
        let (paths, _) = paths::collect(&source, NODES, false, progress)?;
        let sites = [vec![paths.sites()], vec![shown.paths.sites()]];
        let functions = Functions::new([&[&source], &[&shown.source]], &sites, false);
        let mut known = vec![None; functions.list.len()];
        for site in shown.paths.sites() {
            if let Some(function) = functions.of(SHOWN, 0, site) {
                known[function as usize].get_or_insert(shown.known(site));
            }
        }
        Ok(Base { source, paths, functions, shown: known, all: OnceLock::new() })
    }

    /// Whether both recordings have the context switches of their threads.
    pub fn has_switches<T: Source>(&self, shown: &Explorer<T>) -> bool {
        self.source.has_switches() && shown.source.has_switches()
    }

    /// Returns the flame graph of differences. `None` if neither recording has the requested calls.
    pub fn flame<T: Source>(
        &self,
        shown: &Explorer<T>,
        calls: Calls<'_>,
        width: Width,
    ) -> Option<ComparedFlame> {
        let both = [&self.paths, &shown.paths];
        let sources: [&dyn Source; 2] = [&self.source, &shown.source];
        match calls {
            Calls::All(root) => {
                let tree = self.all.get_or_init(|| Tree::new(both, &self.functions));
                Some(self.boxes(sources, both, tree, root, width))
            }
            Calls::Of { function, callers } => {
                let around = self.around(both, function.site, callers)?;
                let both = [&around[BASE], &around[SHOWN]];
                Some(self.boxes(sources, both, &Tree::new(both, &self.functions), 0, width))
            }
        }
    }

    /// Returns the callees or callers of a function in each recording; `None` if it is in neither.
    fn around(&self, both: [&Paths; 2], site: SiteId, callers: bool) -> Option<[Paths; 2]> {
        let wanted = self.functions.of(SHOWN, 0, site)?;
        let found = [BASE, SHOWN].map(|side| {
            let is_it = |node| match both[side].of(node) {
                Of::Site(site) => self.functions.of(side, 0, site) == Some(wanted),
                _ => false,
            };
            function::find(both[side], is_it).map(|found| found.whole(callers))
        });
        found.iter().any(Option::is_some).then(|| found.map(|paths| paths.unwrap_or_else(|| Paths::new(1))))
    }

    fn boxes(
        &self,
        sources: [&dyn Source; 2],
        both: [&Paths; 2],
        tree: &Tree,
        root: u32,
        Width { by, of_base, narrowest }: Width,
    ) -> ComparedFlame {
        let root = if (root as usize) < tree.nodes.len() { root } else { 0 };
        let has_times = |side: usize| sources[side].has_time() && both[side].nodes[0].total > 0;
        let timed = [BASE, SHOWN].iter().all(|side| both[*side].is_empty() || has_times(*side));
        let weights = [BASE, SHOWN].map(|side| {
            let all =
                if timed { widths(sources[side], both[side], by).0 } else { widths_by_calls(both[side]) };
            let unit = |width| if timed { sources[side].duration_ns(width) } else { width };
            tree.sum(side, all.into_iter().map(unit))
        });
        let calls = [BASE, SHOWN].map(|side| tree.sum(side, both[side].nodes.iter().map(|node| node.calls)));
        let name = |node: u32| self.functions.list.get(tree.nodes[node as usize].1 as usize);
        let widths = &weights[if of_base { BASE } else { SHOWN }];
        let whole = widths[root as usize].max(1) as f64;
        let boxed = |place: crate::boxes::BoxPosition| {
            let at = place.node as usize;
            let above = |weights: &Vec<u64>| {
                let above = tree.children.of(place.node).iter().map(|child| weights[*child as usize]);
                above.fold(0, u64::saturating_add)
            };
            ComparedBox {
                node: place.node,
                site: self.shown.get(tree.nodes[at].1 as usize).copied().flatten(),
                name: name(place.node).map(|function| function.name.clone()),
                left: place.left as f64 / whole,
                width: widths[at] as f64 / whole,
                level: place.level,
                calls: [BASE, SHOWN].map(|side| calls[side][at]),
                weight: [BASE, SHOWN].map(|side| weights[side][at]),
                own: [BASE, SHOWN].map(|side| weights[side][at].saturating_sub(above(&weights[side]))),
            }
        };
        let boxes = places(&tree.children, widths, root, narrowest).into_iter().map(boxed).collect();
        let (mut below, mut at) = (Vec::new(), root);
        while at != 0 {
            at = tree.nodes[at as usize].0;
            below.push((at, name(at).map(|function| function.name.clone())));
        }
        below.reverse();
        let alone = [BASE, SHOWN].map(|side| tree.alone(side, &weights[side]));
        ComparedFlame { boxes, below, timed, merged: both.map(|paths| paths.merged), alone }
    }
}
