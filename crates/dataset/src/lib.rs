//! A trace as files of a partitioned Parquet dataset: a row per call, in directories by host, process and day, so that the traces of many machines
//! are one table.
//!
//! Data flows one way: the engine's calls -> `rows` (a call in some hundred bytes) -> `file` (columns, as `pages` encodes them) -> `place` (names of files, all at once).
#![forbid(unsafe_code)]

mod day;
mod file;
mod hybrid;
mod pages;
mod place;
mod row;
mod rows;
mod texts;

use calltap_analysis::{Names, Progress, Source, Totals, run_threads, threads_with_events};
use calltap_trace::ThreadId;
use place::Place;
use rows::Rows;
use std::io;
use std::path::{Path, PathBuf};
use texts::Texts;

/// Why a dataset could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of it.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The trace.
    #[error(transparent)]
    Trace(#[from] calltap_analysis::Error),
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// What was read.
    pub totals: Totals,
    /// The files, by path.
    pub files: Vec<PathBuf>,
    /// Rows in them.
    pub rows: u64,
}

/// Writes the trace into the dataset in `directory`, which is made if there is none. What an earlier export of the same trace has put there is
/// replaced; nothing else is touched.
pub fn export(source: &dyn Source, directory: &Path, progress: Progress<'_>) -> Result<Written, Error> {
    let meta = source.meta();
    let place = Place::new(directory, meta);
    let texts = Texts::new(meta, &Names::new(meta, false));
    // Thread after thread, those of a process's name together: few files are open at a time.
    let name = |thread: &ThreadId| {
        let process = meta.threads.get(thread.0 as usize).map(|thread| thread.process as usize);
        process.and_then(|process| meta.processes.get(process)).map_or("", |process| process.comm.as_str())
    };
    let mut threads = threads_with_events(source);
    threads.sort_by_key(|thread| (name(thread), *thread));
    let mut rows = Rows::new(source, &place, &texts);
    let ran = run_threads(source, &threads, &mut rows, progress);
    let (written, failed) = rows.finish();
    let path = |(path, source)| Error::File { path, source };
    match failed {
        Some(failed) => {
            place::remove(&written);
            Err(path(failed))
        }
        None => {
            let totals = ran.inspect_err(|_| place::remove(&written))?;
            let rows = written.iter().map(|part| part.rows).sum();
            Ok(Written { totals, files: place.publish(written).map_err(path)?, rows })
        }
    }
}
