//! Asks the recorder what to patch, and performs the agent's part of its plan.
//!
//! Uses `unsafe` because it maps and unmaps the ranges of the plan.

use crate::files::{MAPPINGS, RESERVED, VENEERS, open_beside, remember};
use crate::state::Session;
use crate::{register, sys, traps, waits};
use calltap_abi::plan::{Map, Phase, PlanHeader, Trouble};
use calltap_abi::silence::Silence;
use calltap_abi::{Control, PATH_MAX, PLAN_SIZE, ProcessEntry, stub};
use core::sync::atomic::Ordering::*;

/// Time without a heartbeat after which the recorder counts as stopped or dead, for the program's
/// start or a dlopen. Longer than for a full ring: a thread that gives up here is not traced at
/// all.
const SILENCE_NS: u64 = 2_000_000_000;
/// Interval at which the heartbeat is checked meanwhile.
const LOOK_NS: u64 = 50_000_000;

/// Length of a nap while waiting for a batch of writes.
const NAP_NS: u64 = 100_000;

/// Tells the recorder that the list of modules changed, and waits until it has patched the new
/// ones.
pub fn modules_changed() {
    let Some(session) = Session::get() else { return };
    let control = session.control();
    if control.listening.load(Acquire) == 0 || register::register_process(session).is_none() {
        return;
    }
    let Some(process) = register::process(session) else { return };
    process.phase.store(Phase::Asked as u32, Release);
    ring(control);
    waits::waiting(session, u64::MAX, || follow_plan(session, process));
}

