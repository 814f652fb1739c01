//! All analyses of a trace, with their text and table forms; `calltap-export` has the forms for
//! other programs.
//!
//! One engine ([`tree`]) makes every view: it pairs entries with returns thread by thread and
//! passes closed calls to a [`Visitor`]. The views read a [`Source`]: a trace file, or events in
//! memory ([`MemorySource`]). Functions write to `&mut dyn Write`, take plain option structs, and
//! keep memory bounded by the number of functions and live threads, never by the number of events.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod answers;
pub mod boxes;
pub mod bytes;
mod colours;
mod columns;
pub mod diff;
mod error;
pub mod explore;
mod future_spans;
pub mod futures;
pub mod goroutines;
pub mod graph;
pub mod head;
mod histogram;
pub mod incidents;
pub mod incidents_of_calls;
pub mod info;
pub mod intervals;
mod names;
mod off;
pub mod paths;
pub mod replay;
pub mod report;
pub mod sources;
mod stamp;
pub mod stat;
pub mod states;
mod sums;
pub mod symbols;
pub mod timeline;
pub mod tree;
pub mod units;
pub mod values;
pub mod why;

pub use calltap_names::file_name;
pub use calltap_names::{
    Glob, GlobSet, ShortNames, Word, demangle, fitted, is_named, nearest_names, split_list,
};
pub use error::{Error, NotOneOf};
pub use future_spans::future_spans;
pub use head::{disabled, left_out};
pub use names::Names;
pub use off::{Off, Stretch};
pub use sources::drive::{Progress, run_by_thread, run_in_file_order, run_threads};
pub use sources::memory::MemorySource;
pub use sources::part::Part;
pub use sources::recent::{Recent, Snapshot};
pub use sources::source::{BatchStream, SharedSource, Source, threads_with_events};
pub use stamp::Stamp;
pub use tree::{Call, Ending, Enter, Totals, Visitor};
pub use values::values_as_json;
