//! `record --kernel`: functions of the kernel beneath the calls of the program.
//!
//! During the recording a thread moves the kernel's pages into an unlinked file. At its end they
//! are imported as those of a trace.dat are, and joined with the program's trace as by `calltap
//! merge`.

use crate::command_line::arguments::Arguments;
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::units::counted;
use calltap_import::{
    Described, Error, Joined, Named, Others, Pages, Recording, Summary, import_pages, join,
};
use calltap_sched::CLOCK as KERNEL_CLOCK;
use calltap_sched::Functions as KernelFunctions;
use calltap_session::{Clock, Options, Outcome};
use calltap_trace::TraceReader;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

/// Interval between two reads of the kernel's buffers.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A temporary file, removed on drop.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn beside(output: &Path, suffix: &str) -> TemporaryFile {
        let mut path = output.as_os_str().to_owned();
        path.push(suffix);
        TemporaryFile(path.into())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The result of joining: a sentence, and another one if events are missing.
struct Added {
    told: String,
    missing: Option<String>,
}

/// The recording of the kernel's functions.
pub(super) struct Kernel {
    globs: String,
    functions: Arc<Mutex<KernelFunctions>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<io::Result<Pages>>>,
}

fn lock(functions: &Mutex<KernelFunctions>) -> MutexGuard<'_, KernelFunctions> {
    functions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernel {
    /// Starts recording as the command line asks. Refusals happen here, before the program is
    /// started.
    pub(super) fn of(arguments: &Arguments, options: &Options) -> Result<Option<Kernel>> {
        let Some(globs) = arguments.text("kernel") else { return Ok(None) };
        check(arguments, options)?;
        let words: Vec<String> =
            globs.split(',').map(|glob| glob.trim().to_owned()).filter(|glob| !glob.is_empty()).collect();
        if words.is_empty() {
            bail!("--kernel names no function: --kernel 'vfs_*,ext4_*' ('*' is all that can be traced)");
        }
        let functions = KernelFunctions::choose(&words)?;
        let file = spool(&options.output)?;
        let mut pages = Pages::new(file, functions.page_size());
        let (functions, stop) = (Arc::new(Mutex::new(functions)), Arc::new(AtomicBool::new(false)));
        let (of_reader, stopped) = (Arc::clone(&functions), Arc::clone(&stop));
        let read = move || {
            loop {
                let is_last = stopped.load(Acquire);
                lock(&of_reader).read(&mut |cpu, page| pages.push(cpu, page))?;
                if is_last {
                    return Ok(pages);
                }
                thread::park_timeout(LOOK_INTERVAL);
            }
        };
        Ok(Some(Kernel { globs: words.join(","), functions, stop, reader: Some(thread::spawn(read)) }))
    }

    /// Returns the handle by which the session sets the threads whose functions are recorded.
    pub(super) fn functions(&self) -> Weak<Mutex<KernelFunctions>> {
        Arc::downgrade(&self.functions)
    }

    /// Stops the recording and returns its pages.
    fn stop(&mut self) -> Option<io::Result<Pages>> {
        let reader = self.reader.take()?;
        let stopped = lock(&self.functions).stop();
        self.stop.store(true, Release);
        reader.thread().unpark();
        let pages = reader.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads failed")));
        Some(stopped.and(pages))
    }

    /// Adds the recorded functions to the trace, and a note to the outcome. Returns whether some
    /// are missing, which is told in spite of --quiet.
    pub(super) fn finish(mut self, outcome: &mut Outcome) -> bool {
        let Some(pages) = self.stop() else { return false };
        // If nothing was recorded, the session has already told why.
        if !lock(&self.functions).is_watching() {
            return false;
        }
        let added = pages.map_err(anyhow::Error::from).and_then(|pages| self.add(&pages, &outcome.file));
        let missing = match added {
            Ok(Added { told, missing }) => {
                outcome.session.notes.push(told);
                missing
            }
            Err(error) => {
                Some(format!("the trace has no functions of the kernel: they could not be added: {error:#}"))
            }
        };
        missing.iter().for_each(|missing| tell!("calltap: {missing}"));
        outcome.file_size = fs::metadata(&outcome.file).map_or(outcome.file_size, |meta| meta.len());
        missing.is_some()
    }

    fn add(&self, pages: &Pages, output: &Path) -> Result<Added> {
        let kernel = TemporaryFile::beside(output, ".kernel.part");
        let kallsyms = fs::read("/proc/kallsyms").unwrap_or_default();
        let summary = {
            let functions = lock(&self.functions);
            let described = Described {
                header_page: functions.header_page(),
                formats: functions.formats(),
                kallsyms: &kallsyms,
                clock: KERNEL_CLOCK,
            };
            let from = format!("functions of the kernel: {} ({})", self.globs, functions.tracer().name());
            let named = Named { file: &from, calltap: env!("CARGO_PKG_VERSION") };
            import_pages(pages, described, named, &kernel.0)
        };
        let summary = match summary {
            Err(Error::Empty) => {
                let told = format!("no function of the kernel that matches {} was called", self.globs);
                return Ok(Added { told, missing: None });
            }
            summary => summary?,
        };
        let mut whole = TemporaryFile::beside(output, ".joined.part");
        let open = |path: &Path| -> Result<Recording> {
            Ok(Recording { name: String::new(), reader: TraceReader::open_stored(path)? })
        };
        let recordings = [open(output)?, open(&kernel.0)?];
        let joined = join(&recordings, Others::LeftOut, &whole.0).map_err(|refused| anyhow!("{refused}"))?;
        fs::rename(&whole.0, output).with_context(|| output.display().to_string())?;
        mem::take(&mut whole.0);
        Ok(self.told(&summary, &joined))
    }

    /// Returns the sentence `1,234 calls of functions of the kernel (vfs_*) within the calls of 2
    /// threads`, and one about missing events.
    fn told(&self, summary: &Summary, joined: &Joined) -> Added {
        let told = format!(
            "{} of functions of the kernel ({}) by {}, within the program's calls in {}",
            counted(joined.of_kernel, "call"),
            self.globs,
            lock(&self.functions).tracer().name(),
            counted(joined.nested, "thread"),
        );
        let missing = (summary.lost > 0).then(|| {
            format!(
                "LOST {}{} in the kernel's buffers: functions of the kernel are missing; --kernel with fewer of them loses less",
                if summary.lost_more { "at least " } else { "" },
                counted(summary.lost, "event")
            )
        });
        Added { told, missing }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The instance of tracefs is removed with its last owner.
        drop(self.stop());
    }
}

/// Refuses options that cannot be combined with functions of the kernel.
fn check(arguments: &Arguments, options: &Options) -> Result<()> {
    if options.clock != Clock::Tsc {
        bail!("--kernel needs '--clock tsc', the clock of the kernel's events");
    }
    let partial = [
        ("--slow", options.kept.slow.is_some()),
        ("--snapshot-on", options.kept.flight.is_some()),
        ("--graph and --on", options.kept.subtree.is_some()),
        ("--overwrite", options.rings.overwrite),
    ];
    if let Some((flag, _)) = partial.into_iter().find(|(_, is_set)| *is_set) {
        bail!(
            "--kernel and {flag} exclude each other: the kernel's functions would be kept without the calls that they are within"
        );
    }
    if arguments.names_standard_output() || fs::metadata(&options.output).is_ok_and(|meta| !meta.is_file()) {
        bail!(
            "--kernel: the trace is written a second time with the kernel's functions: name a file (-o FILE)"
        );
    }
    Ok(())
}

/// Returns an unlinked file in the directory of the trace.
fn spool(output: &Path) -> Result<File> {
    let named = TemporaryFile::beside(output, ".pages.part");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&named.0);
    file.with_context(|| named.0.display().to_string())
}
