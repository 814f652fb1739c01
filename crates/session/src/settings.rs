//! Settings of a session, as stored in its directory.

pub mod status;

use crate::error::Error;
use crate::plan::directory::Directory;
use crate::plan::planner::PatchMode;
use calltap_process::clock;
use calltap_process::target::Target;
use calltap_selection::Selection;
use calltap_trace::{ClockPair, Session};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The file in the session directory that holds [`Settings`].
pub(crate) const FILE: &str = "settings";

/// Stage of a session. If it is not `Attached`, the session is over once its controller is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
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
}

impl Settings {
    /// Creates the settings of a new session.
    pub fn new(
        stage: Stage,
        target: &Target,
        session: Session,
        words: Selection,
        patch_mode: PatchMode,
    ) -> Settings {
        let cpu = target.cpu().unwrap_or_default();
        Settings { stage, session, clocks: clock::pair(), cpu, words, on: true, patch_mode }
    }

    /// Writes the settings to the session directory.
    pub fn save(&self, directory: &Directory) -> Result<(), Error> {
        let text = serde_json::to_string(self).unwrap_or_default();
        directory.write(FILE, &text).map_err(|source| Error::system("the session's settings", source))
    }

    /// Reads the settings, if they exist.
    pub(crate) fn load(directory: &Directory) -> Option<Settings> {
        serde_json::from_str(&directory.read(FILE).ok()?).ok()
    }
}
