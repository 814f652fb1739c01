//! The objects that the dynamic linker has loaded, and a pin that keeps one loaded.
//!
//! Uses `unsafe` because the dynamic linker's interface is C.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;

/// A program or shared object in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    /// Whether it is the program, which is the first object.
    pub is_program: bool,
    pub path: PathBuf,
    pub bias: u64,
    /// Lowest address of its segments.
    pub start: u64,
    /// End of its segments.
    pub end: u64,
    /// Addresses and lengths of its notes.
    pub notes: Vec<(u64, u64)>,
    /// Number of objects that have been loaded and unloaded so far.
    pub changes: (u64, u64),
}

/// Returns all loaded objects.
pub(crate) fn loaded() -> Vec<Object> {
    let mut all: Vec<Object> = Vec::new();
    // SAFETY: the callback gets the pointer that is passed here, and no other code has it
    // meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a description that is valid during this call, and the
    // pointer of `loaded`.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Object>>()) };
    // SAFETY: its name, or null; its program headers, with their number.
    let (name, headers) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (name, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let is_program = all.is_empty();
    let path = if is_program { OsStr::new("/proc/self/exe") } else { OsStr::from_bytes(name.to_bytes()) };
    let bias = info.dlpi_addr;
    let place = |header: &libc::Elf64_Phdr| (bias.wrapping_add(header.p_vaddr), header.p_memsz);
    let of_type = |kind| headers.iter().filter(move |header| header.p_type == kind).map(place);
    let start = of_type(libc::PT_LOAD).map(|(at, _)| at).min();
    let end = of_type(libc::PT_LOAD).map(|(at, length)| at.saturating_add(length)).max();
    all.push(Object {
        is_program,
        path: path.into(),
        bias,
        start: start.unwrap_or_default(),
        end: end.unwrap_or_default(),
        notes: of_type(libc::PT_NOTE).collect(),
        changes: (info.dlpi_adds, info.dlpi_subs),
    });
    0
}

/// Guard: while it exists, a shared object stays loaded.
pub(crate) struct Pin(*mut c_void);

impl Pin {
    /// Pins an object; returns `None` if it is not loaded, or loaded at another address.
    pub(crate) fn new(path: &std::path::Path, bias: u64) -> Option<Pin> {
        let name = CString::new(path.to_path_buf().into_os_string().into_vec()).ok()?;
        // SAFETY: a name; the call loads and runs nothing that was not loaded before.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        let pin = Pin(handle);
        /// RTLD_DI_LINKMAP
        const LINK_MAP: c_int = 2;
        let mut map: *const u64 = ptr::null();
        // SAFETY: the handle is open; a pointer is stored.
        let found = unsafe { libc::dlinfo(pin.0, LINK_MAP, (&raw mut map).cast()) } == 0 && !map.is_null();
        // SAFETY: a `struct link_map`, which begins with the bias and lives as long as the handle.
        (found && unsafe { *map } == bias).then_some(pin)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: opened by `new`, closed once.
        unsafe { libc::dlclose(self.0) };
    }
}
