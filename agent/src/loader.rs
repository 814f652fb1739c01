//! Reads the dynamic linker's state: where the agent is, which objects are loaded, and when that
//! changes.
//!
//! The dynamic linker keeps `r_debug` for debuggers and calls an empty function, `r_brk`, at every
//! change. A jump to [`calltap_loader_hook`] in that function shows dlopen after mapping and before
//! any constructor, without wrapping libc. Each namespace (dlmopen) has its own `r_debug`; all
//! share the function.
//!
//! Uses `unsafe` because it walks the linker's own lists, which change only under the lock that is
//! held while `r_brk` runs.

use crate::state::Session;
use crate::{plan, sys};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// `struct link_map` of <link.h>.
#[repr(C)]
pub struct LinkMap {
    base: usize,
    name: *const u8,
    dynamic: usize,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// `struct r_debug` of <link.h>.
#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
    brk: usize,
    state: i32,
    base: usize,
}

/// `struct r_debug_extended` of <link.h>, which is present from version 2 on.
#[repr(C)]
struct Extended {
    debug: Debug,
    /// The next namespace's.
    next: *const Extended,
}

static DEBUG: AtomicUsize = AtomicUsize::new(0);
/// Checksum of the list of objects at the last report; it changes when the list does.
static SEEN: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Value of `SEEN` while the list is unknown.
const UNKNOWN: u64 = u64::MAX;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_PHDR: u64 = 6;
const DT_DEBUG: u64 = 21;
/// Size of an ELF header.
const ELF_HEADER: u64 = 64;

global_asm!(
    ".text",
    ".balign 16",
    "calltap_loader_hook:",
    ".cfi_startproc",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "push rcx",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    "call calltap_loader_shim",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    static calltap_loader_hook: u8;
    #[cfg(not(feature = "placed"))]
    #[link_name = "_DYNAMIC"]
    static DYNAMIC: u8;
}

/// Returns address and number of the executable's program headers. In a process that it attaches
/// to, the recorder supplies them.
fn program_headers() -> Option<(u64, u64)> {
    let told = Session::get().map(Session::control);
    let told = told.map(|control| (control.headers.load(Relaxed), control.header_count.load(Relaxed)));
    if let Some(told) = told.filter(|(address, _)| *address != 0) {
        return Some(told);
    }
    let mut words = [0u64; 64];
    // SAFETY: any bytes are valid u64s; the slice covers the array.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 512) };
    let read =
        sys::open(b"/proc/thread-self/auxv\0", sys::O_RDONLY).and_then(|file| file.read(bytes)).ok()?;
    let pairs = words.get(..read / 8)?.chunks_exact(2);
    let value =
        |key| pairs.clone().find(|pair| pair.first() == Some(&key)).and_then(|pair| pair.get(1)).copied();
    // Without an address, no segment of the program has its headers.
    Some((value(AT_PHDR).filter(|at| *at != 0)?, value(AT_PHNUM)?))
}

/// Finds `r_debug` through the program headers of the executable.
fn find_debug() -> Option<&'static Debug> {
    let (headers, count) = program_headers()?;
    // SAFETY: the kernel reports where the program headers are; each is 7 words: type and flags,
    // offset, vaddr, paddr, ...
    let headers = unsafe { core::slice::from_raw_parts(headers as *const [u64; 7], count as usize) };
    let find = |kind| headers.iter().find(|header| header[0] as u32 as u64 == kind);
    // The headers of a static program do not have their own address: they lie behind the ELF
    // header, at the start of the file.
    let at_start = |header: &&[u64; 7]| header[0] as u32 as u64 == PT_LOAD && header[1] == 0;
    let at = find(PT_PHDR).map(|header| header[2]);
    let at = at.or_else(|| headers.iter().find(at_start).map(|header| header[2].wrapping_add(ELF_HEADER)))?;
    let bias = (headers.as_ptr() as u64).wrapping_sub(at);
    let mut entry = bias.wrapping_add(find(PT_DYNAMIC)?[2]) as *const [u64; 2];
    loop {
        // SAFETY: the dynamic section is an array of pairs that ends with tag 0.
        match unsafe { *entry } {
            [0, _] => return None,
            // SAFETY: ld.so stores the address of its r_debug here before it runs any constructor.
            [DT_DEBUG, address] if address != 0 => return Some(unsafe { &*(address as *const Debug) }),
            // SAFETY: not the last pair.
            _ => entry = unsafe { entry.add(1) },
        }
    }
}

