//! `calltap record`: from the start of a program, or from when a running one is attached to, to the last byte of its trace.

use crate::attach_session::{AttachSession, Controls, RunOptions, SessionOutcome};
use crate::flight::Flight;
use crate::follow::Follow;
use crate::plan::directory::Directory;
use crate::plan::planner::PatchMode;
use crate::plan::program::Program;
use crate::{Error, first, flight, setup};
use calltap_abi::Clock;
use calltap_collect::collector::{Collector, Live, Totals};
use calltap_collect::heartbeat;
use calltap_collect::output::Consumer;
use calltap_collect::profile::Sums;
use calltap_collect::shm::{self, Shared};
use calltap_collect::slow::{Slow, SlowWriter};
use calltap_collect::trace_file::TraceFile;
use calltap_process::launch::{self, Signals};
use calltap_process::stops::Stops;
use calltap_process::target::Target;
use calltap_process::threads::Held;
use calltap_process::{preload, proc};
use calltap_selection::{Named, ParsedSelection};
use calltap_sites::Discovery;
use calltap_trace::{End, Session, TraceWriter};
use nix::sys::resource::UsageWho;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What to record.
pub enum Subject {
    /// A program, with its arguments: from its first instruction to its end.
    Program(Vec<OsString>),
    /// A running process: for some time, or until it ends or we are told to end (SIGINT, SIGTERM).
    Process {
        /// Its id.
        pid: u32,
        /// For how long.
        duration: Option<Duration>,
        /// What tracing may cost, as a share of what the process spends by itself.
        max_overhead: Option<f64>,
    },
}

/// What to record, and how.
pub struct Options {
    /// What.
    pub subject: Subject,
    /// The trace file.
    pub output: PathBuf,
    /// The tracers and their filters.
    pub selection: ParsedSelection,
    /// Where times come from.
    pub clock: Clock,
    /// Bytes of ring memory for all threads together, at most; None: as many threads need.
    pub buffer_size: Option<u64>,
    /// Keep the newest events instead of waiting for the recorder (flight recorder).
    pub overwrite: bool,
    /// How long a full buffer may hold up the program.
    pub wait: Duration,
    /// How code that may be running is changed.
    pub patch_mode: PatchMode,
    /// When calls of the profiling function are found that no list names.
    pub discovery: Discovery,
    /// Only what lies beneath slow calls is written.
    pub slow: Option<Slow>,
    /// Nothing is written before something happens.
    pub flight: Option<Flight>,
    /// Also what its processes become by execve, until none is left.
    pub follow: bool,
    /// Version that goes into the trace.
    pub version: &'static str,
    /// Tells the user a sentence while it goes on.
    pub tell: fn(&str),
}

/// What came of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended, if it did.
    pub status: Option<ExitStatus>,
    /// What attaching and detaching took.
    pub stops: Option<[Stops; 2]>,
    /// Functions that were switched off because they cost too much, with their events per second.
    pub disabled: Vec<(String, f64)>,
    /// Sums.
    pub totals: Totals,
    /// Events that were left out on purpose.
    pub dropped: u64,
    /// Functions that were switched on.
    pub sites: u32,
    /// Bytes of the trace file, or of all snapshots.
    pub file_size: u64,
    /// The files of a flight recorder.
    pub snapshots: Option<Vec<PathBuf>>,
    /// Things the user should know, one sentence each.
    pub notes: Vec<String>,
    /// Nothing was left behind in a process that was attached to.
    pub whole: bool,
    /// Why the trace is not complete (full disk), if so.
    pub failed: Option<calltap_trace::Error>,
}

/// Records a program or a process.
pub fn record(options: &Options) -> Result<Outcome, Error> {
    if let Some(flight) = &options.flight {
        return flight::record(options, flight);
    }
    match &options.subject {
        Subject::Program(command) => record_program(options, command),
        Subject::Process { pid, duration, max_overhead } => {
            record_process(options, *pid, *duration, *max_overhead)
        }
    }
}

