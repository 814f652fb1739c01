//! Joining a session, and asking the recorder what to patch.
//!
//! Unsafe because it maps and unmaps the session's files.

use crate::state::{self, Private, Session};
#[cfg(feature = "placed")]
use crate::word;
use crate::{hooks, profile, record, shadow, sys, traps};
use calltap_abi::plan::{Map, Phase, PlanHeader, Trouble};
use calltap_abi::remote::{GIVE_BACK, JOIN, LEAVE, MAP, REGISTER, TRAPS, UNMAP};
use calltap_abi::silence::Silence;
use calltap_abi::{CHUNK_SIZE, CHUNKS_AT, Control, MAGIC, PATH_MAX, PLAN_SIZE, ProcessEntry, VERSION, stub};
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// The program's start, or a dlopen, waits for the recorder as long as it works. A recorder whose heartbeat stands still for this long
/// is stopped or gone.
const SILENCE_NS: u64 = 2_000_000_000;
/// The heartbeat is looked at this often meanwhile.
const LOOK_NS: u64 = 50_000_000;

/// A batch of writes is waited for in naps of this length.
const NAP_NS: u64 = 100_000;

const PAGE: usize = 4096;

/// What the recorder has a stopped thread do (`crates/session` jumps here). 0, or why not.
///
/// Runs at any point of any thread, so nothing of the C library may be used; and only when no thread is inside a hook, for `LEAVE`.
#[unsafe(no_mangle)]
extern "C" fn calltap_remote(operation: u32, path: *const u8) -> u64 {
    let done = match operation {
        MAP => Session::get().map(map_planned),
        UNMAP => Session::get().map(unmap_planned),
        GIVE_BACK => Session::get().map(give_back_planned),
        REGISTER => {
            Session::get().and_then(record::process).map(|process| sys::register_in_background(&process.sync))
        }
        TRAPS => Session::get().map(handle_planned_traps),
        LEAVE => leave(),
        // SAFETY: the recorder passes the address of a terminated string.
        JOIN => join(unsafe { core::slice::from_raw_parts(path, crate::mem::strlen(path)) }),
        _ => None,
    };
    u64::from(done.is_none())
}

/// Opens a file in the directory of the agent; `name` ends in a NUL byte.
fn open_beside(own: &[u8], name: &[u8]) -> Option<sys::Fd> {
    let directory = own.iter().rposition(|&byte| byte == b'/')? + 1;
    let mut path = [0u8; 512];
    path.get_mut(..directory)?.copy_from_slice(own.get(..directory)?);
    path.get_mut(directory..directory + name.len())?.copy_from_slice(name);
    sys::open(path.get(..directory + name.len())?, sys::O_RDWR).ok()
}

/// Where the session's files are mapped, to unmap them: address, length.
static MAPPINGS: [[AtomicUsize; 2]; 3] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; 3];
/// Which of them shows the veneers of the code file: a mapping to duplicate where the file cannot be opened.
const VENEERS: usize = 2;

fn remember(index: usize, address: usize, length: usize) {
    if let Some([at, bytes]) = MAPPINGS.get(index) {
        at.store(address, Relaxed);
        bytes.store(length, Relaxed);
    }
}

/// Where there is no address space for so many chunks, this part of them is tried.
const FEWER: u32 = 4;

const NONE: usize = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;

/// Joins the session whose files lie beside the agent, or leaves nothing of it.
pub fn join(own: &[u8]) -> Option<()> {
    if Session::get().is_some() {
        return None;
    }
    let joined = map_session(own);
    if joined.is_none() {
        leave();
    }
    joined
}

/// Reserves address space for the control file, as far as the program can spare it: address and length.
///
/// Under a limit of address space (RLIMIT_AS) there is room for fewer chunks; for as much again is left to the program.
fn reserve(control: &Control) -> Option<(usize, usize)> {
    let mut chunks = control.chunk_max.load(Relaxed);
    loop {
        let length = CHUNKS_AT + chunks as usize * CHUNK_SIZE;
        // Chunks are aligned to their size, so that a cursor tells its place in its chunk: an aligned part is mapped over.
        let reserved = length + CHUNK_SIZE;
        // SAFETY: a new reservation without access.
        if let Ok(reservation) = unsafe { sys::map(0, 2 * reserved, 0, NONE, None) } {
            // SAFETY: the second half of the reservation just made.
            unsafe { sys::unmap(reservation + reserved, reserved) };
            remember(0, reservation, reserved);
            state::CHUNKS.store(chunks, Relaxed);
            control.chunk_max.fetch_min(chunks, Relaxed);
            return Some((reservation, length));
        }
        // Chunks that may be in use already must lie within.
        let fewer = (chunks / FEWER).max(control.chunk_count.load(Relaxed));
        if fewer >= chunks {
            return None;
        }
        chunks = fewer;
    }
}

