//! Exports a trace as files of a partitioned Parquet dataset: a row per call, in directories by
//! host, process and day, so that the traces of many machines form one table.
//!
//! Data flows one way: calls of the engine -> `rows` (a row in some hundred bytes per call) ->
//! `file` (columns, encoded by `pages`) -> `place` (names of files, which are renamed one by one
//! once all are complete).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod day;
mod file;
mod hybrid;
mod pages;
mod place;
mod row;
mod rows;
mod runs;
mod texts;

use calltap_analysis::{Names, Progress, Source, Totals, run_threads, threads_with_events};
use calltap_trace::ThreadId;
use place::Destination;
use rows::RowWriter;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use texts::Texts;

/// A failure to write a dataset.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] calltap_analysis::Error),
}

/// A written dataset.
#[derive(Debug)]
pub struct Written {
    /// Totals of the events that were read.
    pub totals: Totals,
    /// Paths of the files.
    pub files: Vec<PathBuf>,
    /// Number of rows in the files.
    pub rows: u64,
}

/// Writes the trace into the dataset in `directory`, which is created if necessary. Replaces the
/// files of an earlier export of the same trace, and touches no others.
pub fn export(source: &dyn Source, directory: &Path, progress: Progress<'_>) -> Result<Written, Error> {
    let meta = source.meta();
    let place = Destination::new(directory, meta);
    let texts = Arc::new(Texts::new(meta, &Names::new(meta, false)));
    // Threads of processes with the same name are read one after the other, so that few files are
    // open at a time.
    let name = |thread: &ThreadId| {
        let process = meta.threads.get(thread.0 as usize).map(|thread| thread.process as usize);
        process.and_then(|process| meta.processes.get(process)).map_or("", |process| process.comm.as_str())
    };
    let mut threads = threads_with_events(source);
    threads.sort_by_key(|thread| (name(thread), *thread));
    let mut rows = RowWriter::new(source, &place, texts);
    let ran = run_threads(source, &threads, &mut rows, progress);
    let (written, failed) = rows.finish();
    let path = |(path, source)| Error::File { path, source };
    match failed {
        Some(failed) => Err(path(failed)),
        None => {
            let totals = ran?;
            let rows = written.iter().map(|part| part.rows).sum();
            Ok(Written { totals, files: place.publish(written).map_err(path)?, rows })
        }
    }
}
