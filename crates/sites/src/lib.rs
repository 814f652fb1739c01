//! Where a program can be traced: every function of an ELF file, and the bytes a tracer may patch in it.
//!
//! Safe code only; it reads a byte slice and never a process. All addresses here are *link-time* addresses
//! ([`Svma`], as the ELF file states them); the controller adds a module's load bias.
#![forbid(unsafe_code)]

mod address;
mod discover;
mod error;
mod function;
mod inlined;
mod load;
mod quick;
pub mod reason;
mod site;
pub mod types;

pub use address::Svma;
pub use discover::{
    Binary, Contradiction, Discovery, Hook, Landings, Profiler, Resolver, Segment, add_library_calls,
    add_names, add_packed_names, beginning, build_id_of, called, debug_link, ends, find_landings, find_polls,
    find_prologues, find_prologues_of, interpreter_of, is_go_alone, is_unnamed, lacks_names, needed,
    plt_slot, profilers, read, read_by,
};
pub use error::Error;
pub use function::{Exit, Function, Poll, PollKind, Returns, Role, StateByte};
pub use inlined::{Inlined, inlined};
pub use load::{load, load_all, open, open_itself};
pub use quick::{
    build_id_of_file, count_functions, file_defines_profiler, file_may_define, file_may_have_sites,
    may_have_sites,
};
pub use reason::Reason;
pub use site::{POP, SiteForm, SiteKind};
