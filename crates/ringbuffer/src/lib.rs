//! Events as the kernel's trace ring buffer hands them out, so that what reads `trace_pipe_raw` or `trace.dat` reads calltap's.
//!
//! [`SubBuffer`] is one page, [`Stream`] a sequence of them (the kernel has one per processor), [`record`] what is
//! in an event, and [`formats`] the texts by which readers know the layout of all that. Little-endian, 64-bit.
#![forbid(unsafe_code)]

pub mod formats;
mod page;
pub mod record;
mod stream;

pub use page::{LONGEST, PAGE_SIZE, Page, SubBuffer};
pub use stream::Stream;
