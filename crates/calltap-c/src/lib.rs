//! The functions of `include/calltap.h`, which documents them.
//!
//! Uses `unsafe` because C passes pointers: these functions rely on the header's requirements.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)]

use calltap::{Call, Error, Ops, Registration, Return, register};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::{ptr, slice};

/// `calltap_func_t`.
pub type Func = unsafe extern "C" fn(u64, u64, *mut CalltapOps, *const c_void);

/// `calltap_return_t`.
pub type OnReturn = unsafe extern "C" fn(u64, u64, u64, *mut CalltapOps);

/// `CALLTAP_MAY_MATCH_NOTHING`.
const MAY_MATCH_NOTHING: u32 = 1;

/// `struct calltap_ops`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CalltapOps {
    pub func: Option<Func>,
    pub name: *const c_char,
    pub filter: *const c_char,
    pub notrace: *const c_char,
    pub on_return: Option<OnReturn>,
    pub flags: u32,
    pub data: *mut c_void,
    pub id: u64,
    pub mask: u32,
    pub registration: *mut c_void,
}

/// The program's ops, as its callbacks get them.
#[derive(Clone, Copy)]
struct Own(*mut CalltapOps);

// SAFETY: the header requires that they stay in place; the program is responsible for their use in
// other threads.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

fn number(error: &Error) -> c_int {
    match error {
        Error::InCallback => -libc::EDEADLK,
        Error::TooMany => -libc::ENOSPC,
        Error::Forked => -libc::EBUSY,
        Error::NothingMatches(_) => -libc::ENOENT,
        Error::Text(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        _ => -libc::ENOSYS,
    }
}

fn code(result: Result<(), Error>) -> c_int {
    result.map_or_else(|error| number(&error), |()| 0)
}

/// Returns the words of a string; none if it is null.
unsafe fn words(globs: *const c_char) -> Vec<String> {
    if globs.is_null() {
        return Vec::new();
    }
    // SAFETY: not null, so it is a string, as the header requires.
    let all = unsafe { CStr::from_ptr(globs) }.to_string_lossy();
    all.split_whitespace().map(str::to_owned).collect()
}

unsafe fn registration<'a>(ops: *const CalltapOps) -> Option<&'a Registration> {
    // SAFETY: null, or ops, whose registration is null or set by `calltap_register_function`.
    unsafe { ops.as_ref()?.registration.cast::<Registration>().as_ref() }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn calltap_init() -> c_int {
    code(calltap::init())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_register_function(ops: *mut CalltapOps) -> c_int {
    // SAFETY: ops, or null.
    let Some(given) = (unsafe { ops.as_ref() }) else { return -libc::EINVAL };
    let Some(func) = given.func else { return -libc::EINVAL };
    if !given.registration.is_null() {
        return -libc::EBUSY;
    }
    let own = Own(ops);
    let callback = move |call: &Call| {
        // The closure captures the whole value, not only the pointer in it.
        let own = own;
        // SAFETY: the program's function, called as its type requires; the ops exist until the
        // callback was unregistered.
        unsafe { func(call.ip(), call.parent_ip().unwrap_or(0), own.0, call.as_ptr()) };
    };
    // SAFETY: strings, or null.
    let (name, filter, notrace) = unsafe { (words(given.name), words(given.filter), words(given.notrace)) };
    let mut new = Ops::new(&name.join(" "), callback).filter(filter).notrace(notrace);
    if let Some(on_return) = given.on_return {
        new = new.on_return(move |call: &Return| {
            let (own, nanoseconds) = (own, call.duration().as_nanos() as u64);
            // SAFETY: as above.
            unsafe { on_return(call.ip(), nanoseconds, call.result().unwrap_or(0), own.0) };
        });
    }
    if given.flags & MAY_MATCH_NOTHING != 0 {
        new = new.may_match_nothing();
    }
    match register(new) {
        Ok(registration) => {
            let (id, mask) = (registration.id(), registration.mask());
            let registration = Box::into_raw(Box::new(registration)).cast();
            // SAFETY: the ops; callbacks that run already may read, but not write, these fields.
            unsafe {
                (*ops).id = id;
                (*ops).mask = mask;
                (*ops).registration = registration;
            }
            0
        }
        Err(error) => number(&error),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_unregister_function(ops: *mut CalltapOps) -> c_int {
    // This comes first because it fails in a callback: an error leaves everything unchanged.
    if let Err(error) = calltap::init() {
        return number(&error);
    }
    // SAFETY: ops, or null.
    let Some(given) = (unsafe { ops.as_mut() }) else { return -libc::EINVAL };
    if given.registration.is_null() {
        return -libc::EINVAL;
    }
    let registration = std::mem::replace(&mut given.registration, ptr::null_mut());
    (given.id, given.mask) = (0, 0);
    // SAFETY: made by `calltap_register_function`, and removed: no other call gets it.
    let registration = unsafe { Box::from_raw(registration.cast::<Registration>()) };
    code(registration.unregister())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_set_filter(ops: *mut CalltapOps, globs: *const c_char) -> c_int {
    // SAFETY: ops that are registered, or not; a string, or null.
    let (registration, globs) = unsafe { (registration(ops), words(globs)) };
    registration.map_or(-libc::EINVAL, |registration| code(registration.set_filter(globs).map(drop)))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_set_notrace(ops: *mut CalltapOps, globs: *const c_char) -> c_int {
    // SAFETY: as above.
    let (registration, globs) = unsafe { (registration(ops), words(globs)) };
    registration.map_or(-libc::EINVAL, |registration| code(registration.set_notrace(globs).map(drop)))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_count_functions(ops: *const CalltapOps) -> c_int {
    // SAFETY: as above.
    let Some(registration) = (unsafe { registration(ops) }) else { return -libc::EINVAL };
    registration.functions().map_or_else(|error| number(&error), |count| count as c_int)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn calltap_rescan() -> c_int {
    code(calltap::rescan())
}

/// Copies as much as fits, with a zero at the end. Returns the length of the whole text.
unsafe fn copy(text: Option<&str>, buffer: *mut c_char, size: usize) -> usize {
    let text = text.unwrap_or_default();
    if !buffer.is_null() && size > 0 {
        // SAFETY: a buffer of that size, as the header requires.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
        let length = text.len().min(size - 1);
        buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
        buffer[length] = 0;
    }
    text.len()
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_function_name(ip: u64, buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: a buffer of that size.
    unsafe { copy(calltap::function(ip).map(calltap::Function::name), buffer, size) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_module_name(ip: u64, buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: a buffer of that size.
    unsafe { copy(calltap::function(ip).map(calltap::Function::module), buffer, size) }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calltap_failures(
    each: Option<unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void)>,
    data: *mut c_void,
) -> c_int {
    let failures = match calltap::failures() {
        Ok(failures) => failures,
        Err(error) => return number(&error),
    };
    if let Some(each) = each {
        for (function, reason) in &failures {
            let text = |text: &str| CString::new(text).unwrap_or_default();
            let (name, reason) = (text(function.name()), text(reason));
            // SAFETY: the program's function, with strings that are valid during the call.
            unsafe { each(name.as_ptr(), reason.as_ptr(), data) };
        }
    }
    failures.len() as c_int
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn calltap_recursions() -> u64 {
    calltap::recursions()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn calltap_unseen_returns() -> u64 {
    calltap::unseen_returns()
}
