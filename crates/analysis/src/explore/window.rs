//! Functions and call paths of a time interval.

use super::{Explorer, Flame, Function, list};
use crate::error::Error;
use crate::graph::function;
use crate::histogram::Histograms;
use crate::paths::{self, By, Children, NODES, Of, Paths};
use crate::sources::part::{Part, Which};
use crate::sources::source::Source;
use crate::sums;
use calltap_trace::SiteId;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of windows that are kept.
const KEPT: usize = 4;

/// The analysis of a time interval, as [`Part`] cuts it.
pub struct Window {
    /// The functions called in it, with the times of calls that begin and end there.
    pub functions: Vec<Function>,
    paths: Paths,
    children: Children,
}

/// The windows requested last, by their first nanosecond and the first after them.
pub(super) type Recent = Mutex<Vec<((u64, u64), Arc<Window>)>>;

impl<S: Source> Explorer<S> {
    /// Returns the analysis of a window, nanoseconds since the beginning of the timeline. Reads
    /// all events up to its end.
    pub fn window(&self, from: u64, to: u64) -> Result<Arc<Window>, Error> {
        let mut kept = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, window)) = kept.iter().find(|(bounds, _)| *bounds == (from, to)) {
            return Ok(window.clone());
        }
        let at = |ns: u64| Some(self.timeline.origin().saturating_add(ns));
        let part = Part::new(&self.source, Which { from: at(from), until: at(to), ..Which::default() });
        let (paths, _) = paths::collect_each(&part, NODES, false, |_, _| {}, None)?;
        let histograms = Histograms::new(part.meta().sites.len() + 1);
        let (sums, _) = sums::collect(&part, false, histograms, None)?;
        let (functions, _) = list(&part, sums);
        let children = paths.children();
        let window = Arc::new(Window { functions, paths, children });
        kept.insert(0, ((from, to), window.clone()));
        kept.truncate(KEPT);
        Ok(window)
    }

    /// Returns the flame graph of a window above a box, as [`Explorer::flame`] does.
    pub fn flame_in(&self, window: &Window, root: u32, by: By, narrowest: f64) -> Flame {
        let root = if (root as usize) < window.paths.nodes.len() { root } else { 0 };
        self.boxes(&window.paths, &window.children, root, by, narrowest)
    }

    /// Returns the flame graph of one function in a window, as [`Explorer::flame_of`] does.
    pub fn flame_of_in(
        &self,
        window: &Window,
        function: &Function,
        callers: bool,
        by: By,
        narrowest: f64,
    ) -> Option<Flame> {
        self.flame_of_paths(&window.paths, function.site, callers, by, narrowest)
    }

    pub(super) fn flame_of_paths(
        &self,
        paths: &Paths,
        site: SiteId,
        callers: bool,
        by: By,
        narrowest: f64,
    ) -> Option<Flame> {
        let is_it = |node| match paths.of(node) {
            Of::Site(found) => self.known(found) == site,
            _ => false,
        };
        let paths = function::find(paths, is_it)?.whole(callers);
        Some(self.boxes(&paths, &paths.children(), 0, by, narrowest))
    }
}