/// Returns the `r_debug` of the program's namespace.
fn debug() -> Option<&'static Debug> {
    match DEBUG.load(Relaxed) {
        0 => {
            let debug = find_debug()?;
            DEBUG.store(core::ptr::from_ref(debug) as usize, Relaxed);
            Some(debug)
        }
        // SAFETY: stored above.
        address => Some(unsafe { &*(address as *const Debug) }),
    }
}

/// Returns the `r_debug` of every namespace, the program's first.
fn debugs() -> impl Iterator<Item = *const Debug> {
    const LISTED: i32 = 2;
    let first = debug().map_or(core::ptr::null(), core::ptr::from_ref);
    let mut debug = first;
    core::iter::from_fn(move || {
        let found = Some(debug).filter(|debug| !debug.is_null())?;
        // SAFETY: the program's, or an element of the linker's list, from which no element is
        // removed. The program's is an element if its version says so, the others always are.
        let version = unsafe { (&raw const (*found).version).read_volatile() };
        debug = if found == first && version < LISTED {
            core::ptr::null()
        } else {
            // SAFETY: as above.
            unsafe { (&raw const (*found.cast::<Extended>()).next).read_volatile() }.cast()
        };
        Some(found)
    })
}

/// Returns the loaded objects of all namespaces.
fn maps() -> impl Iterator<Item = &'static LinkMap> {
    debugs().flat_map(|debug| {
        // SAFETY: one of the linker's own.
        let mut map = unsafe { (&raw const (*debug).map).read_volatile() };
        core::iter::from_fn(move || {
            // SAFETY: null or an element of the linker's list, which does not change while its lock
            // is held or before the program starts.
            let found: &'static LinkMap = unsafe { map.as_ref() }?;
            map = found.next;
            Some(found)
        })
    })
}

/// Returns the path from which the dynamic linker loaded the agent.
#[cfg(not(feature = "placed"))]
pub fn own_path() -> Option<&'static [u8]> {
    let own = &raw const DYNAMIC as usize;
    let map = maps().find(|map| map.dynamic == own)?;
    // SAFETY: a terminated string that lives as long as the object.
    Some(unsafe { core::slice::from_raw_parts(map.name, crate::mem::strlen(map.name)) })
}

/// Returns the checksum of the list of objects.
fn sum() -> u64 {
    maps().fold(0, |sum, map| sum.rotate_left(7) ^ (map.base as u64) ^ (map.dynamic as u64) << 1)
}

/// Returns the address of `r_brk`, and of the hook that it has to jump to so that changes are seen.
pub fn watch() -> (u64, u64) {
    // Changes are seen only once the function jumps to the hook. An object that is closed before
    // and opened again at the same address later leaves the checksum unchanged, but its text is
    // new.
    SEEN.store(UNKNOWN, Relaxed);
    let brk = debug().map_or(0, |debug| debug.brk);
    (brk as u64, &raw const calltap_loader_hook as u64)
}

/// Called when the dynamic linker has changed, or is about to change, its list of objects.
pub extern "C" fn changed(_: u32, _: u64, _: u64) -> u8 {
    const CONSISTENT: i32 = 0;
    const DELETE: i32 = 2;
    // SAFETY: one of the linker's own.
    let states = || debugs().map(|debug| unsafe { (&raw const (*debug).state).read_volatile() });
    if states().any(|state| state == DELETE) {
        plan::unloading(true);
    } else if states().all(|state| state == CONSISTENT) {
        plan::unloading(false);
        let sum = sum();
        if SEEN.swap(sum, Relaxed) != sum {
            plan::modules_changed();
        }
    }
    0
}
