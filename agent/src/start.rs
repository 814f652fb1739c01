//! Joining a session before the program's first instruction, and asking the recorder what to patch.
//!
//! Unsafe because it maps the session's files and hands addresses from the recorder's plan to [`crate::poke`].

use crate::state::{self, Private, Session};
use crate::{env, hooks, loader, mirror, poke, record, sys};
use calltap_abi::plan::{Map, PlanHeader, Trouble, Write};
use calltap_abi::{CHUNK_SIZE, CHUNKS_AT, Control, MAGIC, PLAN_SIZE, VERSION, stub};
use core::arch::global_asm;
use core::sync::atomic::Ordering::*;

/// How long the program's start, or a dlopen, waits for the recorder.
const ANSWER_NS: u64 = 10_000_000_000;
/// It is not waited for that long if it shows no sign of life for this long: it is stopped or gone.
const SILENCE_NS: u64 = 2_000_000_000;
/// The recorder is looked for this often meanwhile.
const LOOK_NS: u64 = 50_000_000;

const PAGE: usize = 4096;

// DT_INIT. glibc calls it with (argc, argv, envp), first of all initialisers (-z initfirst). musl calls it without arguments: then the
// environment is in `environ`, a weak reference that is null where nobody defines it.
global_asm!(
    ".text",
    ".weak environ",
    ".globl calltap_init",
    ".hidden calltap_init",
    ".type calltap_init, @function",
    "calltap_init:",
    ".cfi_startproc",
    "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
    "mov rcx, qword ptr [rip + environ@GOTPCREL]",
    "test rcx, rcx",
    "jz 1f",
    "mov rcx, qword ptr [rcx]",
    "1:",
    "call {start}",
    "add rsp, 8", ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    start = sym start,
);

/// The arguments are `main`'s where the C library passes them.
extern "C" fn start(count: usize, arguments: *mut *mut u8, given: *mut *mut u8, environ: *mut *mut u8) {
    let Some(own) = loader::own_path() else { return };
    let environment = if given == arguments.wrapping_add(count).wrapping_add(1) { given } else { environ };
    // SAFETY: the initial environment, or null; no other thread exists yet.
    unsafe { env::remove_preload(environment, own) };
    if join(own).is_none() {
        return;
    }
    if !loader::watch() {
        trouble(Trouble::NoLoaderHook);
    }
    modules_changed();
}

/// Opens a file in the directory of the agent; `name` ends in a NUL byte.
fn open_beside(own: &[u8], name: &[u8]) -> Option<sys::Fd> {
    let directory = own.iter().rposition(|&byte| byte == b'/')? + 1;
    let mut path = [0u8; 512];
    path.get_mut(..directory)?.copy_from_slice(own.get(..directory)?);
    path.get_mut(directory..directory + name.len())?.copy_from_slice(name);
    sys::open(path.get(..directory + name.len())?, sys::O_RDWR).ok()
}

/// Maps the session's files, which lie beside the agent.
fn join(own: &[u8]) -> Option<()> {
    let (control, code) = (open_beside(own, b"control\0")?, open_beside(own, b"code\0")?);
    let rw = sys::PROT_READ | sys::PROT_WRITE;

    // SAFETY: a new mapping of the first page, at an address of the kernel's choice.
    let first = unsafe { sys::map(0, PAGE, rw, sys::MAP_SHARED, Some((&control, 0))) }.ok()?;
    // SAFETY: just mapped; any bytes are a valid Control.
    let header = unsafe { &*(first as *const Control) };
    if header.magic.load(Acquire) != MAGIC || header.version.load(Relaxed) != VERSION {
        return None;
    }
    let length = CHUNKS_AT + header.chunk_max.load(Relaxed) as usize * CHUNK_SIZE;

    // Chunks are aligned to their size, so that a cursor tells its place in its chunk: reserve more and map over an aligned part.
    let none = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
    // SAFETY: a new reservation without access.
    let reserved = unsafe { sys::map(0, length + CHUNK_SIZE, 0, none, None) }.ok()?;
    let base = reserved.next_multiple_of(CHUNK_SIZE);
    // SAFETY: inside the reservation just made.
    unsafe { sys::map(base, length, rw, sys::MAP_SHARED | sys::MAP_FIXED, Some((&control, 0))) }.ok()?;

    let stubs = hooks::stub_region();
    let fixed = sys::MAP_SHARED | sys::MAP_FIXED;
    // SAFETY: the range is the agent's own, reserved by link.ld for the stubs and used for nothing else.
    unsafe { sys::map(stubs, stub::REGION, sys::PROT_READ | sys::PROT_EXEC, fixed, Some((&code, 0))) }
        .ok()?;
    mirror::prepare().ok()?;

    let size = size_of::<Private>();
    // SAFETY: a new mapping.
    let private = unsafe { sys::map(0, size, rw, none, None) }.ok()?;
    // SAFETY: the mapping just made.
    unsafe { sys::advise(private, size, sys::MADV_WIPEONFORK) }.ok()?;

    let clock = header.clock.load(Relaxed) as usize;
    header.stubs.store(stubs as u64, Relaxed);
    for (index, place) in header.hooks.iter().enumerate() {
        place.store(hooks::hook(clock, index), Relaxed);
    }
    state::STUBS.store(stubs, Relaxed);
    state::join(base, private);
    record::register_process(Session::get()?)?;
    Some(())
}

