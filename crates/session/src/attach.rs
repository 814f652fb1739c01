//! Into a running process.
//!
//! One thread is borrowed to load the agent, at a point where it holds no lock of the allocator or the dynamic linker; then to map
//! hops. Sites are switched while everything runs; only sites of several instructions need one look at all threads, which are stopped for it.
//!
//! All of it runs in a thread that ends soon (see [`crate::threads`]).

use crate::agent;
use crate::frames::{self, Stacks};
use crate::inject::{Call, Failed, Place};
use crate::journal::Entry;
use crate::maps::{self, Region};
use crate::modules::mapped;
use crate::planner::{Planner, Tally, switch};
use crate::shm::Shared;
use crate::target::{Symbols, Target, TextSegment, is_libc};
use crate::text::{ProcessText, Sync};
use crate::threads::{self, Held, NotHeld};
use crate::{Error, directory::Directory, proc, seccomp};
use calltap_abi::{plan, remote};
use calltap_patch::{Avma, Demand, Site, Text};
use calltap_trace::Record;
use object::read::ReadCache;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How long a thread may take to load the agent.
const LOAD: Duration = Duration::from_secs(5);
/// How long any other borrowed call may take.
const CALL: Duration = Duration::from_secs(5);
/// How long the kernel may take to register the process, on a busy machine. Nobody stands still meanwhile.
const REGISTRATION: Duration = Duration::from_secs(30);
/// A program has loaded its libraries after this time, mostly.
const STARTING: Duration = Duration::from_millis(200);
/// How long it is tried to find a thread, or all threads, at a point that will do.
const TRY: Duration = Duration::from_secs(10);
const RTLD_NOW: u64 = 2;

/// What attaching, or detaching, took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stops {
    /// The longest that a single thread stood still or worked for us.
    pub longest: Duration,
    /// All of it, one after the other.
    pub total: Duration,
    /// Threads that the process has.
    pub threads: usize,
}

impl Stops {
    /// Another stop.
    pub fn add(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        self.total += time;
    }
}

/// A process while it is being operated on.
pub struct Patient<'a> {
    target: &'a Target,
    /// Its memory.
    pub text: ProcessText,
    /// Its mappings.
    pub regions: Vec<Region>,
    place: Place,
    /// Where the agent is loaded.
    pub agent: Option<u64>,
    /// A thread has not come back from a call.
    late: bool,
}

impl<'a> Patient<'a> {
    /// Looks at it.
    pub fn new(target: &'a Target) -> Result<Self, Error> {
        let refuse = |reason: &str| target.refuse(reason);
        let mut text = ProcessText::open(target.pid).map_err(|error| refuse(&error.to_string()))?;
        text.sync = Sync::Quiet; // nobody runs the place until a thread is sent there
        let regions = maps::read(target.pid).map_err(|error| refuse(&error.to_string()))?;
        let mut places = Place::all(&regions, |region, size| target.behind_text(region, size));
        tidy(target, &mut text, &regions, &places);
        places.retain(|place| !place.is_used(&mut text));
        let none = "none of its libraries has room behind its text for the code that loads the agent";
        let place = places.into_iter().next().ok_or_else(|| refuse(none))?;
        let agent = loaded_agent(&regions, &mut text);
        Ok(Patient { target, text, regions, place, agent, late: false })
    }

    /// Puts back the bytes at the place, unless the thread is late and still runs what is there.
    pub fn put_back(&mut self, thread: &Held) {
        let late = self.late && !thread.has_ended();
        if !late {
            self.place.restore(&mut self.text);
        }
    }

    /// Has a thread make a call.
    fn call(&mut self, thread: &mut Held, call: &Call<'_>, limit: Duration) -> Result<(), Failed> {
        let done = self.place.call(&mut self.text, thread, &self.regions, call, limit);
        self.late |= matches!(done, Err(Failed::Late | Failed::Thread(_)));
        done.map(drop)
    }

    /// Has a thread call one of the agent's operations.
    pub fn remote(&mut self, thread: &mut Held, operation: u32, path: &Path) -> Result<(), Failed> {
        let function = self.agent.zip(agent::symbol("calltap_remote")).map(|(base, offset)| base + offset);
        let call = Call {
            function: function.ok_or(Failed::NoAgent)?,
            arguments: [u64::from(operation), self.place.string_address()],
            string: path.as_os_str().as_encoded_bytes(),
            complaint: 0,
        };
        self.call(thread, &call, CALL)
    }

