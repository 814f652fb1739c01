//! Names of files: Hive partitions, and preliminary names that are replaced when all files are
//! complete.

use crate::day;
use calltap_trace::Meta;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file under a preliminary name.
#[derive(Debug)]
pub(crate) struct Part {
    /// The preliminary name.
    pub now: PathBuf,
    /// The final name.
    pub then: PathBuf,
    /// Number of rows.
    pub rows: u64,
}

/// The place of a trace's files in a dataset.
#[derive(Debug)]
pub(crate) struct Destination {
    host: PathBuf,
    /// Prefix of the names of its files, which tells the trace from others of the host.
    trace: String,
}

/// Hive's name for an empty value.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns `key=value`, with special bytes of the value escaped.
fn partition(key: &str, value: &str) -> String {
    let mut name = format!("{key}=");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if value.is_empty() {
        name.push_str(NONE);
    }
    name
}

impl Destination {
    /// Returns the place of a trace in the dataset in `directory`.
    pub(crate) fn new(directory: &Path, meta: &Meta) -> Destination {
        let session = meta.session.as_ref();
        let host = session.map_or("", |session| session.host.as_str());
        let began = session.map_or(0, |session| session.start_realtime_ns);
        let pid = meta.processes.first().map_or(0, |process| process.pid);
        Destination { host: directory.join(partition("host", host)), trace: format!("{began}-{pid}") }
    }

    /// Returns file number `number` of the trace, for a process and a day.
    pub(crate) fn part(&self, process: &str, day: i64, number: u32) -> Part {
        let directory = self.host.join(partition("process", process)).join(partition("day", &day::text(day)));
        let name = format!("{}-{number}.parquet", self.trace);
        // Readers of datasets skip names that begin with a dot.
        let now = directory.join(format!(".{name}.{}.part", std::process::id()));
        Part { now, then: directory.join(name), rows: 0 }
    }

    /// Gives the files their final names, and removes files of an earlier export of the same trace
    /// that were not replaced.
    pub(crate) fn publish(&self, parts: Vec<Part>) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        for part in &parts {
            fs::rename(&part.now, &part.then).map_err(|error| (part.then.clone(), error))?;
        }
        let new: BTreeSet<PathBuf> = parts.iter().map(|part| part.then.clone()).collect();
        for old in self.published().into_iter().filter(|old| !new.contains(old)) {
            fs::remove_file(&old).map_err(|error| (old.clone(), error))?;
            // This fails unless the directories are empty.
            let _ = old.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
        }
        Ok(new.into_iter().collect())
    }

    /// Returns the published files of the trace.
    fn published(&self) -> Vec<PathBuf> {
        let entries = |directory: &Path| {
            let all = fs::read_dir(directory).into_iter().flatten().flatten();
            all.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
        };
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let rest = name.strip_prefix(&self.trace).and_then(|rest| rest.strip_prefix('-'));
            let number = rest.and_then(|rest| rest.strip_suffix(".parquet"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let processes = entries(&self.host);
        let days = processes.iter().flat_map(|process| entries(process));
        days.flat_map(|day| entries(&day)).filter(is_own).collect()
    }
}

impl Drop for Part {
    /// Removes the file if it still has its preliminary name.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::partition;

    #[test]
    fn values_of_partitions_may_be_anything() {
        assert_eq!(partition("process", "redis-server"), "process=redis-server");
        assert_eq!(partition("process", "a/b c:é%"), "process=a%2Fb%20c%3A%C3%A9%25");
        assert_eq!(partition("host", ""), "host=__HIVE_DEFAULT_PARTITION__");
    }
}
