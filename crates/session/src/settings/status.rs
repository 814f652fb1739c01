//! The status of a session, and the sums of its functions: answers to other commands.

use crate::plan::planner::{PatchMode, Planner};
use crate::settings::{Settings, Stage};
use calltap_collect::shm::Shared;
use calltap_process::clock;
use calltap_process::target::Target;
use calltap_selection::{Profiled, Selection};
use calltap_trace::{Module, Profile, Record, SiteId, TracerInfo};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Status of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Process id.
    pub pid: u32,
    /// Name of the process.
    #[serde(alias = "name")]
    pub comm: String,
    /// Whether a controller reads the rings (`record -p`, `top`).
    pub recording: bool,
    /// Number of processes: the first one and its children.
    pub processes: u32,
    /// Number of threads that have written events.
    pub threads: u32,
    /// Number of sites that lead to a stub.
    #[serde(alias = "sites_on")]
    pub functions_enabled: usize,
    /// Number of sites that led to a stub at some time.
    #[serde(alias = "sites_known")]
    pub functions_known: usize,
    /// Whether sites are to be enabled.
    pub on: bool,
    /// Bytes of ring memory in use.
    pub ring_bytes: u64,
    /// Bytes of stubs, veneers, and out-of-line copies.
    pub code_bytes: u64,
    /// Nanoseconds since the process was attached to.
    pub age_ns: u64,
    /// How code that may be running is changed.
    pub patch_mode: PatchMode,
    /// The tracers with their filters.
    pub tracers: Vec<TracerInfo>,
    /// Patterns of traced Python functions; empty if none are traced.
    #[serde(default)]
    pub python: Vec<String>,
    /// Whether native functions are traced only if a filter names them.
    #[serde(default)]
    pub named_only: bool,
    /// Sentence about which calls are kept; None if all are.
    #[serde(default)]
    pub kept: Option<String>,
}

impl Status {
    /// Collects the status of a session.
    pub(crate) fn new(
        target: &Target,
        shared: &Shared,
        settings: &Settings,
        planner: &Planner<'_>,
    ) -> Status {
        let ((functions_enabled, functions_known), words) = (planner.count(), &settings.words);
        Status {
            pid: target.pid,
            comm: target.name.clone(),
            recording: settings.stage == Stage::Recording,
            processes: shared.processes().end,
            threads: shared.threads().end,
            functions_enabled,
            functions_known,
            on: settings.on,
            ring_bytes: u64::from(shared.chunks_used()) * calltap_abi::CHUNK_SIZE as u64,
            code_bytes: planner.stubs.bytes(),
            age_ns: clock::monotonic_ns().saturating_sub(settings.session.start_monotonic_ns),
            patch_mode: settings.patch_mode,
            tracers: settings.session.tracers.iter().map(|tracer| as_given(tracer, words)).collect(),
            python: if words.traces_python() { words.python.clone() } else { Vec::new() },
            named_only: !words.python.is_empty(),
            kept: None,
        }
    }
}

/// Returns a tracer with its filter as the user has given it.
fn as_given(tracer: &TracerInfo, words: &Selection) -> TracerInfo {
    let is_given = |word: &&String| words.is_given(word);
    TracerInfo { filter: tracer.filter.iter().filter(is_given).cloned().collect(), ..tracer.clone() }
}

/// Adds up the sums of the profile tracer by function.
pub(crate) fn profile_functions(planner: &Planner<'_>, rows: &[Profile]) -> Vec<Profiled> {
    let mut by_site: HashMap<SiteId, Profile> = HashMap::new();
    for row in rows {
        by_site.entry(row.site).or_default().add(row);
    }
    // A function has several sites if it was requested with different hooks in turn.
    let (mut modules, mut all): (HashMap<u32, Module>, BTreeMap<(u32, u64), Profiled>) =
        (HashMap::new(), BTreeMap::new());
    planner.describe(&mut |metadata| {
        metadata.tell(&mut |record| match record {
            Record::Module(module) => drop(modules.insert(module.id, module.clone())),
            Record::Sites { sites } => {
                for site in sites {
                    let Some(profile) = by_site.remove(&site.id) else { continue };
                    let module = modules.get(&site.module);
                    let new = || Profiled {
                        function: site.name.clone(),
                        module: module.map(|module| module.path.clone()).unwrap_or_default(),
                        link: module.and_then(|module| module.link.clone()),
                        profile: Profile::default(),
                    };
                    all.entry((site.module, site.address)).or_insert_with(new).profile.add(&profile);
                }
            }
            _ => {}
        });
    });
    all.into_values().collect()
}