fn trouble(trouble: Trouble) {
    if let Some(process) = Session::get().and_then(record::process) {
        process.trouble.fetch_or(trouble as u32, Relaxed);
    }
}

/// Tells the recorder that the list of modules changed, waits for its plan, and carries it out.
pub fn modules_changed() {
    ask();
    loader::remember();
}

fn ask() {
    let Some(session) = Session::get() else { return };
    let control = session.control();
    if control.recording.load(Relaxed) == 0 || record::register_process(session).is_none() {
        return;
    }
    let Some(process) = record::process(session) else { return };
    let request = process.request.load(Relaxed).wrapping_add(1);
    process.request.store(request, Release);
    control.doorbell.fetch_add(1, AcqRel);
    sys::futex_wake(&control.doorbell);
    let (start, mut beat, mut since) = (sys::monotonic_ns(), u64::MAX, 0);
    loop {
        let response = process.response.load(Acquire);
        if response == request {
            break;
        }
        let now = sys::monotonic_ns();
        let beating = control.heartbeat.load(Relaxed);
        if beating != beat {
            (beat, since) = (beating, now);
        }
        if now.wrapping_sub(start) > ANSWER_NS || now.wrapping_sub(since) > SILENCE_NS {
            trouble(Trouble::NoAnswer);
            return;
        }
        sys::futex_wait(&process.response, response, LOOK_NS);
    }
    carry_out(session, process.plan_offset.load(Acquire));
    process.done.store(request, Release);
    control.doorbell.fetch_add(1, AcqRel);
    sys::futex_wake(&control.doorbell);
}

fn carry_out(session: Session, offset: u64) {
    let header_size = size_of::<PlanHeader>();
    if offset as usize > PLAN_SIZE - header_size || !offset.is_multiple_of(8) {
        return;
    }
    let at = session.plan_area() + offset as usize;
    // SAFETY: inside the plan area, aligned; any bytes are a valid header.
    let header = unsafe { &*(at as *const PlanHeader) };
    let (maps, writes) = (header.maps.load(Relaxed) as usize, header.writes.load(Relaxed) as usize);
    let room = PLAN_SIZE - header_size - offset as usize;
    if maps.saturating_mul(size_of::<Map>()).saturating_add(writes.saturating_mul(size_of::<Write>())) > room
    {
        return;
    }
    let maps_at = at + header_size;
    // SAFETY: inside the plan area by the check above; any bytes are valid.
    let maps = unsafe { core::slice::from_raw_parts(maps_at as *const Map, maps) };
    // SAFETY: as above.
    let writes =
        unsafe { core::slice::from_raw_parts((maps_at + size_of_val(maps)) as *const Write, writes) };
    if !maps.is_empty() && !map_hops(maps) {
        return;
    }
    // SAFETY: the recorder planned these for modules that the dynamic linker has mapped and not unmapped (its lock is held, or the program
    // has not started), from the file's own site tables; no thread can be executing them yet.
    unsafe { poke::apply(writes, &|bias| loader::is_new(bias as usize)) };
}

/// Maps hops near modules; sites may only be patched if all are there.
fn map_hops(maps: &[Map]) -> bool {
    let Some(code) = loader::own_path().and_then(|own| open_beside(own, b"code\0")) else { return false };
    maps.iter().fold(true, |good, map| {
        let (address, length) = (map.address.load(Relaxed) as usize, map.length.load(Relaxed) as usize);
        let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
        let offset = map.offset.load(Relaxed);
        // SAFETY: NOREPLACE: nothing that exists is touched.
        let mapped = unsafe {
            sys::map(address, length, sys::PROT_READ | sys::PROT_EXEC, flags, Some((&code, offset)))
        };
        let errno = match mapped {
            Ok(at) if at == address => 0,
            Ok(_) => sys::EEXIST.0,
            Err(errno) => errno.0,
        };
        map.errno.store(errno as u64, Relaxed);
        good && errno == 0
    })
}
