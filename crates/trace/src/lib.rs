//! The trace file: its contents, how it is written while a program runs, and how it is read back.
//!
//! A file is a sequence of self-contained, checksummed, compressed chunks
//! (`docs/reference/trace-format.md` draws them). Any prefix of a file is readable: a damaged or
//! missing tail yields a result and a list of complaints, not an error. No data of a file is
//! trusted.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod ahead;
mod calls;
mod chunk;
mod clock;
mod codec;
mod ending;
mod error;
mod event;
mod event_chunks;
mod gather;
mod history;
mod incidents;
mod kernel_log;
mod kernel_records;
mod meta;
mod reader;
mod sieve;
mod source;
mod survey;
mod switches;
mod system_calls;
mod trigger;
mod unpack;
mod values;
mod wakings;
mod writer;

pub use calls::{Calls, Closing, OpenCall};
pub use clock::{ClockKind, ClockMap, ClockPair};
pub use ending::Ending;
pub use error::Error;
pub use event::{Batch, Event, EventKind, Values};
pub use history::History;
pub use incidents::{Incident, IncidentKind};
pub use kernel_log::{GoroutineRun, KernelLog};
pub use kernel_records::{Address, KernelEvents, Scheduling};
pub use meta::{
    Busy, Captured, Detaching, DisabledByLimit, End, Future, FutureValues, GoStart, Kept, Loss, Meta, Module,
    Process, Profile, Record, Session, Site, SiteId, SlowRule, Thread, ThreadId, TracerInfo, TracerKind,
    Untraceable, UntraceableFunction, Value, ValueForm,
};
pub use reader::{Batches, BatchesOf, ThreadBatches, TraceReader};
pub use sieve::{FunctionRules, Sieve, Sifting};
pub use switches::{RunState, Switch};
pub use system_calls::{
    Futex, MODULE as SYSTEM_CALLS, SEVERAL as SEVERAL_FUTEXES, futex, name as system_call_name,
};
pub use trigger::{Action, uses};
pub use unpack::Unpacker;
pub use values::{Callers, Datum, kind as object_kind};
pub use wakings::{Edge, SystemCall, Waking};
pub use writer::{GraphEnd, GraphEvent, ThreadEncoder, TraceWriter};
