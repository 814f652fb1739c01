//! Events in the format of the kernel's trace ring buffer, so that readers of `trace_pipe_raw` or
//! `trace.dat` can read calltap's.
//!
//! [`SubBuffer`] is one page, [`Stream`] a sequence of them (the kernel has one per processor),
//! [`record`] has the contents of events, and [`formats`] the texts that describe the layout of
//! pages and records to readers: [`PageLayout`] reads pages by them, [`Fields`] records. All is
//! little-endian, 64-bit.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod fields;
pub mod formats;
mod page;
mod reader;
pub mod record;
mod stream;

pub use fields::{Field, Fields};
pub use page::{MAX_RECORD_LEN, PAGE_SIZE, Page, SubBuffer};
pub use reader::{BadEvent, Events, Missed, PageLayout};
pub use stream::Stream;
