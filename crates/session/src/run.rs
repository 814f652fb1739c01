//! Runs an attach session: starts the collector, attaches, serves requests, and detaches.

use crate::attach_session::AttachSession;
use crate::controller::{AttachResult, Controller, Controls};
use crate::detach::DetachOutcome;
use crate::error::Error;
use crate::outcome::SessionOutcome;
use crate::plan::planner::LargestLibrary;
use crate::requests::Mailbox;
use crate::setup::serve::SetOnDrop;
use crate::setup::{clocks, messages};
use calltap_abi::Clock;
use calltap_collect::collector::{Collector, Due, Live, Totals};
use calltap_collect::governor::Rates;
use calltap_collect::heartbeat;
use calltap_collect::output::Consumer;
use calltap_collect::profile::Sums;
use calltap_process::target::Target;
use calltap_process::{agent, launch, proc};
use rustix::process::Pid;
use rustix::thread::gettid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

/// Consumer and callbacks of a session's run.
pub(crate) struct RunOptions<'a> {
    /// Consumer of the events.
    pub consumer: &'a mut dyn Consumer,
    /// Interval in which events reach the consumer; None: as they are read.
    pub interval: Option<Duration>,
    /// Whether the consumer needs the relation of the clocks from the first event on.
    pub settled: bool,
    /// Called once the selection is known to be valid: the filters match functions of a started
    /// program, or all requested sites of a process are enabled.
    pub accepted: &'a (dyn Fn() + Send + Sync),
    /// Whether to detach before the process has ended or its duration has passed; called every few
    /// milliseconds. A program that calltap has started runs to its end.
    pub over: &'a (dyn Fn() -> bool + Sync),
    /// Called every few milliseconds while functions are traced.
    pub meanwhile: &'a mut (dyn FnMut(&mut Controls<'_, '_>) + Send),
    /// Requests of the consumer's own thread to an attached process.
    pub mailbox: Option<&'a Mailbox>,
    /// Tells the collector that the consumer wants its events now.
    pub due: Option<&'a Due>,
}

/// Results of the controller of an ended session.
struct ControllerResults {
    cpu: Duration,
    disabled_by_limit: Vec<(String, f64)>,
    warnings: Vec<String>,
    code_is_in: Option<LargestLibrary>,
}

/// Raises the priorities of the collector, in the thread `reader`, and of the controller, which
/// calls this. The process's threads do not wait for the collector, and the controller limits their
/// events. Earlier, the two would take the processor from threads while they decode files and
/// describe all functions.
fn raise_priorities(reader: Option<&Pid>) {
    reader.into_iter().for_each(|reader| heartbeat::set_real_time(*reader));
    heartbeat::raise_priority();
}

