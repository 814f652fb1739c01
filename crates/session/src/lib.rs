//! The life of a session: starts a program or attaches to a process, enables the sites that the
//! selection names, collects the rings into a trace or a live view, and detaches.
//!
//! - `plan`: the session's files, modules, sites, stubs and journal.
//! - `record`, `watch`, `attach_session`, `flight`: what a command does with a process. `prepared`
//!   and `run` are the threads that it starts for that.
//! - `setup`, `settings`, `options`: parameters of these threads.
//! - `started`, `static_start`, `attach`, `load_agent`, `follow`, `exec_watch`: how a process comes
//!   into the session.
//! - `detach`: how a process leaves the session.
//! - `controller`, `requests`, `uncontrolled`: commands to a session that another calltap serves,
//!   or that no process serves.
//!
//! It builds on `calltap-process`, for memory and threads of another process, and on
//! `calltap-collect`, which reads the rings of its threads.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod attach;
mod attach_session;
mod controller;
mod detach;
mod error;
mod flight;
mod follow;
mod limits;
mod load_agent;
mod options;
mod outcome;
mod plan;
mod prepared;
mod progress;
mod python;
mod ready;
mod record;
mod requests;
mod run;
mod settings;
mod setup;
mod started;
mod uncontrolled;
mod watch;

pub use calltap_abi::Clock;
pub use calltap_collect::collector::{Due, Totals};
pub use calltap_collect::governor::Spent;
pub use calltap_collect::kept::keeping::Subtree;
pub use calltap_collect::kept::triggers::Trigger as CallTrigger;
pub use calltap_collect::output::Consumer;
pub use calltap_collect::slow::Slow;
pub use calltap_collect::trace_file::TraceFile;
pub use calltap_sites::Discovery;
pub use controller::Controls;
pub use detach::DetachOutcome;
pub use error::Error;
pub use options::{
    Flight, KeptCalls, KernelOptions, Options, PlanOptions, Recording, Reports, RingOptions, Subject, Trigger,
};
pub use outcome::{Outcome, SessionOutcome};
pub use plan::planner::{LargestLibrary, MatchesElsewhere, PatchMode, Started, Tally, UntraceableFunctions};
pub use plan::program::runs_python;
pub use python::process_runs_python;
pub use record::record;
pub use requests::{Answer, KeepRules, Mailbox, Request, ask};
pub use settings::Settings;
pub use settings::status::Status;
pub use setup::memory::kept_size;
pub use uncontrolled::{Attached, Snapshot, attached, detach_process, in_sessions};
pub use watch::{Watch, watch};
