//! Finds every function of an ELF file, and the bytes in each that a tracer may patch.
//!
//! Safe code only. Input is a byte slice or a file, never a process. All addresses are *link-time*
//! addresses ([`Svma`], as the ELF file states them); the controller adds a module's load bias.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod address;
mod binary;
mod code;
mod decide;
mod discover;
mod elf;
mod error;
mod function;
mod inlined;
mod load;
mod quick;
mod read;
pub mod reason;
mod site;
pub mod types;
mod watch;

pub use address::Svma;
pub use binary::{Binary, CallsWithoutStub, Profiler, ProfilingFunction, Resolver};
pub use code::movable::ends;
pub use decide::first_call::called;
pub use decide::unmodified::{find_landings, find_prologues, find_prologues_of};
pub use discover::landings::{Contradiction, Landings};
pub use discover::libcalls::add_library_calls;
pub use discover::names::{add_names, add_packed_names, build_id_of, debug_link, is_unnamed, lacks_names};
pub use discover::polls::find_polls;
pub use discover::profilers::beginning;
pub use elf::image::Segment;
pub use elf::machines::ReturnsStay;
pub use elf::plt::slot_of as plt_slot;
pub use error::Error;
pub use function::{Exit, Function, Poll, PollKind, Returns, Role, StateByte, Verdict};
pub use inlined::{Inlined, inlined};
pub use load::{load, load_all, open, open_itself};
pub use quick::{
    build_id_of_file, count_functions, file_defines_profiler, file_may_define, file_may_have_sites,
    function_names, may_have_sites,
};
pub use read::{Discovery, interpreter_of, is_go_alone, needed, profilers, read, read_by};
pub use reason::Reason;
pub use site::{GPlace, Goroutine, POP, SiteForm, SiteKind};
pub use watch::{KeptPointer, NONLOCAL_EXITS, Watch};