/// Performs the agent's part of the recorder's plan, until the recorder has finished.
fn follow_plan(session: Session, process: &ProcessEntry) {
    let control = session.control();
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

/// Called when the dynamic linker begins to unmap an object, or has finished. Waits for a batch of
/// writes that has begun; a writer that begins later sees that the dynamic linker is unmapping.
pub fn unloading(begins: bool) {
    let Some(session) = Session::get() else { return };
    let Some(process) = register::process(session) else { return };
    process.unloading.store(u32::from(begins), SeqCst);
    if begins && process.writing.load(SeqCst) != 0 {
        waits::waiting(session, SILENCE_NS, || await_written(process));
    }
}

/// Waits until the batch of writes has ended.
fn await_written(process: &ProcessEntry) {
    let start = sys::monotonic_ns();
    while process.writing.load(SeqCst) != 0 {
        if sys::monotonic_ns().wrapping_sub(start) > SILENCE_NS {
            process.writing.store(0, SeqCst); // the writer was killed
        }
        sys::nap(NAP_NS);
    }
}

/// Rings the recorder's doorbell.
fn ring(control: &Control) {
    control.doorbell.fetch_add(1, AcqRel);
    sys::futex_wake(&control.doorbell);
}

/// Waits while the phase is one of `pending`. Returns the next phase, or `None` if the recorder
/// does not answer.
fn await_recorder(control: &Control, process: &ProcessEntry, pending: &[Phase]) -> Option<u32> {
    let mut silence = Silence::new(control.heartbeat.load(Relaxed), sys::monotonic_ns(), 2 * LOOK_NS);
    loop {
        let phase = process.phase.load(Acquire);
        if !pending.iter().any(|pending| *pending as u32 == phase) {
            return Some(phase);
        }
        let is_silent = silence.update(control.heartbeat.load(Relaxed), sys::monotonic_ns()) > SILENCE_NS;
        // The recorder's planner may have ended while its collector continues.
        let has_left = phase != Phase::Writing as u32 && control.listening.load(Acquire) == 0;
        // A batch that was begun leaves a valid program at any moment.
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

/// Returns the header of the plan.
fn header(session: Session) -> &'static PlanHeader {
    // SAFETY: the plan area begins here, aligned; any bytes are a valid header.
    unsafe { &*(session.plan_area() as *const PlanHeader) }
}

/// Returns the plan's list of mappings.
fn planned(session: Session) -> &'static [Map] {
    let (at, header) = (session.plan_area(), header(session));
    let room = (PLAN_SIZE - size_of::<PlanHeader>()) / size_of::<Map>();
    let maps = (header.maps.load(Acquire) as usize).min(room);
    // SAFETY: inside the plan area by the line above; any bytes are valid.
    unsafe { core::slice::from_raw_parts((at + size_of::<PlanHeader>()) as *const Map, maps) }
}

/// Maps veneers near modules.
pub fn map_planned(session: Session) {
    let maps = planned(session);
    if maps.is_empty() {
        return;
    }
    // A file would take a descriptor, whose number another thread may expect to get.
    let may_duplicate = header(session).may_duplicate.load(Relaxed) != 0;
    let mut code = None;
    for map in maps {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        let offset = map.offset.load(Relaxed);
        let mut mapped = Err(sys::ENOENT);
        if may_duplicate {
            mapped = duplicate(address, length, offset as usize);
        }
        if mapped.is_err_and(|errno| errno != sys::EEXIST) {
            let code = code.get_or_insert_with(|| open_code(session));
            mapped = code.as_ref().map_or(mapped, |code| map_code(address, length, code, offset));
        }
        map.errno.store(mapped.err().map_or(0, |errno| errno.0) as u64, Relaxed);
    }
}

fn open_code(session: Session) -> Option<sys::Fd> {
    let mut path = [0u8; PATH_MAX];
    for (place, byte) in path.iter_mut().zip(&session.control().agent_path) {
        *place = byte.load(Relaxed);
    }
    open_beside(&path, b"code\0", sys::O_RDONLY)
}

/// Maps a piece of the code file to a free range.
fn map_code(address: usize, length: usize, code: &sys::Fd, offset: u64) -> Result<(), sys::Errno> {
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let at =
        unsafe { sys::map(address, length, sys::PROT_READ | sys::PROT_EXEC, flags, Some((code, offset))) }?;
    if at == address { Ok(()) } else { Err(sys::EEXIST) }
}

/// Maps a piece of the code file without opening it, by duplicating the mapping that
/// [`files`](crate::files) remembers.
fn duplicate(address: usize, length: usize, offset: usize) -> Result<(), sys::Errno> {
    let [veneers, bytes] = &MAPPINGS[VENEERS];
    let (veneers, bytes) = (veneers.load(Relaxed), bytes.load(Relaxed));
    let start = offset.checked_sub(stub::REGION).ok_or(sys::ENOENT)?;
    if start.checked_add(length).is_none_or(|end| end > bytes) {
        return Err(sys::ENOENT);
    }
    // SAFETY: NOREPLACE: no existing mapping is changed.
    let at = unsafe { sys::map(address, length, 0, RESERVED | sys::MAP_FIXED_NOREPLACE, None) }?;
    if at != address {
        // SAFETY: the mapping just made; kernels before 4.17 take the address as a hint only.
        unsafe { sys::unmap(at, length) };
        return Err(sys::EEXIST);
    }
    // SAFETY: the source is the agent's own mapping, in its bounds by the check above; the target
    // is the reservation just made.
    let done = unsafe { sys::duplicate(veneers + start, address, length) };
    if done.is_err() {
        // SAFETY: that reservation; it is all that is there.
        unsafe { sys::unmap(address, length) };
    }
    done
}

/// Installs the handler of SIGTRAP, with the breakpoints that stay.
pub fn handle_planned_traps(session: Session) {
    session.control().trap_answer.store(traps::handle_traps(planned(session)), Relaxed);
}

/// Unmaps veneers.
pub fn unmap_planned(session: Session) {
    for map in planned(session) {
        // SAFETY: the recorder names ranges that `map_planned` has mapped, and no site leads there
        // any more.
        unsafe { sys::unmap(map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize) };
    }
}

/// Keeps the addresses of all veneers reserved, without memory.
pub fn reserve_planned(session: Session) {
    for map in planned(session) {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        // SAFETY: the recorder names mappings of the session's code file that the agent has made,
        // and no site leads there any more.
        let _ = unsafe { sys::map(address, length, 0, RESERVED | sys::MAP_FIXED, None) };
    }
    // Leaving the session would unmap these.
    remember(VENEERS, 0, 0);
}

/// Discards private copies of pages of files.
pub fn give_back_planned(session: Session) {
    for map in planned(session) {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        // SAFETY: the recorder names pages of text that are the same as in their files: a thread
        // that executes them finds the same code.
        let _ = unsafe { sys::advise(address, length, sys::MADV_DONTNEED) };
    }
}