fn map_session(own: &[u8]) -> Option<()> {
    let (control, code) = (open_beside(own, b"control\0")?, open_beside(own, b"code\0")?);
    let rw = sys::PROT_READ | sys::PROT_WRITE;

    // SAFETY: a new mapping of the first page, at an address of the kernel's choice.
    let first = unsafe { sys::map(0, PAGE, rw, sys::MAP_SHARED, Some((&control, 0))) }.ok()?;
    // SAFETY: just mapped; any bytes are a valid Control.
    let header = unsafe { &*(first as *const Control) };
    let known = header.magic.load(Acquire) == MAGIC && header.version.load(Relaxed) == VERSION;
    sys::LOCKS_MEMORY.store(header.locked.load(Relaxed) != 0, Relaxed);
    let room = if known { reserve(header) } else { None };
    // SAFETY: the mapping just made; `header` is not used again.
    unsafe { sys::unmap(first, PAGE) };
    let (reservation, length) = room?;
    let base = reservation.next_multiple_of(CHUNK_SIZE);
    // SAFETY: inside the reservation just made.
    unsafe { sys::map(base, length, rw, sys::MAP_SHARED | sys::MAP_FIXED, Some((&control, 0))) }.ok()?;

    let stubs = hooks::stub_region();
    let fixed = sys::MAP_SHARED | sys::MAP_FIXED;
    // SAFETY: the range is the agent's own, reserved by link.ld for the stubs and used for nothing else.
    unsafe { sys::map(stubs, stub::REGION, sys::PROT_READ | sys::PROT_EXEC, fixed, Some((&code, 0))) }
        .ok()?;
    let executable = sys::PROT_READ | sys::PROT_EXEC;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let veneers = unsafe {
        sys::map(0, stub::VENEERS, executable, sys::MAP_SHARED, Some((&code, stub::REGION as u64)))
    };
    remember(VENEERS, veneers.ok()?, stub::VENEERS);
    shadow::prepare().ok()?;

    let size = size_of::<Private>();
    // SAFETY: a new mapping.
    let private = unsafe { sys::map(0, size, rw, NONE, None) }.ok()?;
    remember(1, private, size);
    // SAFETY: the mapping just made.
    unsafe { sys::advise(private, size, sys::MADV_WIPEONFORK) }.ok()?;

    #[cfg(feature = "placed")]
    {
        // SAFETY: just mapped, for as long as the session lasts; any bytes are a valid Control.
        let header = unsafe { &*(base as *const Control) };
        word::prepare(private + core::mem::offset_of!(Private, threads), header.owner_word.load(Relaxed));
    }
    state::STUBS.store(stubs, Relaxed);
    state::join(base, private);
    record::register_process(Session::get()?)?;
    Some(())
}

/// Unmaps all that belongs to a session, as far as it was joined: nothing of it is in use any more, the recorder has seen to that.
fn leave() -> Option<()> {
    traps::leave();
    state::leave();
    let stubs = hooks::stub_region();
    // SAFETY: the agent's own ranges get back the reservation they had before `join`; no thread is in a stub or will come there.
    unsafe { sys::map(stubs, stub::REGION, sys::PROT_READ, NONE | sys::MAP_FIXED, None) }.ok()?;
    shadow::give_back();
    profile::give_back();
    for [at, bytes] in &MAPPINGS {
        let (at, bytes) = (at.swap(0, Relaxed), bytes.swap(0, Relaxed));
        if bytes != 0 {
            // SAFETY: mapped by `join`; no hook runs, so nothing refers to it.
            unsafe { sys::unmap(at, bytes) };
        }
    }
    Some(())
}

/// Tells the recorder that the list of modules changed, and waits until it has patched what is new.
pub fn modules_changed() {
    let Some(session) = Session::get() else { return };
    let control = session.control();
    if control.listening.load(Acquire) == 0 || record::register_process(session).is_none() {
        return;
    }
    let Some(process) = record::process(session) else { return };
    process.phase.store(Phase::Asked as u32, Release);
    ring(control);
    let mut phase = await_recorder(control, process, &[Phase::Asked]);
    loop {
        match phase {
            Some(planned) if planned == Phase::Planned as u32 => map_planned(session),
            Some(trapping) if trapping == Phase::Trapping as u32 => handle_planned_traps(session),
            _ => return,
        }
        process.phase.store(Phase::Mapped as u32, Release);
        ring(control);
        phase = await_recorder(control, process, &[Phase::Mapped, Phase::Writing]);
    }
}

/// The dynamic linker is about to unmap something, or is through with it. Waits for a batch of writes that has begun; a writer that begins
/// one later sees that we are at it.
pub fn unloading(begins: bool) {
    let Some(process) = Session::get().and_then(record::process) else { return };
    process.unloading.store(u32::from(begins), SeqCst);
    let start = sys::monotonic_ns();
    while begins && process.writing.load(SeqCst) != 0 {
        if sys::monotonic_ns().wrapping_sub(start) > SILENCE_NS {
            process.writing.store(0, SeqCst); // the writer was killed
        }
        sys::nap(NAP_NS);
    }
}

fn ring(control: &Control) {
    control.doorbell.fetch_add(1, AcqRel);
    sys::futex_wake(&control.doorbell);
}

