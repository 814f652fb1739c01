//! The files of the control directory.

mod formats;
mod recording;
mod transcripts;