fn record_program(options: &Options, command: &[OsString]) -> Result<Outcome, Error> {
    let prepared = Prepared::new(options, command)?;
    let file = TraceFile::new(&options.output);
    let mut keeper = Keeper::create(file.path(), prepared.session.clone(), options)?;
    // This process may have had children before its own execve.
    let before_ns = launch::cpu_ns(UsageWho::RUSAGE_CHILDREN);
    let start = Instant::now();
    let ran = prepared.run(Company {
        consumer: keeper.consumer(),
        live: None,
        settled: options.slow.is_some(),
        accepted: &|| file.keep(),
        meanwhile: &mut |_| {},
    })?;
    file.keep();
    let Ran { status, totals, sites, mut notes, failed } = ran;
    notes.extend(file.note());
    let cpu_ns = launch::cpu_ns(UsageWho::RUSAGE_CHILDREN).saturating_sub(before_ns);
    let status_text = launch::describe(status);
    let (dropped, file_size, failed) = finish(keeper, status_text, start, cpu_ns, failed, file.path());
    Ok(Outcome {
        whole: true,
        status: Some(status),
        stops: None,
        disabled: Vec::new(),
        totals,
        dropped,
        sites,
        file_size,
        snapshots: None,
        notes,
        failed,
    })
}

/// A program that is about to be started.
pub struct Prepared<'a> {
    options: &'a Options,
    command: &'a [OsString],
    program: Program,
    directory: Directory,
    shared: Shared,
    clock: Clock,
    /// For the trace.
    pub session: Session,
}

/// Who is there while a program runs.
pub struct Company<'a> {
    /// Takes its events.
    pub consumer: &'a mut dyn Consumer,
    /// They go there interval by interval.
    pub live: Option<Live<'a>>,
    /// The consumer tells times from the first event on.
    pub settled: bool,
    /// Told when the filters make sense for what can be traced.
    pub accepted: &'a (dyn Fn() + Send + Sync),
    /// Called again and again.
    pub meanwhile: &'a mut (dyn FnMut(&mut Controls<'_, '_>) + Send),
}

/// What came of a program.
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Sums.
    pub totals: Totals,
    /// Functions that were switched on.
    pub sites: u32,
    /// Things the user should know.
    pub notes: Vec<String>,
    /// What the consumer failed at.
    pub failed: Option<calltap_trace::Error>,
}

