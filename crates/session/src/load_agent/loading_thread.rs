//! The work of the hijacked thread: loads the agent, and has it join the session.

use crate::error::Error;
use crate::load_agent::stop_thread::{DynamicLinker, Way};
use crate::plan::directory::Directory;
use calltap_abi::remote;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::agent::{LoadedAgent, PRELOADED};
use calltap_process::injection::call::Call;
use calltap_process::injection::inferior::CALL;
use calltap_process::injection::inferior::hijacked::Hijacked;
use calltap_process::injection::placed::{Frames, Placement, owner_word};
use calltap_process::memory::maps::{self, Region};
use calltap_process::proc;
use calltap_process::target::file_owner;
use nix::errno::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// Time limit for a thread to load the agent.
pub(super) const LOAD: Duration = Duration::from_secs(5);
/// Mask of the signal by which glibc has every thread change its user or group (SIGSETXID). The
/// thread that requests it waits for all others, and holds a lock that loading a library needs.
const SETXID: u64 = 1 << (33 - 1);
/// How often placing the agent is tried.
const PLACINGS: usize = 10;
const RTLD_NOW: u64 = 2;

/// A hijacked thread that loads the agent.
pub(super) struct LoadingThread<'h, 'a> {
    pub(super) directory: &'a Directory,
    pub(super) shared: &'a Shared,
    pub(super) hijacked: Hijacked<'h, 'a>,
    /// Call that closes the agent again, once the dynamic linker has opened it.
    pub(super) close: Option<Call<'static>>,
}

impl LoadingThread<'_, '_> {
    /// Loads the agent, unless it is loaded. An agent loaded by the dynamic linker has then joined
    /// the session already.
    pub(super) fn load(&mut self, way: &Way) -> Result<(), Error> {
        match way {
            Way::Loaded => {}
            Way::Opened(linker) => self.open(linker)?,
            Way::Placed => self.place()?,
        }
        self.give_files();
        Ok(())
    }

    /// Returns an error about the process.
    fn refuse(&self, reason: impl Into<Reason>) -> Error {
        self.hijacked.inferior.target.refuse(reason).into()
    }

    /// Gives the session's files to the user of the thread, which opens them next: the process may
    /// have changed its user since they were created. If that fails, so does the opening.
    fn give_files(&self) {
        if let Ok(owner) = file_owner(self.hijacked.thread.tid) {
            let _ = self.directory.give_to(owner);
        }
    }

    /// Opens the agent by the dynamic linker. The thread holds no lock.
    fn open(&mut self, linker: &DynamicLinker) -> Result<(), Error> {
        match self.owner_word() {
            Ok(word) => self.shared.control().owner_word.store(word, Release),
            // If the word is in use or the thread library unknown, threads find their states by a
            // thread-local variable.
            Err(_) => self.directory.replace_agent(PRELOADED.bytes())?,
        }
        self.give_files();
        let path = self.directory.agent();
        let call = Call {
            function: linker.dlopen,
            arguments: [self.hijacked.inferior.place.string_address(), RTLD_NOW],
            string: path.as_os_str().as_encoded_bytes(),
            complaint: linker.dlerror.unwrap_or(0),
            let_in: SETXID,
            // An allocator of the program may use restartable sequences, which an opener has none
            // of.
            opens_files: !linker.has_other_allocators,
        };
        let handle = self.hijacked.call(&call, LOAD).map_err(|failed| self.refuse(failed))?;
        let inferior = &mut *self.hijacked.inferior;
        let pid = inferior.target.pid;
        let around = |address| maps::around(pid, address).ok().flatten();
        let Some((why, scratch)) = inferior.place.complaint(&mut inferior.text, around) else {
            let close = |dlclose| Call { let_in: SETXID, ..Call::new(dlclose, [handle, 0]) };
            self.close = linker.dlclose.map(close);
            return Ok(());
        };
        if let Some(munmap) = linker.munmap {
            let _ = self.hijacked.call(&Call::new(munmap, scratch), CALL);
        }
        Err(self.refuse(Reason::Linker { why }))
    }

    /// Places the agent.
    pub(super) fn place(&mut self) -> Result<(), Error> {
        self.give_files();
        // Another thread may map something at the same address in the same moment.
        for _ in 0..PLACINGS {
            self.map()?;
            if self.hijacked.inferior.agent.is_some() {
                return Ok(());
            }
        }
        Err(self.refuse(Reason::AgentNotMapped))
    }

