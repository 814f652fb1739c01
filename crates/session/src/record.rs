//! `calltap record`: from the start of a program, or from when a running one is attached to, to the last byte of its trace.

use crate::attach::Stops;
use crate::choice::{Choice, Parse};
use crate::collector::{Collector, Live, Totals};
use crate::directory::Directory;
use crate::flight::Flight;
use crate::follow::Follow;
use crate::launch::{self, Signals};
use crate::loaded::Typed;
use crate::modules::Candidates;
use crate::news::News;
use crate::output::Consumer;
use crate::planner::{PatchMode, Planner};
use crate::profile::Sums;
use crate::program::Program;
use crate::shm::{self, Shared};
use crate::slow::{Slow, SlowWriter};
use crate::target::Target;
use crate::threads::Held;
use crate::trace_file::TraceFile;
use crate::visit::{Controls, Stay, Visit, Visited};
use crate::{Error, clock, first, flight, preload};
use calltap_abi::plan::{Phase, Trouble};
use calltap_abi::{CHUNK_SIZE, Clock, MAGIC, PATH_MAX, PROCESS_MAX, VERSION, stub};
use calltap_sites::{Binary, Discovery, Function};
use calltap_trace::{End, Session, TraceWriter};
use nix::sys::resource::UsageWho;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use std::{env, fs, mem, thread};

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
    pub choice: Choice,
    /// How others are made, should somebody ask for them later.
    pub parse: Parse,
    /// Where times come from.
    pub clock: Clock,
    /// Bytes of ring memory, for all threads together.
    pub buffer_size: u64,
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
}

/// What came of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended, if it did.
    pub status: Option<ExitStatus>,
    /// What attaching and detaching took.
    pub stops: Option<[Stops; 2]>,
    /// Functions that were switched off because they cost too much, with their events per second.
    pub muted: Vec<(String, f64)>,
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

/// Bytes of the code file.
pub const CODE_SIZE: u64 = (stub::REGION + stub::HOPS) as u64;

/// Chunks of ring memory.
pub fn chunks(options: &Options) -> u32 {
    u32::try_from((options.buffer_size / CHUNK_SIZE as u64).max(4)).unwrap_or(u32::MAX)
}

pub fn map(directory: &Directory, options: &Options) -> Result<Shared, Error> {
    let shared = Shared::map(&directory.control, chunks(options)).and_then(|shared| {
        if options.discovery == Discovery::FirstCall {
            shared.provide_first()?;
        }
        Ok(shared)
    });
    shared.map_err(|source| Error::System { what: "the session's shared memory", source })
}