impl<'a> Prepared<'a> {
    /// Finds the program, and makes what its agent will share with us.
    pub fn new(options: &'a Options, command: &'a [OsString]) -> Result<Prepared<'a>, Error> {
        proc::check()?;
        launch::survive_size_limit();
        let program = Program::find(command.first())?;
        let directory = Directory::create(shm::control_size(setup::chunks(options)), setup::CODE_SIZE)?;
        let shared = setup::map(&directory, options)?;
        let (clock, clock_note) = setup::usable_clock(options.clock);
        setup::prepare(&shared, &directory, options, clock, options.wait);
        if options.follow {
            directory.prepare_to_follow()?;
        }
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let session = setup::session(options, words, clock, clock_note);
        Ok(Prepared { options, command, program, directory, shared, clock, session })
    }

    /// Runs it to its end.
    pub fn run(self, company: Company<'_>) -> Result<Ran, Error> {
        let Prepared { options, command, program, directory, shared, clock, session } = self;
        let (clock_note, futures) = (session.clock_note.clone(), options.selection.words.futures);
        let signals = Signals::take(flight::takes_signal(options.flight.as_ref()))?;
        let (mut child, mut held) = match start_program(&program, command, &directory, &shared)? {
            Started::Runs(child, held) => (child, held),
            Started::Ended(status) => {
                let notes = vec![format!(
                    "{} ended before its first thread was set up: nothing was traced",
                    program.name
                )];
                return Ok(Ran { status, totals: Totals::default(), sites: 0, notes, failed: None });
            }
        };
        let (has_ended, let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signals.forward(&child, Arc::clone(&has_ended), Arc::clone(&let_go));
        let child_id = child.id();
        let target = Target::of_child(child_id).unwrap_or_else(|| Target {
            pid: child_id,
            name: program.name.clone(),
            start_time: 0,
        });
        // Should that fail, there is no room for the trace either.
        let _ = directory.belongs_to(&target);
        let attach_session =
            AttachSession { options, target, directory, shared, clock, session, notes: Vec::new() };
        let (directory, shared, sums) =
            (&attach_session.directory, &attach_session.shared, Arc::new(Mutex::new(Sums::default())));

        let (sender, receiver) = mpsc::channel();
        let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (begun, beginning) = mpsc::channel::<(u32, mpsc::Sender<Result<(), Error>>)>();
        let is_held = held.is_some();
        let Company { consumer, live, settled, accepted, meanwhile } = company;
        let collector = Collector::new(shared, consumer, receiver, clock)
            .live(live)
            .settled(settled)
            .summing(Arc::clone(&sums));
        let pid = Pid::from_raw(child_id as i32);
        let alive = AtomicBool::new(false);
        let follow = || Follow {
            directory,
            records: sender.clone(),
            first: child_id,
            started: true,
            alive: &alive,
            stop: &let_go,
        };
        let follow = options.follow.then(follow);
        let result = thread::scope(|scope| {
            let (early, late) = if is_held { (None, follow) } else { (follow, None) };
            // Before it is answered, it runs nothing of its own.
            let mut following = early.map(|follow| follow.begin(scope));
            let collecting = scope.spawn(|| {
                heartbeat::hurry();
                collector.run(&|| stop.load(Acquire))
            });
            let planning = scope.spawn(|| {
                setup::with_planner(shared, directory, options, &program.name, accepted, |planner| {
                    let begun_well = setup::tell_if_long(options, &program.name, || {
                        let may_choose =
                            |named: Named<'_>| options.selection.selector.may_choose(named, false);
                        let int3 = options.selection.words.int3;
                        let read = program.read(options.discovery, futures, int3, &may_choose)?;
                        planner.know(program.file.clone(), &program.name, &program.path, read);
                        if is_held {
                            // Only the thread that has started it can have it do something.
                            let remote = &mut |operation| {
                                let (done, answer) = mpsc::channel();
                                let _ = begun.send((operation, done));
                                answer.recv().unwrap_or_else(|_| Err(Error::thread()))
                            };
                            planner.begin(child_id, remote, &mut |news| drop(sender.send(news)))?;
                        }
                        Ok(())
                    });
                    drop(begun);
                    let planned = begun_well
                        .and_then(|()| attach_session.attend(planner, sender, sums, meanwhile, &ended));
                    // A program that has lost its trace runs on.
                    let planned = match planned {
                        Err(Error::Truncated(_)) => Ok(()),
                        planned => planned,
                    };
                    if planned.is_err() {
                        // The program has not run an instruction of its own.
                        pid.map(|pid| kill_process(pid, Signal::KILL));
                    }
                    planned.map(|()| (planner.tally.on, planner.take_warnings()))
                })
            });
            if clock == Clock::Coarse {
                scope.spawn(|| setup::tick(shared, &stop));
            }
            // The other end is gone when the functions are on, or the program has been killed.
            while let Ok((operation, done)) = beginning.recv() {
                let remote = |thread: &mut Box<Held>| first::remote(child_id, thread, operation);
                let _ = done.send(held.as_mut().map_or(Ok(()), remote));
            }
            drop(held);
            // It has run nothing of its own but what its C library does first.
            following = following.or_else(|| Some(late?.begin(scope)));
            let status = launch::wait(&mut child);
            has_ended.store(true, Relaxed);
            following.map(ScopedJoinHandle::join);
            setup::end_planning(shared, &ended);
            let planned = planning.join();
            stop.store(true, Release);
            collecting.thread().unpark();
            (status, planned, collecting.join())
        });
        let (Ok(status), Ok(planned), Ok((totals, failed))) = result else {
            return Err(Error::thread());
        };
        let (sites, warnings) = planned?;
        let mut notes: Vec<String> = clock_note.into_iter().collect();
        notes.extend(setup::trouble(shared, &program.name, totals));
        notes.extend(warnings);
        notes.extend(shared.check().err().map(|error| error.to_string()));
        Ok(Ran { status, totals, sites, notes, failed })
    }
}

/// What came of a start.
enum Started {
    /// The program runs, or is held.
    Runs(Child, Option<Box<Held>>),
    /// It ended by itself before it could be held.
    Ended(ExitStatus),
}

