//! How code is changed that may be running.

use calltap_patch::Transition;
use serde::{Deserialize, Serialize};

/// How code that may be running is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchMode {
    /// While everything runs, with core syncs between the steps.
    #[default]
    Live,
    /// The same, through the `jmp 3f` of the mails that dynamic ftrace began with.
    Jmp3f,
    /// The same, through breakpoints that the agent handles.
    Breakpoint,
    /// Before it runs; what is switched later, as [`PatchMode::Live`].
    BeforeStart,
    /// While all threads stand still: what ftrace did at first, and what is left where the kernel has no membarrier.
    #[serde(rename = "stop_machine")]
    StopMachine,
}

impl PatchMode {
    /// All, with their names.
    pub const NAMES: [(PatchMode, &str); 5] = [
        (PatchMode::Live, "live"),
        (PatchMode::Jmp3f, "jmp3f"),
        (PatchMode::Breakpoint, "breakpoint"),
        (PatchMode::StopMachine, "stop_machine"),
        (PatchMode::BeforeStart, "before-start"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        PatchMode::NAMES.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// Does everything run on meanwhile?
    pub(crate) fn is_live(self) -> bool {
        self != PatchMode::StopMachine
    }

    /// What sites are meanwhile. Breakpoints have to be [seen to](crate::plan::planner::Planner::arm).
    pub(crate) fn transition(self) -> Transition {
        match self {
            PatchMode::Jmp3f => Transition::Jmp3f,
            _ => Transition::Test,
        }
    }
}
