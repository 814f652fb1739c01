//! A program that is about to be started, and its traced run.

mod exec_watch;
mod static_start;

use crate::attach_session::AttachSession;
use crate::controller::{Controller, Controls};
use crate::error::Error;
use crate::follow::Follow;
use crate::options::{Flight, Options};
use crate::outcome::SessionOutcome;
use crate::plan::directory::Directory;
use crate::plan::planner::{LargestLibrary, Planner};
use crate::plan::program::Program;
use crate::run::RunOptions;
use crate::setup::serve::{self, SetOnDrop};
use crate::setup::{self, clocks, memory, messages};
use crate::started;
use calltap_abi::Clock;
use calltap_collect::collector::{Collector, Live};
use calltap_collect::heartbeat;
use calltap_collect::metadata::Metadata;
use calltap_collect::profile::Sums;
use calltap_collect::shm::{self, Shared};
use calltap_process::injection::preload;
use calltap_process::launch::{self, Signals};
use calltap_process::proc;
use calltap_process::ptrace::threads::StoppedThread;
use calltap_process::target::Target;
use calltap_selection::ParsedSelection;
use calltap_trace::Session;
use exec_watch::ExecWatch;
use nix::sys::resource::UsageWho;
use rustix::process::{Pid, Signal, kill_process};
use static_start::StaticStart;
use std::ffi::OsString;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// A program that is about to be started.
pub(crate) struct Prepared<'a> {
    options: &'a Options,
    program: Program,
    directory: Directory,
    shared: Shared,
    clock: Clock,
    /// Session record for the trace.
    pub session: Session,
}

impl<'a> Prepared<'a> {
    /// Finds the program, and creates the session's files and shared memory.
    pub(crate) fn new(options: &'a Options, command: &'a [OsString]) -> Result<Prepared<'a>, Error> {
        let Options { subject, plan, rings, .. } = options;
        proc::check()?;
        launch::prepare_to_record()?;
        let program = Program::find(command)?;
        let chunks = memory::chunks(rings.buffer_size, subject);
        let directory = Directory::create(shm::control_size(chunks), memory::CODE_SIZE)?;
        let shared = memory::map(&directory, rings.buffer_size, plan)?;
        let (clock, no_tsc) = clocks::usable_clock(options.clock);
        memory::prepare(&shared, &directory, clock, rings);
        if plan.follow {
            directory.prepare_to_follow()?;
        }
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let session = setup::session(&plan.selection, words, clock, no_tsc.as_ref());
        Ok(Prepared { options, program, directory, shared, clock, session })
    }

    /// Runs the program to its end.
    pub(crate) fn run(self, run: RunOptions<'_>) -> Result<SessionOutcome, Error> {
        let Prepared { options, program, directory, shared, clock, session } = self;
        let signals = Signals::take(options.kept.flight.as_ref().is_some_and(Flight::takes_signal))?;
        let (child, held) = match start_program(&program, &directory, &shared)? {
            Started::Runs(child, held) => (child, held),
            Started::Ended(status) => {
                let notes = vec![format!(
                    "{} ended before it had set up a thread control block of glibc or musl: nothing was traced",
                    program.name
                )];
                return Ok(SessionOutcome { notes, ..SessionOutcome::ended(status) });
            }
        };
        let (has_ended, let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signals.forward(&child, Arc::clone(&has_ended), Arc::clone(&let_go), options.reports.tell);
        let target = Target::of_child(child.id()).unwrap_or_else(|| Target {
            pid: child.id(),
            name: program.name.clone(),
            start_time: 0,
            program: None,
        });
        // If this fails, there is no space for the trace either.
        let _ = directory.belongs_to(&target);
        let (notes, share) = (Vec::new(), None);
        let session =
            AttachSession { options, target, directory, shared, clock, session, notes, _share: share };
        let running = Running { program: &program, session: &session, child, held, has_ended, let_go };
        // This process may have had children before its own execve.
        let before = children_cpu();
        let outcome = running.run_to_its_end(run).map_err(|error| in_script(error, &program))?;
        Ok(SessionOutcome { cpu: children_cpu().saturating_sub(before), ..outcome })
    }
}

/// Adds to the refusal of a selection that matches nothing that the program interprets a script,
/// which may start the program that was meant.
fn in_script(error: Error, program: &Program) -> Error {
    match (error, &program.script) {
        (Error::Selection(calltap_selection::Error::NoMatch { glob, mut hint }), Some(script)) => {
            hint += &format!("; {script} is a script of {}: --follow traces what it starts", program.name);
            calltap_selection::Error::NoMatch { glob, hint }.into()
        }
        (error, _) => error,
    }
}

