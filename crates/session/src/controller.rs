//! The controller of a session that is attached or started: answers agents and other commands,
//! changes what is traced, and enforces the overhead limit.

use crate::attach_session::AttachSession;
use crate::detach::DetachOutcome;
use crate::error::{Error, KeptWhole};
use crate::follow::Follow;
use crate::limits::{Limits, ProcessorTime};
use crate::options::{KeptCalls, Options};
use crate::plan::planner::{Applied, LargestLibrary, Planner, Replacement, wait_until_known};
use crate::requests::{Answer, KeepRules, Mailbox, Request, Requests};
use crate::settings::Settings;
use crate::settings::status::{Status, profile_functions};
use crate::setup::serve::{self, SetOnDrop};
use crate::started;
use crate::{attach, detach};
use calltap_collect::governor::{self, Governor, Rates, Spent};
use calltap_collect::heartbeat;
use calltap_collect::kept::keeping::{Change, Subtree};
use calltap_collect::metadata::Metadata;
use calltap_collect::profile::{self, Sums};
use calltap_collect::shm::{self, Shared};
use calltap_process::Reason;
use calltap_process::clock;
use calltap_process::ptrace::in_tracer_thread;
use calltap_process::ptrace::stop_times::Stops;
use calltap_selection::{Alarm, ParsedSelection, Selection};
use calltap_trace::{ClockPair, Detaching, Profile, Record, SiteId, TracerInfo};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Time between two checks whether to detach.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Access of a live view to the sites and figures of a session.
pub struct Controls<'s, 'p> {
    planner: &'s mut Planner<'p>,
    records: &'s Sender<Metadata>,
    limits: &'s mut Limits,
    spent: Option<Spent>,
    sums: &'s dyn Fn() -> Vec<Profile>,
    calls: u64,
}

impl Controls<'_, '_> {
    /// Enables or disables functions, by their sites, while the process runs. The governor may
    /// disable a site enabled here again; it does not enable one that was disabled here.
    pub fn switch(&mut self, sites: &HashSet<SiteId>, on: bool) {
        let stubs = sites.iter().map(|site| site.0).collect();
        let mut emit = |record| drop(self.records.send(record));
        if on {
            self.planner.enable(&stubs, &mut emit);
        } else {
            self.planner.disable(&stubs, &mut emit);
        }
        self.limits.release(sites);
    }

    /// Counts the functions that are enabled, and those that ever were, in all processes.
    pub fn functions(&self) -> (usize, usize) {
        self.planner.count()
    }

    /// Returns the sites that the governor has disabled.
    pub fn disabled_by_limit(&self) -> &HashSet<SiteId> {
        self.limits.off()
    }

    /// Returns the time spent on tracing and by the process itself so far. None without a limit.
    pub fn spent(&self) -> Option<Spent> {
        self.spent
    }

    /// Returns the number of calls that were read until about a second ago.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the sums of the profile tracer until now, by process and site.
    pub fn sums(&self) -> Vec<Profile> {
        (self.sums)()
    }
}

/// Whether attaching succeeded, the functions that were enabled, and how long it stopped the
/// process.
pub(crate) type AttachResult = (Result<(), Error>, u32, Stops);

/// State of a session while its process is attached to.
pub(crate) struct Controller<'a> {
    session: &'a AttachSession<'a>,
    /// Whether calltap has started the program.
    started: bool,
    /// Processor time of the process, when it was last read.
    pub(crate) cpu: Duration,
    records: Sender<Metadata>,
    /// The overhead limit, and the counts for it.
    pub(crate) limit: Option<(f64, &'a Rates)>,
    pub(crate) limits: Limits,
    meanwhile: &'a mut dyn FnMut(&mut Controls<'_, '_>),
    /// Requests of other commands.
    requests: Requests,
    /// Requests of a live view, which decides what is traced.
    pub(crate) mailbox: Option<&'a Mailbox>,
    /// Number of calls that the collector has read.
    pub(crate) calls: Option<&'a AtomicU64>,
    pub(crate) settings: Settings,
    /// The calls that are kept.
    kept: Subtree,
    /// Sums of ended threads.
    sums: Arc<Mutex<Sums>>,
    /// Timer of the daemon that converts recorded calls.
    alarm: Alarm,
    /// Warnings of the planner.
    pub(crate) warnings: Vec<String>,
    /// Whether the user wants to end.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// The largest library of a program that contains almost no code.
    pub(crate) code_is_in: Option<LargestLibrary>,
    /// Whether a command requested to detach.
    detach_requested: bool,
}

