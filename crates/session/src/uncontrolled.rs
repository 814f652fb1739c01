//! A session without a controller: the rings keep the newest events, and a command that opens the
//! session can change what is traced, take a snapshot, or detach.

use crate::detach::DetachOutcome;
use crate::error::{Error, KeptWhole};
use crate::load_agent::check_filters::explain_no_place;
use crate::options::{Options, RingOptions};
use crate::plan::directory;
use crate::plan::directory::Directory;
use crate::plan::planner::{Applied, Planner, Policy, Replacement, Tally};
use crate::settings::status::{Status, profile_functions};
use crate::settings::{FILE, Settings, Stage};
use crate::setup::clocks::NoTsc;
use crate::setup::{self, clocks, memory, serve};
use crate::started;
use crate::{attach, detach};
use calltap_abi::Clock;
use calltap_collect::collector::{Collector, Totals};
use calltap_collect::heartbeat::{LargerShare, draw_tsc_line, raise_priority};
use calltap_collect::metadata::Metadata;
use calltap_collect::profile::{self, Sums};
use calltap_collect::shm::{self, Shared};
use calltap_collect::snapshot;
use calltap_collect::trace_file::TraceFile;
use calltap_names::ModuleNames;
use calltap_process::Reason;
use calltap_process::agent;
use calltap_process::clock;
use calltap_process::launch;
use calltap_process::ptrace::in_tracer_thread;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::target::Target;
use calltap_selection::{Listed, ParsedSelection, Profiled, Selection, SiteRequest, Typed, chooser};
use calltap_sites::{Discovery, Function};
use calltap_trace::{End, Record, TraceWriter};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc;
use std::time::Duration;

/// A process that is attached to.
#[derive(Debug)]
pub struct Attached {
    target: Target,
    directory: Directory,
    shared: Shared,
    /// Settings of the session.
    pub settings: Settings,
    /// Notes of the daemon that converts recorded calls, from when this was opened.
    pub notes: Vec<String>,
}

/// A trace that was taken.
#[derive(Debug)]
pub struct Snapshot {
    /// Totals of the trace.
    pub totals: Totals,
    /// Size of the file, bytes.
    pub file_size: u64,
    /// Number of threads that reused their chunks before these could be copied: their events are
    /// not in the trace.
    pub too_fast: u32,
    /// Whether the process has executed another program since calltap attached: the names of the
    /// former one's functions are not known.
    pub replaced: bool,
}

/// Returns the processes that have a session: attached to, recorded or watched.
pub fn in_sessions() -> Vec<u32> {
    directory::of_living()
}

/// Returns the processes that `calltap attach` has attached to.
pub fn attached() -> Vec<u32> {
    let is_attached = |pid: &u32| {
        let text = Target::known(*pid).ok().and_then(|target| Directory::peek(&target, FILE));
        let settings = text.and_then(|text| serde_json::from_str::<Settings>(&text).ok());
        settings.is_some_and(|settings| settings.stage == Stage::Attached)
    };
    directory::of_living().into_iter().filter(is_attached).collect()
}

/// Maps a session's control file. `None` if a calltap was killed before it had written the file.
fn open_shared(target: &Target, directory: &Directory) -> Result<Option<Shared>, Error> {
    match Shared::open(&directory.control) {
        Ok(shared) => Ok(Some(shared)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(None),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(target.refuse(Reason::OtherVersion).into())
        }
        Err(error) => Err(target.refuse(Reason::NoControl { why: error.to_string() }).into()),
    }
}

