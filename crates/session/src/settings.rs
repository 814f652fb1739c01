//! Settings of a session, as stored in its directory.

pub(crate) mod status;

use crate::error::Error;
use crate::plan::directory::Directory;
use crate::plan::planner::PatchMode;
use calltap_collect::metadata::{Metadata, SwitchedOff};
use calltap_process::clock;
use calltap_process::target::Target;
use calltap_selection::Selection;
use calltap_trace::{ClockPair, Session, SiteId};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The file in the session directory that holds [`Settings`].
pub(crate) const FILE: &str = "settings";

/// Maximum number of functions that are remembered with the time at which they were disabled.
const MAX_DISABLED: usize = 1 << 18;

/// Stage of a session. If it is not `Attached`, the session is over once its controller is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// A controller was attaching.
    #[serde(alias = "Coming")]
    Attaching,
    /// A controller was recording.
    Recording,
    /// The session is attached, for commands that open it.
    Attached,
}

/// Settings of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Stage of the session.
    pub(crate) stage: Stage,
    /// Session record for traces.
    pub session: Session,
    /// The clocks at the start of the session.
    pub clocks: ClockPair,
    /// Processor time that the process had used at the start of the session.
    pub cpu: Duration,
    /// Selection, in the user's words.
    pub words: Selection,
    /// Whether sites are to be enabled.
    pub on: bool,
    /// How running code is changed.
    pub patch_mode: PatchMode,
    /// Functions that were disabled, oldest first: the rings may have calls of theirs that have not
    /// recorded a return.
    #[serde(default)]
    pub(crate) disabled: Vec<Disabled>,
}

/// Functions that were disabled together, by their stubs; times are in ticks of the events' clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Disabled {
    sites: Vec<u32>,
    unrecorded_returns: Vec<u32>,
    began: u64,
    ended: u64,
}

impl Disabled {
    fn of(off: &SwitchedOff) -> Option<Disabled> {
        let numbers = |sites: &HashSet<SiteId>| sites.iter().map(|site| site.0).collect();
        Some(Disabled {
            sites: numbers(&off.sites),
            unrecorded_returns: numbers(&off.unrecorded_returns),
            began: *off.began.get()?,
            ended: *off.ended.get()?,
        })
    }

    fn metadata(&self) -> Metadata {
        let sites = |numbers: &[u32]| numbers.iter().copied().map(SiteId).collect();
        Metadata::SwitchedOff(Arc::new(SwitchedOff {
            sites: sites(&self.sites),
            unrecorded_returns: sites(&self.unrecorded_returns),
            began: OnceLock::from(self.began),
            ended: OnceLock::from(self.ended),
        }))
    }
}

impl Settings {
    /// Creates the settings of a new session.
    pub(crate) fn new(
        stage: Stage,
        target: &Target,
        session: Session,
        words: Selection,
        patch_mode: PatchMode,
    ) -> Settings {
        let cpu = target.cpu().unwrap_or_default();
        Settings {
            stage,
            session,
            clocks: clock::pair(),
            cpu,
            words,
            on: true,
            patch_mode,
            disabled: Vec::new(),
        }
    }

    /// Remembers which functions a change has disabled. The oldest are forgotten beyond a limit.
    pub(crate) fn note_disabled(&mut self, changes: &[Arc<SwitchedOff>]) {
        self.disabled.extend(changes.iter().filter_map(|off| Disabled::of(off)));
        let mut kept = 0;
        let is_kept = |disabled: &&Disabled| {
            let is_newest = kept == 0;
            kept += disabled.sites.len();
            is_newest || kept <= MAX_DISABLED
        };
        let number = self.disabled.iter().rev().take_while(is_kept).count();
        self.disabled.drain(..self.disabled.len() - number);
    }

    /// Returns what a collector of the rings has to know of disabled functions.
    pub(crate) fn disabled(&self) -> impl Iterator<Item = Metadata> {
        self.disabled.iter().map(Disabled::metadata)
    }

    /// Writes the settings to the session directory.
    pub(crate) fn save(&self, directory: &Directory) -> Result<(), Error> {
        let text = serde_json::to_string(self).unwrap_or_default();
        directory.write(FILE, &text).map_err(|source| Error::system("the session's settings", source))
    }

    /// Reads the settings, if they exist.
    pub(crate) fn load(directory: &Directory) -> Option<Settings> {
        serde_json::from_str(&directory.read(FILE).ok()?).ok()
    }
}
