//! Ways to change code that may be running.

use calltap_patch::Transition;
use serde::{Deserialize, Serialize};

/// The way to change code that may be running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchMode {
    /// While the program runs, with core syncs between the steps.
    #[default]
    Live,
    /// While the program runs, through the `jmp 3f` of the mails that dynamic ftrace began with.
    Jmp3f,
    /// While the program runs, through breakpoints that the agent handles.
    Breakpoint,
    /// Before the code runs; later changes as [`PatchMode::Live`].
    BeforeStart,
    /// While all threads are stopped: the first way of ftrace, and the only one without the
    /// kernel's membarrier.
    #[serde(rename = "stop_machine")]
    StopMachine,
}

impl PatchMode {
    /// All modes with their names.
    pub const NAMES: [(PatchMode, &str); 5] = [
        (PatchMode::Live, "live"),
        (PatchMode::Jmp3f, "jmp3f"),
        (PatchMode::Breakpoint, "breakpoint"),
        (PatchMode::StopMachine, "stop_machine"),
        (PatchMode::BeforeStart, "before-start"),
    ];

    /// Returns the name of the mode.
    pub fn name(self) -> &'static str {
        PatchMode::NAMES.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// Whether the program runs on during a change.
    pub(crate) fn is_live(self) -> bool {
        self != PatchMode::StopMachine
    }

    /// Returns the transitional instruction of sites. Breakpoints have to be
    /// [prepared](crate::plan::planner::Planner::arm).
    pub(crate) fn transition(self) -> Transition {
        match self {
            PatchMode::Jmp3f => Transition::Jmp3f,
            _ => Transition::Test,
        }
    }
}