/// A program that runs, or is held before its first instruction.
struct Running<'a> {
    program: &'a Program,
    session: &'a AttachSession<'a>,
    child: Child,
    held: Option<Box<StoppedThread>>,
    has_ended: Arc<AtomicBool>,
    /// Set to release all followed processes.
    let_go: Arc<AtomicBool>,
}

/// Returns the processor time of this process's children that have ended.
fn children_cpu() -> Duration {
    Duration::from_nanos(launch::cpu_ns(UsageWho::RUSAGE_CHILDREN))
}

/// An operation for the agent, carried out by the thread that started the program, and the channel
/// for its result.
type Remote = (u32, mpsc::Sender<Result<(), Error>>);

impl Running<'_> {
    fn run_to_its_end(self, run: RunOptions<'_>) -> Result<SessionOutcome, Error> {
        let Running { program, session, mut child, held, has_ended, let_go } = self;
        let AttachSession { options: Options { subject, plan, .. }, directory, shared, clock, .. } = session;
        let RunOptions { consumer, interval, settled, accepted, meanwhile, due, .. } = run;
        let (child_id, sums) = (child.id(), Arc::new(Mutex::new(Sums::default())));
        let (sender, receiver) = mpsc::channel();
        let [stop, is_over, alive, on] = [false, false, false, true].map(AtomicBool::new);
        let (begun, beginning) = mpsc::channel::<Remote>();
        let kernel = heartbeat::beating(shared, || session.record_kernel_events());
        let mut notes: Vec<String> = session.session.clock_note.iter().cloned().collect();
        notes.extend(kernel.notes);
        let collector = Collector::new(shared, consumer, receiver, *clock)
            .scheduling(kernel.sched)
            .tracepoints(kernel.tracepoints)
            .kernel_functions(kernel.functions)
            .live(interval.map(|interval| Live { interval, on: &on, due }))
            .settled(settled)
            .summing(Arc::clone(&sums));
        let exec_watch = ExecWatch::new(program, child_id, plan.follow);
        let follow = plan.follow.then(|| Follow {
            directory,
            records: sender.clone(),
            first: child_id,
            started: true,
            alive: &alive,
            stop: &let_go,
        });
        let is_held = held.is_some();
        let planning =
            Planning { program, session, is_held, begun, sender, sums, meanwhile, ended: &is_over };
        let result = thread::scope(|scope| {
            let _stop = SetOnDrop(&stop);
            let (early, late) = if is_held { (None, follow) } else { (follow, None) };
            // The program runs none of its own code before its agent is answered.
            let mut following = early.map(|follow| follow.begin(scope));
            let collecting = scope.spawn(|| {
                heartbeat::raise_priority();
                collector.run(&|| stop.load(Acquire))
            });
            let planning = scope.spawn(|| {
                let work = |planner: &mut Planner<'_>| planning.plan(planner);
                serve::with_planner(shared, directory, subject, plan, &program.name, accepted, work)
            });
            let watching = scope.spawn(|| exec_watch.watch(shared, &has_ended));
            if *clock == Clock::Coarse {
                scope.spawn(|| clocks::tick(shared, &stop));
            }
            release_held(child_id, held, &beginning);
            // Only start-up code of the C library has run so far.
            following = following.or_else(|| Some(late?.begin(scope)));
            let ended = launch::wait(&mut child);
            has_ended.store(true, Relaxed);
            watching.thread().unpark();
            following.map(ScopedJoinHandle::join);
            serve::end_planning(shared, &is_over);
            let planned = planning.join();
            stop.store(true, Release);
            collecting.thread().unpark();
            (ended, planned, collecting.join(), watching.join())
        });
        let (Ok((status, ended)), Ok(planned), Ok((totals, failed)), Ok(exec_watch)) = result else {
            return Err(Error::thread());
        };
        let mut planned = planned?;
        notes.extend(messages::trouble(shared, &program.name, totals));
        notes.append(&mut planned.warnings);
        notes.extend(exec_watch.sentence(ended.as_ref(), totals.processes));
        notes.extend(messages::going_on(&planned.survivors));
        Ok(SessionOutcome { totals, failed, notes, ..planned.outcome(status, shared) })
    }
}

/// Releases a held program when its functions are enabled; until then, it carries out operations.
fn release_held(pid: u32, mut held: Option<Box<StoppedThread>>, operations: &mpsc::Receiver<Remote>) {
    // The sender is dropped when the functions are enabled, or the program has been killed.
    while let Ok((operation, done)) = operations.recv() {
        let remote = |thread: &mut Box<_>| static_start::remote(pid, thread, operation);
        let _ = done.send(held.as_mut().map_or(Ok(()), remote));
    }
}

