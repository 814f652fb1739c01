//! Events as the kernel's trace ring buffer hands them out, so that what reads `trace_pipe_raw` or `trace.dat` reads calltap's.
//!
//! [`SubBuffer`] is one page, [`Stream`] a sequence of them (the kernel has one per processor), [`record`] what is
//! in an event, and [`formats`] the texts by which readers know the layout of all that: [`PageLayout`] reads pages by
//! them, [`Fields`] records. Little-endian, 64-bit.
#![forbid(unsafe_code)]

mod fields;
pub mod formats;
mod page;
mod reader;
pub mod record;
mod stream;

pub use fields::{Field, Fields};
pub use page::{LONGEST, PAGE_SIZE, Page, SubBuffer};
pub use reader::{BadEvent, Events, Missed, PageLayout};
pub use stream::Stream;