impl AttachSession<'_> {
    /// Attaches, runs, and detaches.
    pub(crate) fn run(&mut self, run: RunOptions<'_>) -> Result<SessionOutcome, Error> {
        let interrupted = launch::interruption()?;
        self.settings().save(&self.directory)?;
        self.directory.keep(true);
        let (max_overhead, duration) = self.options.subject.limits();
        let rates = max_overhead.map(|_| Arc::new(Rates::default()));
        let (sender, receiver) = mpsc::channel();
        let (on, sums, calls) =
            (AtomicBool::new(false), Arc::new(Mutex::new(Sums::default())), AtomicU64::new(0));
        let kernel = self.record_kernel_events();
        self.notes.extend(kernel.notes);
        let threads = proc::count_threads(self.target.pid).unwrap_or(0);
        // Chunks are allocated before the process is stopped, as that takes milliseconds. The
        // collector reports a lack of memory.
        self.shared.provide_chunks(u32::try_from(threads).unwrap_or(u32::MAX));
        let collector = Collector::new(&self.shared, &mut *run.consumer, receiver, self.clock)
            .expecting(threads)
            .scheduling(kernel.sched)
            .tracepoints(kernel.tracepoints)
            .kernel_functions(kernel.functions)
            .live(run.interval.map(|interval| Live { interval, on: &on, due: run.due }))
            .settled(run.settled)
            .counting(rates.clone())
            .summing(Arc::clone(&sums))
            .telling(&calls);
        let (alive, stop, reader) = (AtomicBool::new(false), AtomicBool::new(false), OnceLock::new());
        let program = proc::first_stack(self.target.pid);
        let is_left = || (!self.target.lives() || self.is_replaced(program)) && !alive.load(Acquire);
        let over = || is_left() || interrupted.load(Acquire) || (run.over)();
        let mut controller = Controller::new(self, sender, sums, run.meanwhile);
        controller.limit = max_overhead.zip(rates.as_deref());
        controller.mailbox = run.mailbox;
        controller.calls = Some(&calls);
        controller.interrupted = Arc::clone(&interrupted);
        let (((attached, sites, attaching), left), collected) = thread::scope(|scope| {
            let _stop = SetOnDrop(&stop);
            let collecting = scope.spawn(|| {
                let _ = reader.set(gettid());
                collector.run(&|| stop.load(Acquire))
            });
            if self.clock == Clock::Coarse {
                scope.spawn(|| clocks::tick(&self.shared, &stop));
            }
            let arrived = || {
                (run.accepted)();
                raise_priorities(reader.get());
                on.store(true, Release);
            };
            let detaching = || on.store(false, Release);
            let result = controller.attach_and_detach(&arrived, duration, &over, &detaching, &alive);
            stop.store(true, Release);
            collecting.thread().unpark();
            (result, collecting.join())
        });
        controller.see_cpu();
        let seen = ControllerResults {
            cpu: controller.cpu.saturating_sub(controller.settings.cpu),
            disabled_by_limit: controller.limits.disabled,
            warnings: controller.warnings,
            code_is_in: controller.code_is_in,
        };
        self.directory.keep(!left.whole);
        self.notes.extend(self.is_replaced(program).then(|| replaced(&self.target)));
        self.outcome((attached, sites, attaching), left, seen, collected)
    }

    /// Whether the process has executed another program since the beginning of its first stack was
    /// `program`, and is not followed.
    fn is_replaced(&self, program: Option<u64>) -> bool {
        let now = proc::first_stack(self.target.pid);
        let is_other = !self.options.plan.follow && now.is_some() && program.is_some() && now != program;
        // The agent is not there yet, either, where calltap has only begun to attach.
        is_other && !agent::has_mapped(self.target.pid, &self.directory.identity())
    }

    /// Assembles the outcome; fails if attaching has failed.
    fn outcome(
        &mut self,
        (attached, sites, attaching): AttachResult,
        left: DetachOutcome,
        seen: ControllerResults,
        collected: thread::Result<(Totals, Option<calltap_trace::Error>)>,
    ) -> Result<SessionOutcome, Error> {
        attached?;
        self.shared.check()?;
        let (totals, failed) = collected.map_err(|_| Error::thread())?;
        let mut notes = std::mem::take(&mut self.notes);
        let trouble = messages::trouble(&self.shared, &self.target.name, totals);
        notes.extend(trouble.into_iter().chain(seen.warnings).chain(left.notes));
        notes.extend((!left.whole).then(|| left_behind(self.target.pid)));
        Ok(SessionOutcome {
            status: None,
            stops: Some([attaching, left.stops]),
            disabled_by_limit: seen.disabled_by_limit,
            totals,
            sites,
            python: self.shared.python_sites().count(),
            code_is_in: seen.code_is_in,
            notes,
            failed,
            ended: !self.target.lives(),
            whole: left.whole,
            cpu: seen.cpu,
        })
    }
}

/// Returns the note about a process that has executed another program.
fn replaced(target: &Target) -> String {
    let (name, pid) = (&target.name, target.pid);
    let other = Target::of_child(pid).map_or_else(String::new, |now| format!(" ({})", now.name));
    format!(
        "{name}-{pid} has executed another program{other}, which is not traced: 'record -p {pid}' traces it"
    )
}

fn left_behind(pid: u32) -> String {
    format!("calltap could not remove all of its code: 'calltap detach -p {pid}' tries again")
}