    /// Maps the agent where there is room for it. Another mapping may have taken the place.
    fn map(&mut self) -> Result<(), Error> {
        let inferior = &*self.hijacked.inferior;
        let target = inferior.target;
        let no_room = || target.refuse(Reason::NoRange);
        let placement = Placement::near(target, &inferior.regions).ok_or_else(no_room)?;
        self.directory.replace_agent(&placement.file)?;
        let path = self.directory.agent();
        let (function, arguments, string) =
            inferior.place.mapping_call(path.as_os_str().as_encoded_bytes(), &placement.mappings);
        let call = Call { string: &string, opens_files: true, ..Call::new(function, arguments) };
        let mapped = self.hijacked.call(&call, CALL);
        self.find_agent(maps::read(target.pid).unwrap_or_default());
        match mapped.map_err(|failed| target.refuse(failed))? as i64 {
            refused @ -4095..=-1 => {
                let errno = Errno::from_raw(-refused as i32);
                Err(target.refuse(Reason::AgentNotOpened { errno }).into())
            }
            _ => Ok(()),
        }
    }

    /// Makes the agent join the session, unless it has, and register the process with the kernel.
    pub(super) fn join(&mut self, known_owner_word: Option<u64>) -> Result<(), Error> {
        let pid = self.hijacked.inferior.target.pid;
        if self.hijacked.inferior.agent.is_none() && !self.has_joined() {
            // The agent's initialiser finds its files through /proc, which a process that has
            // changed its user may not read.
            self.find_agent(maps::code_and_files(pid).unwrap_or_default());
        }
        if let Some(agent) = self.hijacked.inferior.agent {
            if agent.needs_owner_word() {
                let word = known_owner_word.map_or_else(|| self.owner_word(), Ok);
                let word = word.map_err(|why| self.refuse(why))?;
                self.shared.control().owner_word.store(word, Release);
            }
            if agent.is_placed() {
                self.register_frames(&agent)?;
            }
            let path = self.directory.agent();
            self.hijacked.remote(remote::JOIN, &path).map_err(|failed| self.refuse(failed))?;
        }
        if !self.has_joined() {
            // The agent has unmapped its memory, and would keep the process's address space.
            if let Some(close) = self.close.take() {
                let _ = self.hijacked.call(&close, LOAD);
            }
            return Err(self.refuse(Reason::AgentNoMemory));
        }
        // An agent that the dynamic linker loaded has joined by itself.
        if self.hijacked.inferior.agent.is_none() {
            self.find_agent(maps::code_and_files(pid).unwrap_or_default());
        }
        // A thread that outlives the stop would make the program's own `unshare` and `setns` fail,
        // which the kernel refuses to a process of several threads.
        let register = if proc::has_one_thread(pid) { remote::REGISTER_ALONE } else { remote::REGISTER };
        self.hijacked.remote(register, Path::new("")).map_err(|failed| self.refuse(failed))
    }

    /// Whether the agent has joined the session.
    fn has_joined(&self) -> bool {
        self.shared.process(0).is_some_and(|process| process.pid.load(Acquire) != 0)
    }

    /// Finds the agent in new mappings of the process.
    fn find_agent(&mut self, regions: Vec<Region>) {
        let inferior = &mut *self.hijacked.inferior;
        inferior.regions = regions;
        inferior.agent = LoadedAgent::find(&inferior.regions, &mut inferior.text);
    }

    /// Returns the [offset](owner_word) of the thread's id from the thread pointer.
    fn owner_word(&mut self) -> Result<u64, Reason> {
        let Hijacked { inferior, thread } = &mut self.hijacked;
        owner_word(inferior.target, thread, &mut inferior.text)
    }

    /// Registers the agent's frames with the program's unwinder, if there is one, unless they are
    /// registered: a calltap that placed the agent may have been killed before.
    fn register_frames(&mut self, agent: &LoadedAgent) -> Result<(), Error> {
        let inferior = &mut *self.hijacked.inferior;
        let target = inferior.target;
        let frames = Frames::of(target, &inferior.regions).map_err(|why| target.refuse(why))?;
        let Some((function, arguments)) = frames.registration(agent) else { return Ok(()) };
        if frames.are_known(arguments, &mut inferior.text) {
            return Ok(());
        }
        for (function, arguments) in frames.search(agent).into_iter().chain([(function, arguments)]) {
            let call = Call::new(function, arguments);
            self.hijacked.call(&call, CALL).map_err(|failed| target.refuse(failed))?;
        }
        if frames.are_known(arguments, &mut self.hijacked.inferior.text) {
            return Ok(());
        }
        Err(target.refuse(Reason::UnwinderIgnoresFrames).into())
    }
}