/// Undoes the session of a controller that was killed or could not remove all of its code, or a
/// session that the process has inherited by fork and whose first process has ended. Fails if the
/// session was made by `calltap attach`, or if some of its code cannot be removed now either.
pub(crate) fn clear(target: &Target) -> Result<Vec<String>, Error> {
    let (own, mut inherited) = (Directory::open_for(target)?, None);
    let has_own = own.is_some();
    if !has_own {
        inherited = Directory::open_inherited(target)?;
    }
    let Some(mut directory) = own.or(inherited) else { return Ok(Vec::new()) };
    if has_own && Settings::load(&directory).is_some_and(|settings| settings.stage == Stage::Attached) {
        return Err(target.refuse(Reason::Attached).into());
    }
    let Some(shared) = open_shared(target, &directory)? else {
        // `Inferior::new` removes its injected code, or waits for it.
        directory.keep(false);
        return Ok(Vec::new());
    };
    shared.end_waits();
    let DetachOutcome { mut notes, whole, .. } = detach::detach(target, &directory, &shared);
    directory.keep(!whole);
    if !whole {
        return Err(target.refuse(Reason::Remains { why: notes.join("; ") }).into());
    }
    notes.push(format!("process {}: removed the code that another calltap had left in it", target.pid));
    Ok(notes)
}

impl Attached {
    /// Attaches, and leaves the rings without a reader.
    pub fn attach(options: &Options, pid: u32) -> Result<(Attached, Stops, Vec<String>), Error> {
        let _share = LargerShare::begin();
        let Options { subject, plan, rings, reports, .. } = options;
        launch::prepare_to_record()?;
        let target = Target::find(pid)?;
        let mut notes = clear(&target)?;
        let (clock, no_tsc) = match clocks::usable_clock(options.clock) {
            // A coarse clock needs a controller for its tick.
            (Clock::Coarse, None) => (Clock::Counter, Some(NoTsc::CoarseAlone)),
            (Clock::Coarse, Some(why)) => (Clock::Counter, Some(NoTsc::OrderOnly { why: Box::new(why) })),
            other => other,
        };
        notes.extend(no_tsc.as_ref().map(NoTsc::to_string));
        let size = shm::control_size(memory::chunks(rings.buffer_size, subject));
        let mut directory = Directory::create_for(&target, size, memory::CODE_SIZE)
            .map_err(|error| explain_no_place(&target, error))?;
        let shared = memory::map(&directory, rings.buffer_size, plan)?;
        let rings = RingOptions { wait: Duration::ZERO, ..*rings };
        memory::prepare(&shared, &directory, clock, &rings);
        shared.control().listening.store(0, Relaxed);
        notes.splice(0..0, memory::provide_kept(&shared, pid));
        let session = setup::session(&plan.selection, target.command(), clock, no_tsc.as_ref());
        let mut settings =
            Settings::new(Stage::Attaching, &target, session, plan.selection.words.clone(), plan.patch_mode);
        let interrupted = launch::interruption()?;
        settings.save(&directory)?;
        directory.keep(true);
        let mut records = Vec::new();
        let (mut attached, stops) =
            serve::with_planner(&shared, &directory, subject, plan, &target.name, &|| {}, |planner| {
                planner.interrupted = Arc::clone(&interrupted);
                let attached =
                    attach::attach(planner, &target, reports.tell, &mut |record| records.push(record));
                if attached.0.is_ok() {
                    started::tell(plan, reports.started, planner);
                }
                attached
            });
        if attached.is_ok() && interrupted.load(Acquire) {
            attached = Err(Error::Interrupted { program: target.name.clone() });
        }
        notes.extend(notes_in(&records));
        if let Err(error) = attached {
            directory.keep(!detach::detach(&target, &directory, &shared).whole);
            return Err(error);
        }
        settings.stage = Stage::Attached;
        settings.save(&directory)?;
        // No recorder draws it any more.
        draw_tsc_line(&shared);
        Ok((Attached { target, directory, shared, settings, notes: Vec::new() }, stops, notes))
    }

