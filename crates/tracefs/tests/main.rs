//! Tests of the control directory's files.

mod control;
mod formats;
mod recording;
mod transcripts;
