//! Tests of the sites found in files.

mod exits;
mod faults;
mod go;
mod go_unchecked;
mod hostile;
mod landing;
mod libcalls;
mod listing;
mod matrix;
mod members;
mod selected;
mod support;
mod tail_jumps;
mod unmodified;