    /// Opens the session of a process. If calls are recorded when they are first made, this wakes
    /// the daemon that converts them.
    pub fn find(pid: u32) -> Result<Attached, Error> {
        let target = Target::known(pid)?;
        let Some(directory) = Directory::open_for(&target)? else {
            let inherited = Directory::open_inherited(&target)?;
            let why = inherited.map_or_else(|| Directory::why_none(&target), |_| Reason::Orphan);
            return Err(target.refuse(why).into());
        };
        let settings = Settings::load(&directory).filter(|settings| settings.stage == Stage::Attached);
        let shared = open_shared(&target, &directory)?;
        match (settings, shared) {
            (Some(settings), Some(shared)) => {
                let mut attached = Attached { target, directory, shared, settings, notes: Vec::new() };
                attached.wake()?;
                Ok(attached)
            }
            _ => Err(target.refuse(Reason::Killed).into()),
        }
    }

    fn with_planner<'a, T>(
        &'a self,
        choose: impl Fn(&Function, ModuleNames<'_>, Typed<'_>) -> Option<SiteRequest> + Send + Sync + 'a,
        work: impl FnOnce(&mut Planner<'a>) -> Result<T, Error> + Send,
    ) -> Result<T, Error>
    where
        T: Send,
    {
        let _share = LargerShare::begin();
        let discovery = match self.settings.words.ftraced {
            Some(_) => Discovery::FirstCall,
            None => Discovery::AtLoad,
        };
        let words = &self.settings.words;
        let policy = Policy {
            mode: self.settings.patch_mode,
            discovery,
            libcalls: words.libcalls,
            int3: words.int3,
            ..Policy::new(Box::new(choose))
        };
        let mut planner = Planner::new(&self.shared, &self.directory, policy);
        planner.recall(&self.target)?;
        in_tracer_thread(|| work(&mut planner))?
    }

    /// Converts recorded calls, if the daemon is enabled.
    fn wake(&mut self) -> Result<(), Error> {
        let Some(mut ftraced) = self.settings.words.ftraced.clone().filter(|ftraced| ftraced.enabled) else {
            return Ok(());
        };
        let selection = ParsedSelection::new(&self.settings.words, true)
            .map_err(|why| self.target.refuse(Reason::Selection { why: why.to_string() }))?;
        let mut records = Vec::new();
        let done = self.with_planner(chooser(&selection, self.settings.on), |planner| {
            planner.convert(&self.target, &mut ftraced, &mut |record| records.push(record))
        });
        self.notes.extend(notes_in(&records));
        self.notes.extend(done.err().map(|error| error.to_string()));
        self.settings.words.ftraced = Some(ftraced);
        self.settings.save(&self.directory)
    }

    /// Returns the error for a request to change which calls are kept.
    pub fn refuse_kept(&self) -> Error {
        Error::Kept { program: self.target.name.clone(), why: KeptWhole::Overwritten }
    }

    /// Changes the words that are given. The result is that of [`Attached::select`].
    pub fn set(
        &mut self,
        given: Selection,
        (on, later): (Option<bool>, bool),
    ) -> Result<(Tally, Vec<String>), Error> {
        let mut words = self.settings.words.clone();
        let changed = words.change(given)?;
        let on = on.unwrap_or(changed || self.settings.on);
        self.select(&words, (on, later))
    }