    /// Some thread that can be stopped.
    fn any_thread(&self) -> Result<Held, Error> {
        let mut last = NotHeld::Gone;
        for tid in threads::list_politely(self.target.pid) {
            match Held::take(self.target.pid, tid) {
                Ok(thread) => return Ok(thread),
                Err(why) => last = why,
            }
        }
        Err(self.target.refuse(&say(last)))
    }

    /// A thread that may call into the C library.
    fn quiet_thread(&mut self) -> Result<Held, Error> {
        let guards = frames::Guards::new(self.target.pid, &self.regions);
        let start = Instant::now();
        let mut last = "no thread".to_owned();
        while start.elapsed() < TRY {
            for tid in threads::list_politely(self.target.pid) {
                match Held::take(self.target.pid, tid) {
                    Ok(thread) => match guards.inside(&thread, &mut self.text, &self.regions) {
                        None => return Ok(thread),
                        Some(what) => last = format!("its threads are in {what} whenever they are looked at"),
                    },
                    Err(NotHeld::Refused(errno)) => {
                        return Err(self.target.refuse(&say(NotHeld::Refused(errno))));
                    }
                    Err(why) => last = say(why),
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(self.target.refuse(&last))
    }
}

/// Takes away code that somebody has left who was killed, unless a thread is running it still.
fn tidy(target: &Target, text: &mut ProcessText, regions: &[Region], places: &[Place]) {
    let mut left: Vec<&Place> = places.iter().filter(|place| place.is_left(text)).collect();
    if left.is_empty() {
        return;
    }
    left.sort_by_key(|place| place.range());
    let ranges: Vec<(u64, u64)> = left.iter().map(|place| place.range()).collect();
    let Ok(held) = Held::take_all(target.pid) else { return };
    // On its scratch memory a thread in the call has the way back.
    let regions = maps::read(target.pid).unwrap_or_else(|_| regions.to_vec());
    let inside = Stacks::new(&held, &regions).words_in(text, &ranges);
    for place in left {
        let (start, end) = place.range();
        if !inside.iter().any(|word| (start..end).contains(word)) {
            place.restore(text);
        }
    }
}

/// For how long the first of them has stood still.
pub fn longest(held: &[Held]) -> Duration {
    held.iter().map(Held::stopped_for).max().unwrap_or_default()
}

/// Why threads could not be held.
pub fn say(why: NotHeld) -> String {
    match why {
        NotHeld::Gone => "it has ended".into(),
        NotHeld::Stuck => "its threads are in the kernel and do not come out".into(),
        NotHeld::Stopped => "it was stopped by a signal".into(),
        NotHeld::Refused(errno) => format!("its threads cannot be stopped: {errno}"),
    }
}

/// Why a call could not be made.
pub fn explain(target: &Target, failed: Failed) -> Error {
    target.refuse(&match failed {
        Failed::NoAgent => "the agent is not there any more: it runs another program by now".into(),
        Failed::Thread(why) => say(why),
        Failed::Memory => "its memory could not be written".into(),
        Failed::Late => "a call in it did not return in time".into(),
    })
}

/// Where our agent is loaded: this build of it, whatever session it came with.
fn loaded_agent(regions: &[Region], text: &mut ProcessText) -> Option<u64> {
    let mut is_this = |region: &&Region| {
        let mut head = vec![0; 4096.min(agent::IMAGE.len())];
        text.read(Avma(region.start), &mut head).is_ok() && agent::IMAGE.starts_with(&head)
    };
    let first = |region: &&Region| region.offset == 0 && agent::is_mapped(region);
    regions.iter().filter(first).find(|region| is_this(region)).map(|region| region.start)
}

/// Sees to it that no seccomp filter forbids a system call of the agent.
fn check_filters(target: &Target, stops: &mut Stops) -> Result<(), Error> {
    for tid in threads::list(target.pid).into_iter().filter(|tid| proc::is_filtered(*tid)) {
        let thread = match Held::take(target.pid, tid) {
            Ok(thread) => thread,
            Err(NotHeld::Gone) => continue,
            Err(why) => return Err(target.refuse(&say(why))),
        };
        let filters = thread.seccomp_filters();
        stops.add(thread.release());
        let why = match filters.as_deref().map(seccomp::forbids) {
            Ok(None) => continue,
            Ok(Some(call)) => format!("its seccomp filter does not allow {call}, which the agent needs"),
            Err(errno) => format!(
                "it runs under a seccomp filter that may forbid what the agent does, and that cannot be read ({errno}): root can read it"
            ),
        };
        return Err(target.refuse(&why));
    }
    Ok(())
}

/// Attaches: loads the agent, and switches on what is wanted. How far it came, and what it took.
pub fn come(
    planner: &mut Planner<'_>,
    target: &Target,
    emit: &mut (dyn FnMut(Record) + Send),
) -> (Result<(), Error>, Stops) {
    let work = || match load(target, planner.directory, planner.shared) {
        Err(error) => (Err(error), Stops::default()),
        Ok(mut stops) => (planner.attach(target, &mut stops, emit), stops),
    };
    // In a thread that ends: the kernel then lets go of whatever is still held.
    let failed = || (Err(Error::thread()), Stops::default());
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| failed())
}

/// Loads the agent into a process, or finds it there from an earlier time, and has it join the session.
fn load(target: &Target, directory: &Directory, shared: &Shared) -> Result<Stops, Error> {
    let mut stops = Stops { threads: threads::list(target.pid).len(), ..Stops::default() };
    check_filters(target, &mut stops)?;
    let mut patient = Patient::new(target);
    let start = Instant::now();
    // A program that was only just started has not loaded its libraries yet.
    while patient.is_err() && target.lives() && start.elapsed() < STARTING {
        std::thread::sleep(Duration::from_millis(5));
        patient = Patient::new(target);
    }
    let mut patient = patient?;
    let path = directory.agent();
    let mut complaint = None;
    let (mut thread, called) = match patient.agent {
        Some(_) => {
            let mut thread = patient.any_thread()?;
            let called = patient.remote(&mut thread, remote::JOIN, &path);
            (thread, called)
        }
        None => {
            let libc = Symbols::of(target.pid, &patient.regions, is_libc);
            let address = |name: &str| libc.as_ref().and_then(|libc| libc.address(name));
            let dlopen = address("dlopen").or_else(|| address("__libc_dlopen_mode"));
            let dlopen = dlopen.ok_or_else(|| target.refuse("its C library has no dlopen that we know"))?;
            let mut thread = patient.quiet_thread()?;
            let call = Call {
                function: dlopen,
                arguments: [patient.place.string_address(), RTLD_NOW],
                string: path.as_os_str().as_encoded_bytes(),
                complaint: address("dlerror").unwrap_or(0),
            };
            let called = patient.call(&mut thread, &call, LOAD);
            complaint = patient.place.complaint(&mut patient.text).filter(|_| called.is_ok());
            if let (Some((_, scratch)), Some(munmap)) = (&complaint, address("munmap")) {
                let call = Call { function: munmap, arguments: *scratch, string: &[], complaint: 0 };
                let _ = patient.call(&mut thread, &call, CALL);
            }
            (thread, called)
        }
    };
    let joined = shared.process(0).filter(|process| process.pid.load(Acquire) != 0);
    let result = match (called, joined) {
        (Err(failed), _) => Err(explain(target, failed)),
        (Ok(()), None) => Err(target.refuse(&match complaint {
            Some((why, _)) => format!("its dynamic linker did not load the agent: {why}"),
            None => "the agent could not map its memory".into(),
        })),
        (Ok(()), Some(process)) => {
            patient.regions = maps::read(target.pid).unwrap_or_default();
            patient.agent = loaded_agent(&patient.regions, &mut patient.text);
            let registered = patient.remote(&mut thread, remote::REGISTER, Path::new(""));
            registered.map(|()| process).map_err(|failed| explain(target, failed))
        }
    };
    patient.put_back(&thread);
    stops.add(thread.release());
    let process = result?;
    let start = Instant::now();
    while process.sync.load(Acquire) == plan::Sync::Pending as u32 && start.elapsed() < REGISTRATION {
        std::thread::sleep(Duration::from_millis(1));
        // (Only looked at when it takes long.)
        let regions = if start.elapsed() > CALL / 20 { maps::read(target.pid).ok() } else { None };
        if regions.is_some_and(|regions| !regions.iter().any(|region| Some(region.start) == patient.agent)) {
            return Err(explain(target, Failed::NoAgent));
        }
    }
    Ok(stops)
}

impl Planner<'_> {
    /// Switches on what is wanted in a process whose agent was [loaded](load).
    fn attach(
        &mut self,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        self.check_first(target)?;
        self.come_to_terms(target, stops, emit)
    }

    /// Looks at what can be chosen from.
    fn check_first(&mut self, target: &Target) -> Result<(), Error> {
        if let Ok(regions) = maps::read(target.pid) {
            self.see_modules(0, target.pid, false, &regions, &mut Vec::new());
        }
        self.check_once()
    }

    /// Makes the sites of the process what they are wanted to be.
    pub fn come_to_terms(
        &mut self,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Record),
    ) -> Result<(), Error> {
        let mut records = Vec::new();
        self.look(0, target.pid, false, &mut records);
        records.drain(..).for_each(&mut *emit);
        self.hand_over();
        if !self.stubs.to_map.is_empty() {
            let mut patient = Patient::new(target)?;
            let mut thread = patient.any_thread()?;
            let mapped = patient.remote(&mut thread, remote::MAP, Path::new(""));
            patient.put_back(&thread);
            stops.add(thread.release());
            mapped.map_err(|failed| explain(target, failed))?;
        }
        self.take_mapped(0, &mut records);
        self.patch(0, target.pid, false, &mut records);
        self.drain(target, stops)?;
        self.patch(0, target.pid, true, &mut records);
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Sees to it that nobody is inside the sites that demand it. Those where somebody stays inside are left alone.
    fn drain(&mut self, target: &Target, stops: &mut Stops) -> Result<(), Error> {
        let session = self.directory.agent();
        let Some(process) = self.processes.get_mut(&0) else { return Ok(()) };
        if process.modules.iter().all(|module| module.undrained().next().is_none()) {
            return Ok(());
        }
        let mut ranges: Vec<(u64, u64)> =
            process.modules.iter().flat_map(|module| module.undrained()).map(Site::inside).collect();
        ranges.sort();
        let Some(text) = &mut process.text else { return Ok(()) };
        let start = Instant::now();
        let held = loop {
            match Held::take_all(target.pid) {
                Ok(held) => break held,
                Err(NotHeld::Stuck) if start.elapsed() < TRY => std::thread::sleep(Duration::from_millis(5)),
                Err(why) => return Err(target.refuse(&say(why))),
            }
        };
        let regions = maps::read(target.pid).unwrap_or_default();
        let inside = Stacks::new(&held, &regions).words_in(text, &ranges);
        // What nobody may run while it is dressed is dressed now.
        if inside.is_empty() {
            // (Nothing is unloaded now; what was unloaded before is left alone.)
            let now = mapped(&regions, session.parent().unwrap_or(Path::new("/")));
            process.modules.retain(|module| now.iter().any(|now| now.is_same(&module.mapped)));
            let modules = process.modules.iter_mut().collect();
            let before = std::mem::replace(&mut text.sync, Sync::Quiet);
            switch(modules, text, Demand::NobodyRuns, &mut Tally::default());
            text.sync = before;
        }
        stops.add(longest(&held));
        drop(held);
        for module in &mut process.modules {
            module.drain(&|site| inside.iter().any(|word| site.is_inside(*word)));
        }
        if inside.is_empty() {
            // (If it cannot be written down, the next controller looks again.)
            let _ = self.directory.journal.add(&[Entry::Drained { process: 0 }]);
        }
        Ok(())
    }
}

impl Target {
    /// An error about this process.
    pub fn refuse(&self, reason: &str) -> Error {
        Error::Attach { pid: self.pid, name: self.name.clone(), reason: reason.to_owned() }
    }

    /// Where the text of the file ends that is mapped in a region, and what is behind it.
    fn behind_text(&self, region: &Region, size: usize) -> Option<(u64, Vec<u8>)> {
        let file = File::open(self.path(&region.path)).ok()?;
        let text = TextSegment::of(&ReadCache::new(&file))?;
        let end = (text.offset + text.size).next_multiple_of(16);
        // (Behind the end of the file there are zeros.)
        let mut behind = vec![0; size];
        let mut read = 0;
        while let Ok(more @ 1..) = file.read_at(&mut behind[read..], end + read as u64) {
            read += more;
        }
        Some((end.checked_sub(region.offset)? + region.start, behind))
    }
}
