//! A session that is set up: its process is found, and its files exist.

use crate::error::Error;
use crate::load_agent::check_filters::explain_no_place;
use crate::options::{Options, PlanOptions, RingOptions};
use crate::plan::directory::Directory;
use crate::settings::{Settings, Stage};
use crate::setup::clocks::NoTsc;
use crate::setup::kernel_events::{self, KernelEvents};
use crate::setup::{self, clocks, memory};
use crate::uncontrolled;
use calltap_abi::Clock;
use calltap_collect::heartbeat::LargerShare;
use calltap_collect::shm::{self, Shared};
use calltap_process::memory::maps;
use calltap_process::target::Target;
use calltap_process::{Reason, launch};
use calltap_trace::Session;
use std::time::Duration;

/// A session that is set up for a process in which nothing was changed yet, or for a program that
/// calltap has started.
pub(crate) struct AttachSession<'a> {
    /// Options of the command.
    pub options: &'a Options,
    /// The process.
    pub target: Target,
    /// The session's files.
    pub directory: Directory,
    /// The session's shared memory.
    pub shared: Shared,
    /// Clock of the session's times.
    pub clock: Clock,
    /// Session record for the trace.
    pub session: Session,
    /// Notes about an earlier session, whose controller was killed, that was undone.
    pub notes: Vec<String>,
    /// The processor's share of an attached process's controller: until it has detached, the
    /// process pays for its events.
    pub _share: Option<LargerShare>,
}

/// Whether a process has loaded a compiler that calls the place to which a jump at the beginning of
/// a function leads, instead of the function. Such calls cannot be found when calltap detaches: the
/// machine code may not be at its place yet.
fn follows_jumps(pid: u32) -> bool {
    let is_pypy = |region: &maps::Region| {
        let name = region.path.file_name().map(|name| name.to_string_lossy().into_owned());
        region.executable && name.is_some_and(|name| name.starts_with("libpypy"))
    };
    maps::code_and_files(pid).unwrap_or_default().iter().any(is_pypy)
}

impl<'a> AttachSession<'a> {
    /// Finds the process, undoes the session of a killed controller, and creates the session's
    /// files.
    pub(crate) fn new(options: &'a Options, pid: u32) -> Result<AttachSession<'a>, Error> {
        let share = Some(LargerShare::begin());
        let Options { subject, plan, rings, .. } = options;
        launch::prepare_to_record()?;
        let target = Target::find(pid)?;
        if follows_jumps(pid) {
            return Err(target.refuse(Reason::FollowsJumps).into());
        }
        let mut notes = uncontrolled::clear(&target)?;
        let size = shm::control_size(memory::chunks(rings.buffer_size, subject));
        let directory = Directory::create_for(&target, size, memory::CODE_SIZE)
            .map_err(|error| explain_no_place(&target, error))?;
        let shared = memory::map(&directory, rings.buffer_size, plan)?;
        let (clock, no_tsc) = clocks::usable_clock(options.clock);
        // A process that did not ask to be traced never waits for calltap.
        let rings = RingOptions { wait: Duration::ZERO, ..*rings };
        memory::prepare(&shared, &directory, clock, &rings);
        if plan.follow {
            directory.prepare_to_follow()?;
        }
        notes.extend(no_tsc.as_ref().map(NoTsc::to_string));
        let session = setup::session(&plan.selection, target.command(), clock, no_tsc.as_ref());
        Ok(AttachSession { options, target, directory, shared, clock, session, notes, _share: share })
    }

    /// Begins to record the kernel's events of the process.
    pub(crate) fn record_kernel_events(&self) -> KernelEvents {
        let Options { plan, kernel, reports, .. } = self.options;
        kernel_events::record(kernel, plan.follow, reports.tell, self.clock, self.target.pid)
    }

    pub(crate) fn settings(&self) -> Settings {
        let PlanOptions { selection, patch_mode, .. } = &self.options.plan;
        let (words, mode) = (selection.words.clone(), *patch_mode);
        Settings::new(Stage::Recording, &self.target, self.session.clone(), words, mode)
    }
}