    /// Traces a new selection. If `later`, globs may match no function. Returns the counts of the
    /// change, and notes.
    pub fn select(
        &mut self,
        words: &Selection,
        (on, later): (bool, bool),
    ) -> Result<(Tally, Vec<String>), Error> {
        let before = &self.settings.words;
        let after = Arc::new(ParsedSelection::new(words, later || before.ftraced.is_some())?);
        let replacement = Replacement { before, after: Arc::clone(&after), on };
        let mut changes = Vec::new();
        let apply = |planner: &mut Planner<'_>| {
            // The planner waits until others are dropped.
            let mut keep = |change| {
                if let Metadata::SwitchedOff(off) = change {
                    changes.push(off);
                }
            };
            planner.apply(&self.target, replacement, &mut keep)
        };
        let Applied { words, tracers, tally, notes } = self.with_planner(chooser(after, on), apply)?;
        self.settings.note_disabled(&changes);
        self.settings.session.tracers = tracers;
        (self.settings.words, self.settings.on) = (words, on);
        self.settings.save(&self.directory)?;
        Ok((tally, notes))
    }

    /// Returns the status of the session.
    pub fn status(&self) -> Result<Status, Error> {
        let (target, shared, settings) = (&self.target, &self.shared, &self.settings);
        self.with_planner(|_, _, _| None, |planner| Ok(Status::new(target, shared, settings, planner)))
    }

    /// Returns the functions that can be traced.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        self.with_planner(|_, _, _| None, |planner| Ok(planner.list()))
    }

    /// Resets the sums of the profile tracer.
    pub fn reset_profile(&self) {
        profile::reset(&self.shared);
    }

    /// Returns the sums of the profile tracer until now.
    pub fn profile(&self) -> Result<Vec<Profiled>, Error> {
        self.with_planner(
            |_, _, _| None,
            |planner| {
                let rows =
                    Sums::default().with_living(&self.shared).rows(self.settings.clocks, clock::pair());
                Ok(profile_functions(planner, &rows))
            },
        )
    }

    /// Writes the contents of the rings to a trace file, while the program records on.
    pub fn snapshot(&self, output: &Path, selection: &ParsedSelection) -> Result<Snapshot, Error> {
        let system = |what| move |source| Error::system(what, source);
        let file = TraceFile::create(output)?;
        let (sender, records) = mpsc::channel();
        self.with_planner(chooser(selection, self.settings.on), |planner| {
            planner.widen(&self.target, &|candidates| selection.selector.reach(candidates));
            planner.recall_values();
            planner.describe(&mut |record| drop(sender.send(record)));
            planner.map_all(&mut |record| drop(sender.send(record)));
            Ok(())
        })?;
        self.settings.disabled().for_each(|off| drop(sender.send(off)));
        drop(sender);
        let copy = snapshot::copy(&self.shared).map_err(system("copying the rings"))?;
        let clock = snapshot::clock(&copy.rings);
        let mut writer = TraceWriter::create(file.path(), self.settings.session.clone())?;
        writer.record(&Record::Clock(self.settings.clocks))?;
        let collector = Collector::new(&copy.rings, &mut writer, records, clock);
        let (totals, failed) = collector.since(self.settings.clocks).until(copy.until).run(&|| true);
        let end = End {
            status: End::SNAPSHOT.into(),
            wall_ns: copy.monotonic_ns.saturating_sub(self.settings.session.start_monotonic_ns),
            cpu_ns: self.target.cpu().unwrap_or_default().saturating_sub(self.settings.cpu).as_nanos() as u64,
            recorder_cpu_ns: 0,
        };
        if let Some(error) = failed {
            return Err(error.into());
        }
        let file_size = writer.finish(end)?;
        file.keep();
        let has_program = agent::has_mapped(self.target.pid, &self.directory.identity());
        let replaced = self.target.lives() && !has_program;
        Ok(Snapshot { totals, file_size, too_fast: copy.too_fast, replaced })
    }
}

/// Detaches from a process, whatever state its session is in.
pub fn detach_process(pid: u32) -> Result<DetachOutcome, Error> {
    let _share = LargerShare::begin();
    raise_priority();
    let target = Target::known(pid)?;
    let not_attached = || Error::from(target.refuse(Directory::why_none(&target)));
    let mut found = Directory::open_for(&target)?;
    if found.is_none() {
        found = Directory::open_inherited(&target)?;
    }
    let Some(mut directory) = found else {
        return detach::remove_injected(&target).ok_or_else(not_attached);
    };
    let Some(shared) = open_shared(&target, &directory)? else {
        let left = detach::remove_injected(&target)
            .unwrap_or(DetachOutcome { whole: true, ..DetachOutcome::default() });
        directory.keep(!left.whole);
        return Ok(left);
    };
    shared.end_waits();
    let left = detach::detach(&target, &directory, &shared);
    directory.keep(!left.whole);
    Ok(left)
}

/// Returns the notes among metadata.
pub(crate) fn notes_in(metadata: &[Metadata]) -> Vec<String> {
    metadata.iter().filter_map(Metadata::note).map(str::to_owned).collect()
}