/// Outcome of planning.
struct Planned {
    /// Number of functions that were enabled.
    sites: u32,
    warnings: Vec<String>,
    code_is_in: Option<LargestLibrary>,
    /// The processes that go on.
    survivors: Vec<Target>,
}

impl Planned {
    /// Returns the part of the session's outcome that follows from the plan.
    fn outcome(self, status: ExitStatus, shared: &Shared) -> SessionOutcome {
        let python = shared.python_sites().count();
        let Planned { sites, code_is_in, .. } = self;
        SessionOutcome { sites, python, code_is_in, ..SessionOutcome::ended(status) }
    }
}

/// The state of the thread that decides what is traced in a program.
struct Planning<'a, 'm> {
    program: &'a Program,
    session: &'a AttachSession<'a>,
    /// Whether the program is held: only the thread that started it can then make it carry out
    /// operations.
    is_held: bool,
    begun: mpsc::Sender<Remote>,
    sender: mpsc::Sender<Metadata>,
    sums: Arc<Mutex<Sums>>,
    meanwhile: &'m mut (dyn FnMut(&mut Controls<'_, '_>) + Send),
    ended: &'a AtomicBool,
}

impl Planning<'_, '_> {
    /// Enables the selected functions, and answers agents until the program has ended. Returns
    /// their number, and warnings for the user.
    fn plan(self, planner: &mut Planner<'_>) -> Result<Planned, Error> {
        let waiting = messages::waiting(&self.program.name);
        let begun =
            messages::tell_if_long(self.session.options.reports.tell, waiting, || self.begin(planner));
        let Planning { session, begun: done, sender, sums, meanwhile, ended, .. } = self;
        let planned = match begun {
            Ok(()) => {
                drop(done);
                Controller::new(session, sender, sums, meanwhile).run(planner, ended)
            }
            // `done` keeps the program held until it has been killed.
            Err(error) => Err(error),
        };
        match planned {
            // A program whose session was truncated runs on.
            Ok(()) | Err(Error::Truncated(_)) => Ok(Planned {
                survivors: planner.living(&session.target).into_iter().map(|(_, target)| target).collect(),
                sites: planner.tally.on,
                warnings: planner.take_warnings(),
                code_is_in: planner.start.code_is_in.take(),
            }),
            Err(error) => {
                // The program has not run an instruction of its own.
                let pid = Pid::from_raw(session.target.pid as i32);
                pid.map(|pid| kill_process(pid, Signal::KILL));
                Err(error)
            }
        }
    }

    fn begin(&self, planner: &mut Planner<'_>) -> Result<(), Error> {
        let Planning { program, session, begun, sender, .. } = self;
        let Options { plan, reports, .. } = session.options;
        let ParsedSelection { selector, words, .. } = &plan.selection;
        let read = program.read(plan.discovery, words, selector)?;
        planner.know(program, read);
        if !self.is_held {
            return Ok(());
        }
        let remote = &mut |operation| {
            let (done, answer) = mpsc::channel();
            let _ = begun.send((operation, done));
            answer.recv().unwrap_or_else(|_| Err(Error::thread()))
        };
        planner.begin(session.target.pid, remote, &mut |metadata| drop(sender.send(metadata)))?;
        started::tell(plan, reports.started, planner);
        Ok(())
    }
}

/// Outcome of a start.
enum Started {
    /// The program runs, or is held.
    Runs(Child, Option<Box<StoppedThread>>),
    /// The program ended by itself before it could be held.
    Ended(ExitStatus),
}

/// Starts the program; a static one is held until its functions are enabled.
fn start_program(program: &Program, directory: &Directory, shared: &Shared) -> Result<Started, Error> {
    let command = &program.command[..];
    if !program.is_alone {
        let libraries = preload::list(&program.data, &directory.agent());
        return Ok(Started::Runs(launch::spawn(command, &libraries)?, None));
    }
    let start = StaticStart { directory, shared, is_static: program.is_static };
    let hold = |pid, begin: &mut dyn FnMut()| start.hold(pid, begin);
    let (mut child, held) = launch::spawn_held(command, hold)?;
    match held {
        Ok(held) => Ok(Started::Runs(child, Some(Box::new(held)))),
        Err(error) => {
            // A program without a thread library may run to its end.
            if let Ok(Some(status)) = child.try_wait() {
                return Ok(Started::Ended(status));
            }
            // The program has not run an instruction of its own.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}