/// Returns the sums of a session's threads, ended and living, since `began`.
fn summed_up(ended: &Mutex<Sums>, shared: &Shared, began: ClockPair) -> Vec<Profile> {
    let sums = ended.lock().map(|sums| sums.with_living(shared)).unwrap_or_default();
    sums.rows(began, clock::pair())
}

impl<'a> Controller<'a> {
    /// Creates the controller of a session whose process was not changed yet.
    pub(crate) fn new(
        session: &'a AttachSession<'a>,
        records: Sender<Metadata>,
        sums: Arc<Mutex<Sums>>,
        meanwhile: &'a mut dyn FnMut(&mut Controls<'_, '_>),
    ) -> Controller<'a> {
        Controller {
            session,
            started: false,
            cpu: Duration::ZERO,
            records,
            limit: None,
            limits: Limits::default(),
            meanwhile,
            requests: Requests::default(),
            mailbox: None,
            calls: None,
            settings: session.settings(),
            kept: session.options.kept.subtree.clone().unwrap_or_default(),
            sums,
            alarm: Alarm::default(),
            warnings: Vec::new(),
            interrupted: Arc::default(),
            code_is_in: None,
            detach_requested: false,
        }
    }

    /// Serves a program that calltap has started, and the agents of its processes, until `ended`.
    pub(crate) fn run(mut self, planner: &mut Planner<'_>, ended: &AtomicBool) -> Result<(), Error> {
        self.started = true;
        let AttachSession { options, target, .. } = self.session;
        let Options { plan, reports, .. } = options;
        let records = self.records.clone();
        serve::answer_all(planner, plan, reports, &target.name, &records, ended, &mut |planner| {
            self.call_view(planner, None);
            self.serve(planner);
            self.wake(planner);
        })
    }

    /// Attaches, serves until the end, and detaches.
    pub(crate) fn attach_and_detach(
        &mut self,
        arrived: &dyn Fn(),
        duration: Option<Duration>,
        over: &(dyn Fn() -> bool + Sync),
        detaching: &dyn Fn(),
        alive: &AtomicBool,
    ) -> (AttachResult, DetachOutcome) {
        let AttachSession { options, target, directory, shared, .. } = self.session;
        let (name, Options { subject, plan, reports, .. }) = (&target.name, options);
        let planned = serve::with_planner(shared, directory, subject, plan, name, &|| {}, |planner| {
            let records = self.records.clone();
            planner.interrupted = Arc::clone(&self.interrupted);
            let (mut attached, stops) =
                attach::attach(planner, target, reports.tell, &mut |record| drop(records.send(record)));
            if attached.is_ok() {
                arrived();
                started::tell(plan, reports.started, planner);
                let until = duration.map(|duration| Instant::now() + duration);
                let over = || over() || until.is_some_and(|until| Instant::now() >= until);
                let let_go = AtomicBool::new(false);
                let follow = || Follow {
                    directory,
                    records: self.records.clone(),
                    first: target.pid,
                    started: false,
                    alive,
                    stop: &let_go,
                };
                let follow = plan.follow.then(follow);
                attached = thread::scope(|scope| {
                    let _let_go = SetOnDrop(&let_go);
                    let following = follow.map(|follow| follow.begin(scope));
                    let remained = self.remain(planner, &over);
                    // Detaching stops all processes; only its tracer can stop a followed one.
                    let_go.store(true, Release);
                    following.map(ScopedJoinHandle::join);
                    remained
                });
                // Detaching reads other processes, one of which may wait for an answer.
                self.mailbox.into_iter().for_each(Mailbox::close);
                self.warnings = planner.take_warnings();
                self.code_is_in = planner.start.code_is_in.take();
                let at = planner.event_ticks();
                let of_process = |process| Record::Detaching(Detaching { process, at });
                let records = shared.processes().map(of_process);
                records.for_each(|record| drop(self.records.send(record.into())));
                detaching();
            }
            (attached, planner.tally.on, stops)
        });
        // The program is recorded until it is left.
        heartbeat::raise_priority();
        (planned, detach::detach(target, directory, shared))
    }

    /// Serves the session until it is over.
    fn remain(&mut self, planner: &mut Planner<'_>, over: &(dyn Fn() -> bool + Sync)) -> Result<(), Error> {
        let (shared, records, mailbox) = (&self.session.shared, self.records.clone(), self.mailbox);
        self.see_cpu();
        let mut times = ProcessorTime::default();
        let mut governor = self.limit.map(|(limit, rates)| Governor::new(rates, limit, times.read(shared)));
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ended = SetOnDrop(&ended);
            scope.spawn(|| {
                while !over() && !ended.load(Acquire) {
                    match mailbox {
                        Some(mailbox) if mailbox.wait(LOOK_INTERVAL) => {
                            shared.control().doorbell.fetch_add(1, AcqRel);
                            shm::wake(&shared.control().doorbell);
                            thread::sleep(LOOK_INTERVAL / 10);
                        }
                        Some(_) => {}
                        None => thread::sleep(LOOK_INTERVAL),
                    }
                }
                serve::end_planning(shared, &ended);
            });
            let AttachSession { options, target, .. } = self.session;
            let Options { plan, reports, .. } = options;
            let result =
                serve::answer_all(planner, plan, reports, &target.name, &records, &ended, &mut |planner| {
                    self.see_cpu();
                    // There may be many processes, and each is asked for its time.
                    if let Some(governor) = governor.as_mut().filter(|governor| !governor.is_early()) {
                        let cpu = times.read(shared);
                        if governor.due(cpu) {
                            self.govern(governor, cpu, planner);
                        }
                    }
                    let spent = governor.as_ref().and_then(|governor| governor.spent);
                    self.call_view(planner, spent);
                    self.serve(planner);
                    self.wake(planner);
                    ended.fetch_or(self.detach_requested, AcqRel);
                });
            // An error ends the session as well.
            ended.store(true, Release);
            result
        })
    }

    /// Calls the live view's callback.
    fn call_view(&mut self, planner: &mut Planner<'_>, spent: Option<Spent>) {
        let (shared, began, sums) = (&self.session.shared, self.settings.clocks, Arc::clone(&self.sums));
        let sums = || summed_up(&sums, shared, began);
        let (records, limits) = (&self.records, &mut self.limits);
        let calls = self.calls.map_or(0, |calls| calls.load(Relaxed));
        (self.meanwhile)(&mut Controls { planner, records, limits, spent, sums: &sums, calls });
    }

    /// Answers requests of a live view, and one of another command.
    fn serve(&mut self, planner: &mut Planner<'_>) {
        while let Some((request, sender)) = self.mailbox.and_then(Mailbox::next) {
            // The requesting process may be gone.
            let _ = sender.send(self.answer(request, planner));
        }
        let AttachSession { directory, target, .. } = self.session;
        let Some(request) = self.requests.next(directory) else { return };
        let changes = matches!(request, Request::Set { .. } | Request::Select(_) | Request::ResetProfile);
        let answer = match self.mailbox {
            Some(_) if changes => Answer::Refused(target.refuse(Reason::Mounted).to_string()),
            _ => self.answer(request, planner),
        };
        self.requests.answer(directory, &answer);
    }

    fn answer(&mut self, request: Request, planner: &mut Planner<'_>) -> Answer {
        let AttachSession { shared, target, .. } = self.session;
        match request {
            Request::Set { given, kept, on, later } => self
                .set(planner, given, kept, (on, later))
                .unwrap_or_else(|error| Answer::Refused(error.to_string())),
            Request::Status => {
                let kept = (!self.kept.is_all()).then(|| self.kept.describe());
                Answer::Status(Status { kept, ..Status::new(target, shared, &self.settings, planner) })
            }
            Request::Profile => {
                let rows = summed_up(&self.sums, shared, self.settings.clocks);
                Answer::Profile(profile_functions(planner, &rows))
            }
            Request::Selection => {
                planner.decode_all(target.pid);
                Answer::Selection(self.settings.words.clone(), planner.list())
            }
            Request::Select(words) => {
                let on = self.settings.on;
                self.select(planner, words, &[], (on, true))
                    .unwrap_or_else(|error| Answer::Refused(error.to_string()))
            }
            Request::ResetProfile => {
                if let Ok(mut sums) = self.sums.lock() {
                    *sums = Sums::default();
                }
                profile::reset(shared);
                Answer::Profile(Vec::new())
            }
            Request::Detach if self.started => Answer::Refused(target.refuse(Reason::Records).to_string()),
            Request::Detach => {
                self.detach_requested = true;
                Answer::Detaching
            }
        }
    }

    /// Converts recorded calls if the daemon is enabled and its timer has expired.
    fn wake(&mut self, planner: &mut Planner<'_>) {
        let is_enabled = self.settings.words.ftraced.as_ref().is_some_and(|ftraced| ftraced.enabled);
        if is_enabled && self.alarm.rings() {
            self.convert(planner);
        }
    }

    /// Converts recorded calls now.
    fn convert(&mut self, planner: &mut Planner<'_>) {
        let (Some(ftraced), target) = (&mut self.settings.words.ftraced, &self.session.target) else {
            return;
        };
        let mut records = Vec::new();
        let work = || planner.convert(target, ftraced, &mut |record| records.push(record));
        if let Err(error) = in_tracer_thread(work).map_err(Error::from).and_then(|done| done) {
            records.push(Record::Note { text: error.to_string() }.into());
        }
        records.into_iter().for_each(|record| drop(self.records.send(record)));
    }

    /// Changes what is traced and which calls are kept.
    fn set(
        &mut self,
        planner: &mut Planner<'_>,
        given: Selection,
        kept: KeepRules,
        (on, later): (Option<bool>, bool),
    ) -> Result<Answer, Error> {
        if !given.tracers.is_empty() {
            return Err(self.session.target.refuse(Reason::TracersStay).into());
        }
        let mut words = self.settings.words.clone();
        let changed = words.change(given)? || !kept.is_empty();
        let on = on.unwrap_or(changed || self.settings.on);
        if kept.is_empty() {
            return self.select(planner, words, &[], (on, later));
        }
        self.check_kept()?;
        let kept = kept.instead_of(&self.kept);
        // Nesting is known only if both functions are recorded.
        let about: Vec<String> = kept.functions().cloned().collect();
        let added: Vec<String> = about.iter().filter(|word| !words.filter.contains(word)).cloned().collect();
        calltap_selection::add(&mut words, &added);
        let mut answer = self.select(planner, words, &about, (on, later))?;
        if let Answer::Set { notes, .. } = &mut answer {
            notes.push(format!("from now on {}", kept.sentence()));
        }
        let known = |take: &mut dyn FnMut(&Record)| planner.describe(&mut |metadata| metadata.tell(take));
        let change = Change::new(&kept, planner.event_ticks(), known);
        let mut send = |record| drop(self.records.send(record));
        send(Metadata::Kept(Box::new(change)));
        wait_until_known(&mut send);
        self.kept = kept;
        Ok(answer)
    }

    /// Refuses to change which calls are kept if something else decides it.
    fn check_kept(&self) -> Result<(), Error> {
        let AttachSession { options, target, .. } = self.session;
        let KeptCalls { slow, flight, .. } = &options.kept;
        let why = if self.mailbox.is_some() {
            Some(KeptWhole::Mounted)
        } else if slow.is_some() || flight.is_some() {
            Some(KeptWhole::Ruled)
        } else {
            options.rings.overwrite.then_some(KeptWhole::Overwritten)
        };
        why.map_or(Ok(()), |why| Err(Error::Kept { program: target.name.clone(), why }))
    }

    /// Makes the session trace a new selection.
    fn select(
        &mut self,
        planner: &mut Planner<'_>,
        words: Selection,
        about: &[String],
        (on, later): (bool, bool),
    ) -> Result<Answer, Error> {
        let AttachSession { target, directory, .. } = self.session;
        let before = &self.settings.words;
        let after = ParsedSelection::about(&words, later || before.ftraced.is_some(), about)
            .map_err(|why| target.refuse(Reason::Selection { why: why.to_string() }))?;
        // The trace already has the tracers' ids and names.
        let kinds = |tracers: &[TracerInfo]| tracers.iter().map(|tracer| tracer.kind).collect::<Vec<_>>();
        let paused = words.paused != before.paused;
        let fixed = self.mailbox.is_none() && !paused;
        if fixed && kinds(&after.tracers) != kinds(&self.settings.session.tracers) {
            return Err(target.refuse(Reason::TracersStay).into());
        }
        let replacement = Replacement { before, after: Arc::new(after), on };
        let mut emit = |metadata| drop(self.records.send(metadata));
        let Applied { words, tracers, tally, notes } =
            in_tracer_thread(|| planner.apply(target, replacement, &mut emit))??;
        self.settings.session.tracers = tracers;
        (self.settings.words, self.settings.on) = (words, on);
        self.settings.save(directory)?;
        Ok(Answer::Set {
            on: tally.on,
            off: tally.off,
            stopped_ns: tally.stopped.as_nanos() as u64,
            written_ns: tally.written.as_nanos() as u64,
            notes,
        })
    }

    /// Reads the process's CPU time. That of an ended process stays as last read.
    pub(crate) fn see_cpu(&mut self) {
        self.cpu = self.session.target.cpu().unwrap_or(self.cpu);
    }

    fn govern(&mut self, governor: &mut Governor<'_>, cpu: Duration, planner: &mut Planner<'_>) {
        let shared = &self.session.shared;
        let lost = shared
            .thread_entries()
            .map(|entry| entry.lost_entries.load(Relaxed).saturating_add(entry.lost_exits.load(Relaxed)));
        let lost = governor::lost(shared.control(), lost);
        let named = || planner.stubs_of(&self.settings.words.named());
        let judgement = governor.judge_cost(cpu, lost, &planner.costly_stubs(), &named);
        self.limits.carry_out(judgement, planner, &mut |record| drop(self.records.send(record)));
    }
}
