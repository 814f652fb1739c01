//! One traced program: start it with the agent or attach to it, enable the sites that the selection names, collect its rings into a
//! trace or a live view.
//!
//! Four layers, each of which uses only those above it:
//!
//! - [`process`]: another process's memory, mappings and threads, and calls injected into it. All unsafe code but [`collect`]'s two files.
//! - [`collect`]: shared memory, events, calls, and the consumers that they go to.
//! - [`plan`]: the session's files, modules, sites, stubs and journal.
//! - the files beside them: attach, record, watch, follow, detach.
#![deny(unsafe_code)]

mod attach;
mod attach_session;
mod collect;
mod detach;
mod enter;
mod error;
mod first;
mod flight;
mod follow;
mod live;
mod plan;
mod process;
mod record;
mod requests;
mod setup;
mod watch;

pub use attach_session::{Controls, SessionOutcome};
pub use calltap_abi::Clock;
pub use calltap_sites::Discovery;
pub use collect::collector::{Due, Totals};
pub use collect::output::Consumer;
pub use collect::slow::Slow;
pub use detach::Left;
pub use error::Error;
pub use flight::{Flight, Trigger};
pub use live::{Attached, Profiled, Settings, Snapshot, Status, attached, detach_process};
pub use plan::debug_files::{inlined_functions, missing_names, most_missing_names, name_functions};
pub use plan::ftraced::Ftraced;
pub use plan::loaded::Listed;
pub use plan::modules::Candidates;
pub use plan::planner::{PatchMode, Tally};
pub use plan::selection::{Named, Parse, ParsedSelection, Selection, Selector, TracerSelection};
pub use process::agent::{Image as AgentImage, LIBRARY as AGENT_LIBRARY, PLACED as AGENT_PLACED};
pub use process::clock::{monotonic_ns, others_ns};
pub use process::launch::{become_command, interruption, no_core_dump};
pub use process::maps::stack_around;
pub use process::patch_log::keep_patch_log;
pub use process::stops::Stops;
pub use process::text::{ProcessText, Sync as TextSync};
pub use process::traced::{is_asked_to_stop, stay};
pub use record::{Options, Outcome, Subject, record};
pub use requests::{Answer, Mailbox, Request, ask};
pub use watch::{Watch, watch};