/// Waits while the phase is one of `pending`; the phase then, or None if the recorder does not answer.
fn await_recorder(control: &Control, process: &ProcessEntry, pending: &[Phase]) -> Option<u32> {
    let mut silence = Silence::new(control.heartbeat.load(Relaxed), sys::monotonic_ns(), 2 * LOOK_NS);
    loop {
        let phase = process.phase.load(Acquire);
        if !pending.iter().any(|pending| *pending as u32 == phase) {
            return Some(phase);
        }
        let is_silent = silence.look(control.heartbeat.load(Relaxed), sys::monotonic_ns()) > SILENCE_NS;
        // Its planner may have ended while its collector goes on.
        let has_left = phase != Phase::Writing as u32 && control.listening.load(Acquire) == 0;
        // What it was writing is, at any moment, a valid program.
        if (has_left || is_silent)
            && process.phase.compare_exchange(phase, Phase::Idle as u32, AcqRel, Acquire).is_ok()
        {
            if is_silent {
                process.trouble.fetch_or(Trouble::NoAnswer as u32, Relaxed);
                control.listening.store(0, Relaxed);
            }
            return None;
        }
        sys::futex_wait(&process.phase, phase, LOOK_NS);
    }
}

/// The start of the plan.
fn header(session: Session) -> &'static PlanHeader {
    // SAFETY: the plan area begins here, aligned; any bytes are a valid header.
    unsafe { &*(session.plan_area() as *const PlanHeader) }
}

/// The plan's list of mappings.
fn planned(session: Session) -> &'static [Map] {
    let (at, header) = (session.plan_area(), header(session));
    let room = (PLAN_SIZE - size_of::<PlanHeader>()) / size_of::<Map>();
    let maps = (header.maps.load(Acquire) as usize).min(room);
    // SAFETY: inside the plan area by the line above; any bytes are valid.
    unsafe { core::slice::from_raw_parts((at + size_of::<PlanHeader>()) as *const Map, maps) }
}

/// Maps veneers near modules.
fn map_planned(session: Session) {
    let maps = planned(session);
    if maps.is_empty() {
        return;
    }
    let mut path = [0u8; PATH_MAX];
    for (place, byte) in path.iter_mut().zip(&session.control().agent_path) {
        *place = byte.load(Relaxed);
    }
    let code = open_beside(&path, b"code\0");
    let may_duplicate = header(session).may_duplicate.load(Relaxed) != 0;
    for map in maps {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        let offset = map.offset.load(Relaxed);
        let mapped = match &code {
            Some(code) => map_code(address, length, code, offset),
            None if may_duplicate => duplicate(address, length, offset as usize),
            None => Err(sys::ENOENT),
        };
        map.errno.store(mapped.err().map_or(0, |errno| errno.0) as u64, Relaxed);
    }
}

/// Maps a piece of the code file where nothing is mapped.
fn map_code(address: usize, length: usize, code: &sys::Fd, offset: u64) -> Result<(), sys::Errno> {
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let at =
        unsafe { sys::map(address, length, sys::PROT_READ | sys::PROT_EXEC, flags, Some((code, offset))) }?;
    if at == address { Ok(()) } else { Err(sys::EEXIST) }
}

/// The same without the file: a second mapping of what [`map_session`] has mapped.
fn duplicate(address: usize, length: usize, offset: usize) -> Result<(), sys::Errno> {
    let [veneers, bytes] = &MAPPINGS[VENEERS];
    let (veneers, bytes) = (veneers.load(Relaxed), bytes.load(Relaxed));
    let start = offset.checked_sub(stub::REGION).ok_or(sys::ENOENT)?;
    if start.checked_add(length).is_none_or(|end| end > bytes) {
        return Err(sys::ENOENT);
    }
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let at = unsafe { sys::map(address, length, 0, NONE | sys::MAP_FIXED_NOREPLACE, None) }?;
    if at != address {
        // SAFETY: the mapping just made; kernels before 4.17 take the address as a hint only.
        unsafe { sys::unmap(at, length) };
        return Err(sys::EEXIST);
    }
    // SAFETY: the source is the agent's own mapping, in its bounds by the check above; the target is the reservation just made.
    let done = unsafe { sys::duplicate(veneers + start, address, length) };
    if done.is_err() {
        // SAFETY: that reservation; it is all that is there.
        unsafe { sys::unmap(address, length) };
    }
    done
}

/// Handles SIGTRAP, also for the breakpoints that stay.
fn handle_planned_traps(session: Session) {
    session.control().trap_answer.store(traps::handle_traps(planned(session)), Relaxed);
}

/// Unmaps veneers.
fn unmap_planned(session: Session) {
    for map in planned(session) {
        // SAFETY: the recorder names what it had mapped by `map_planned`, and no site leads there any more.
        unsafe { sys::unmap(map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize) };
    }
}

/// Gives private copies of pages of files back to the kernel.
fn give_back_planned(session: Session) {
    for map in planned(session) {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        // SAFETY: the recorder names pages of text that it has found to be as in their files: a thread that runs them finds the same there again.
        let _ = unsafe { sys::advise(address, length, sys::MADV_DONTNEED) };
    }
}
