//! The files of the control directory.

mod control;
mod formats;
mod recording;
mod transcripts;