fn record_program(options: &Options, command: &[OsString]) -> Result<Outcome, Error> {
    let prepared = Prepared::new(options, command)?;
    let file = TraceFile::new(&options.output);
    let mut keeper = Keeper::create(file.path(), prepared.session.clone(), options)?;
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
    let cpu_ns = launch::cpu_ns(UsageWho::RUSAGE_CHILDREN);
    let status_text = launch::describe(status);
    let (dropped, file_size, failed) = finish(keeper, status_text, start, cpu_ns, failed, file.path());
    Ok(Outcome {
        status: Some(status),
        stops: None,
        muted: Vec::new(),
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
        let program = Program::find(command.first())?;
        let directory = Directory::create(shm::control_size(chunks(options)), CODE_SIZE)?;
        let shared = map(&directory, options)?;
        let (clock, clock_note) = usable_clock(options.clock);
        prepare(&shared, &directory, options, clock, options.wait);
        if options.follow {
            directory.prepare_to_follow()?;
        }
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let session = session(options, words, clock, clock_note);
        Ok(Prepared { options, command, program, directory, shared, clock, session })
    }

    /// Runs it to its end.
    pub fn run(self, company: Company<'_>) -> Result<Ran, Error> {
        let Prepared { options, command, program, directory, shared, clock, session } = self;
        let (clock_note, futures) = (session.clock_note.clone(), options.choice.words.futures);
        let signals = Signals::take(flight::takes_signal(options.flight.as_ref()))?;
        let (mut child, mut held) = start_program(&program, command, &directory, &shared)?;
        let (has_ended, let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signals.forward(&child, Arc::clone(&has_ended), Arc::clone(&let_go));
        let child_id = child.id();
        let target = Target::of_child(child_id).unwrap_or_else(|| Target {
            pid: child_id,
            name: program.name.clone(),
            start_time: 0,
        });
        let visit = Visit { options, target, directory, shared, clock, session, notes: Vec::new() };
        let (directory, shared, sums) =
            (&visit.directory, &visit.shared, Arc::new(Mutex::new(Sums::default())));

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
            // (Before it is answered, it runs nothing of its own.)
            let mut following = early.map(|follow| follow.begin(scope));
            let collecting = scope.spawn(|| collector.run(&|| stop.load(Acquire)));
            let planning = scope.spawn(|| {
                with_planner(shared, directory, options, &program.name, accepted, |planner| {
                    let planned = program
                        .read(options.discovery, futures, options.choice.words.int3)
                        .and_then(|binary| {
                            planner.know(program.file.clone(), &program.name, &program.path, leaked(binary));
                            if is_held {
                                // (Only who has started it can have it do something.)
                                let remote = &mut |operation| {
                                    let (done, answer) = mpsc::channel();
                                    let _ = begun.send((operation, done));
                                    answer.recv().unwrap_or_else(|_| Err(Error::thread()))
                                };
                                planner.begin(child_id, remote, &mut |news| drop(sender.send(news)))?;
                            }
                            drop(begun);
                            visit.attend(planner, sender, sums, meanwhile, &ended)
                        });
                    if planned.is_err() {
                        // The program has not run an instruction of its own.
                        pid.map(|pid| kill_process(pid, Signal::KILL));
                    }
                    planned.map(|()| (planner.tally.on, planner.take_warnings()))
                })
            });
            if clock == Clock::Coarse {
                scope.spawn(|| tick(shared, &stop));
            }
            // The other end is gone when the functions are on, or the program has been killed.
            while let Ok((operation, done)) = beginning.recv() {
                let remote = |thread| first::remote(child_id, thread, operation);
                let _ = done.send(held.as_mut().map_or(Ok(()), remote));
            }
            drop(held);
            // (It has run nothing of its own but what its C library does first.)
            following = following.or_else(|| Some(late?.begin(scope)));
            let status = launch::wait(&mut child);
            has_ended.store(true, Relaxed);
            following.map(ScopedJoinHandle::join);
            end_planning(shared, &ended);
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
        notes.extend(trouble(shared, &program.name, totals));
        notes.extend(warnings);
        Ok(Ran { status, totals, sites, notes, failed })
    }
}

/// Starts the program; a static one is held until its functions are switched on.
fn start_program(
    program: &Program,
    command: &[OsString],
    directory: &Directory,
    shared: &Shared,
) -> Result<(Child, Option<Held>), Error> {
    if !program.is_alone {
        return Ok((launch::spawn(command, &preload::list(&program.data, &directory.agent()))?, None));
    }
    let mut child = launch::spawn_held(command)?;
    match first::hold(child.id(), directory, shared, program.is_static) {
        Ok(held) => Ok((child, Some(held))),
        Err(error) => {
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
    let mut visit = Visit::new(options, pid)?;
    let file = TraceFile::new(&options.output);
    let mut keeper = Keeper::create(file.path(), visit.session.clone(), options)?;
    let start = Instant::now();
    let visited = visit.stay(Stay {
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
    let Visited { stops, muted, totals, sites, mut notes, failed, ended, cpu, .. } = visited;
    notes.extend(file.note());
    let how = if ended { "ended" } else { "detached" };
    let cpu_ns = cpu.as_nanos() as u64;
    let (dropped, file_size, failed) = finish(keeper, how.to_owned(), start, cpu_ns, failed, file.path());
    Ok(Outcome {
        status: None,
        stops: Some(stops),
        muted,
        totals,
        dropped,
        sites,
        file_size,
        snapshots: None,
        notes,
        failed,
    })
}

/// Is never taken apart, function by function: this process ends when it needs it no more.
fn leaked(binary: Binary) -> Arc<Binary> {
    let binary = Arc::new(binary);
    mem::forget(Arc::clone(&binary));
    binary
}

pub fn end_planning(shared: &Shared, ended: &AtomicBool) {
    ended.store(true, Release);
    shared.control().doorbell.fetch_add(1, AcqRel);
    shm::wake(&shared.control().doorbell);
}

/// The clock asked for, or the one that takes its place where the time stamp counter cannot be trusted.
pub fn usable_clock(wanted: Clock) -> (Clock, Option<String>) {
    match (wanted, clock::tsc_distrust()) {
        (Clock::Tsc | Clock::Sparse, Some(why)) => (Clock::Coarse, Some(why)),
        _ => (wanted, None),
    }
}

pub fn prepare(shared: &Shared, directory: &Directory, options: &Options, clock: Clock, wait: Duration) {
    let control = shared.control();
    // (The last byte stays 0.)
    let path = directory.agent();
    let places = control.agent_path.iter().take(PATH_MAX - 1);
    for (place, byte) in places.zip(path.as_os_str().as_encoded_bytes()) {
        place.store(*byte, Relaxed);
    }
    control.clock.store(clock as u32, Relaxed);
    control.recording.store(1, Relaxed);
    control.listening.store(1, Relaxed);
    control.overwrite.store(u32::from(options.overwrite), Relaxed);
    control.wait_us.store(u32::try_from(wait.as_micros()).unwrap_or(u32::MAX), Relaxed);
    control.tick.store(clock::monotonic_ns(), Relaxed);
    control.counter.store(1, Relaxed);
    control.version.store(VERSION, Relaxed);
    control.magic.store(MAGIC, Release);
}

pub fn session(options: &Options, command: Vec<String>, clock: Clock, clock_note: Option<String>) -> Session {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Session {
        calltap: options.version.to_owned(),
        command,
        host: line("/proc/sys/kernel/hostname"),
        kernel: format!("{} {}", line("/proc/sys/kernel/osrelease"), env::consts::ARCH),
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        start_realtime_ns: clock::realtime_ns(),
        start_monotonic_ns: clock::monotonic_ns(),
        clock: clock::kind(clock),
        clock_note,
        tracers: options.choice.tracers.clone(),
    }
}

/// Keeps the coarse clock.
pub fn tick(shared: &Shared, stop: &AtomicBool) {
    while !stop.load(Acquire) {
        shared.control().tick.store(clock::monotonic_ns(), Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lends out a planner for the tracers and filters asked for; `accepted` is told when they make sense for what can be traced.
pub fn with_planner<T>(
    shared: &Shared,
    directory: &Directory,
    options: &Options,
    name: &str,
    accepted: &(dyn Fn() + Send + Sync),
    work: impl FnOnce(&mut Planner<'_>) -> T,
) -> T {
    let choose = |function: &Function, typed: Typed<'_>| options.choice.wish(function, typed);
    let check = |candidates: &Candidates| {
        // What is found later cannot be known now.
        if options.discovery == Discovery::FirstCall || options.follow {
            return Ok(());
        }
        if candidates.traceable().next().is_none() {
            return Err(no_sites(name, candidates));
        }
        options.choice.selector.check(candidates)
    };
    let mut planner = Planner::new(shared, directory, Box::new(choose), &check)
        .accepting(accepted)
        .by(options.patch_mode)
        .reaching(Box::new(|candidates| options.choice.selector.reach(candidates)))
        .discovering(options.discovery)
        .awaiting(options.choice.words.futures)
        .allowing(options.choice.words.int3);
    if matches!(options.subject, Subject::Program(_)) || options.follow {
        planner = planner.quietly();
    }
    work(&mut planner)
}

/// Answers the agents' requests until `ended`; in between, something else.
pub fn answer_all(
    planner: &mut Planner<'_>,
    shared: &Shared,
    records: &Sender<News>,
    ended: &AtomicBool,
    meanwhile: &mut dyn FnMut(&mut Planner<'_>),
) -> Result<(), Error> {
    let control = shared.control();
    let mut known = 0;
    while !ended.load(Acquire) {
        meanwhile(planner);
        let bell = control.doorbell.load(Acquire);
        for index in 0..control.process_bump.load(Acquire) {
            let Some(process) = shared.process(index) else { break };
            if process.pid.load(Acquire) == 0 {
                break; // being filled in
            }
            if index >= known {
                known = index + 1;
                match process.parent.load(Relaxed).checked_sub(1) {
                    Some(parent) => planner.fork(parent, index),
                    None => planner.enter(index),
                }
            }
            if process.phase.load(Acquire) == Phase::Asked as u32 {
                planner.answer(index, &mut |record| drop(records.send(record)))?;
            }
        }
        shm::wait(&control.doorbell, bell, Duration::from_millis(20));
    }
    Ok(())
}

fn no_sites(program: &str, candidates: &Candidates) -> Error {
    let functions = candidates.functions().count();
    let advice = format!(
        "none of its {functions} functions has room for tracing; compile with -fpatchable-function-entry=5 \
         (gcc, clang), -Z patchable-function-entry=5 (rustc), or -pg"
    );
    Error::NoSites { program: program.to_owned(), advice }
}

pub fn trouble(shared: &Shared, program: &str, totals: Totals) -> Vec<String> {
    let mut notes = Vec::new();
    if totals.processes == 0 {
        notes.push(format!("{program}: the program ran untraced: the dynamic linker did not load the agent"));
    }
    if totals.processes as usize >= PROCESS_MAX {
        notes.push(format!("there is room for {PROCESS_MAX} processes: what came later was not recorded"));
    }
    let all = (0..totals.processes).filter_map(|index| shared.process(index));
    let bits = all.fold(0, |bits, process| bits | process.trouble.load(Relaxed));
    let mut add = |trouble: Trouble, text: &str| {
        if bits & trouble as u32 != 0 {
            notes.push(text.to_owned());
        }
    };
    add(Trouble::NoMirror, "some stacks could not be mirrored: calls on them are counted as lost");
    add(Trouble::NoAnswer, "the recorder did not answer in time: some modules were not traced");
    notes
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
