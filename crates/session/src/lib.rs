//! One traced program: start it with the agent inside or attach to it, switch the wanted sites on, collect its rings into a trace, or for whoever watches.
//!
//! Data flows one way: [`modules`] (what is loaded) -> [`planner`] (what to patch) -> the agent -> [`raw`] (the words it wrote) ->
//! [`pairing`] (whose return is this) -> the trace file or another [`Consumer`]. [`record`] and [`watch`] put them to work; everything but [`shm`], [`clock`] and [`launch`] is safe code.
#![deny(unsafe_code)]

mod agent;
mod ahead;
mod attach;
mod choice;
mod clock;
mod collector;
mod debug_files;
mod detach;
mod directory;
mod enter;
mod error;
mod first;
mod flight;
mod frames;
mod ftraced;
mod governor;
mod inject;
mod journal;
mod launch;
mod live;
mod loaded;
mod maps;
mod modules;
mod news;
mod output;
mod pages;
mod pairing;
mod patch_log;
mod patient;
mod placed;
mod planner;
mod proc;
mod profile;
mod program;
mod raw;
mod reader;
mod record;
mod requests;
mod seccomp;
mod shm;
mod slow;
mod stubs;
mod target;
mod text;
mod threads;
mod trace_file;
mod visit;
mod watch;

pub use agent::{Image as AgentImage, LIBRARY as AGENT_LIBRARY, PLACED as AGENT_PLACED};
pub use attach::Stops;
pub use calltap_abi::Clock;
pub use calltap_sites::Discovery;
pub use choice::{Choice, Parse, Selector, TracerWords, Words};
pub use clock::{monotonic_ns, others_ns};
pub use collector::Due;
pub use debug_files::{inlined_functions, missing_names, name_functions};
pub use error::Error;
pub use flight::{Flight, Trigger};
pub use ftraced::Ftraced;
pub use launch::{interruption, no_core_dump};
pub use live::{Attached, Profiled, Settings, Snapshot, Status, attached, leave};
pub use loaded::Listed;
pub use modules::Candidates;
pub use output::Consumer;
pub use patch_log::keep_patch_log;
pub use planner::{PatchMode, Tally};
pub use record::{Options, Outcome, Subject, record};
pub use requests::{Answer, Mailbox, Request, ask};
pub use slow::Slow;
pub use text::{ProcessText, Sync as TextSync};
pub use visit::{Controls, Visited};
pub use watch::{Watch, watch};