/// Starts the program; a static one is held until its functions are switched on.
fn start_program(
    program: &Program,
    command: &[OsString],
    directory: &Directory,
    shared: &Shared,
) -> Result<Started, Error> {
    if !program.is_alone {
        let libraries = preload::list(&program.data, &directory.agent());
        return Ok(Started::Runs(launch::spawn(command, &libraries)?, None));
    }
    let hold = |pid, begin: &mut dyn FnMut()| first::hold(pid, begin, directory, shared, program.is_static);
    let (mut child, held) = launch::spawn_held(command, hold)?;
    match held {
        Ok(held) => Ok(Started::Runs(child, Some(Box::new(held)))),
        Err(error) => {
            // One that ran to its end without a thread library is none that can be traced; any other end is told by its status.
            if let Ok(Some(status)) = child.try_wait()
                && !status.success()
            {
                return Ok(Started::Ended(status));
            }
            // It has not run an instruction of its own.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn record_process(
    options: &Options,
    pid: u32,
    duration: Option<Duration>,
    max_overhead: Option<f64>,
) -> Result<Outcome, Error> {
    let mut attach_session = AttachSession::new(options, pid)?;
    let file = TraceFile::new(&options.output);
    let mut keeper = Keeper::create(file.path(), attach_session.session.clone(), options)?;
    let start = Instant::now();
    let outcome = attach_session.run(RunOptions {
        consumer: keeper.consumer(),
        interval: None,
        settled: options.slow.is_some(),
        max_overhead,
        arrived: &|| file.keep(),
        duration,
        over: &|| false,
        meanwhile: &mut |_| {},
        mailbox: None,
        due: None,
    })?;
    let SessionOutcome { stops, disabled, totals, sites, mut notes, failed, ended, whole, cpu, .. } = outcome;
    notes.extend(file.note());
    let how = if ended { "ended" } else { End::DETACHED };
    let cpu_ns = cpu.as_nanos() as u64;
    let (dropped, file_size, failed) = finish(keeper, how.to_owned(), start, cpu_ns, failed, file.path());
    Ok(Outcome {
        whole,
        status: None,
        stops: Some(stops),
        disabled,
        totals,
        dropped,
        sites,
        file_size,
        snapshots: None,
        notes,
        failed,
    })
}

/// Writes everything, or what is slow.
enum Keeper {
    All(Box<TraceWriter>),
    Slow(Box<SlowWriter>),
}

impl Keeper {
    fn create(path: &Path, session: Session, options: &Options) -> Result<Keeper, Error> {
        let writer = TraceWriter::create(path, session)?;
        Ok(match &options.slow {
            None => Keeper::All(Box::new(writer)),
            Some(slow) => Keeper::Slow(Box::new(SlowWriter::new(writer, slow)?)),
        })
    }

    fn consumer(&mut self) -> &mut dyn Consumer {
        match self {
            Keeper::All(writer) => &mut **writer,
            Keeper::Slow(writer) => &mut **writer,
        }
    }

    /// The size of the file.
    fn finish(self, end: End) -> Result<u64, calltap_trace::Error> {
        match self {
            Keeper::All(writer) => writer.finish(end),
            Keeper::Slow(writer) => writer.finish()?.finish(end),
        }
    }
}

/// Events that were left out on purpose, the size of the file, and what has failed.
fn finish(
    keeper: Keeper,
    status: String,
    start: Instant,
    cpu_ns: u64,
    failed: Option<calltap_trace::Error>,
    output: &Path,
) -> (u64, u64, Option<calltap_trace::Error>) {
    let dropped = if let Keeper::Slow(writer) = &keeper { writer.dropped } else { 0 };
    let end = End {
        status,
        wall_ns: start.elapsed().as_nanos() as u64,
        cpu_ns,
        recorder_cpu_ns: launch::cpu_ns(UsageWho::RUSAGE_SELF),
    };
    let size = || fs::metadata(output).map_or(0, |meta| meta.len());
    match (failed, keeper.finish(end)) {
        (Some(error), _) | (None, Err(error)) => (dropped, size(), Some(error)),
        (None, Ok(size)) => (dropped, size, None),
    }
}
