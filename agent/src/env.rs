//! Removes the agent's own path from LD_PRELOAD, and the recorder's additions in front of it, so
//! that the program and its children see their own environment.
//!
//! Uses `unsafe` because the environment is the program's: an array of pointers to strings on its
//! initial stack. No other code runs yet.

use crate::mem::strlen;

const NAME: &[u8] = b"LD_PRELOAD=";

/// Removes everything up to `own` (a path) from the LD_PRELOAD entry of the environment at
/// `environment`.
///
/// # Safety
/// `environment` is null, or the program's environment array before any other thread exists.
pub unsafe fn remove_preload(mut environment: *mut *mut u8, own: &[u8]) {
    if environment.is_null() {
        return;
    }
    loop {
        // SAFETY: an entry of the array, which ends with a null pointer.
        let string = unsafe { *environment };
        if string.is_null() {
            return;
        }
        // SAFETY: entries are terminated strings on the writable initial stack, and no other code
        // uses them now.
        let text = unsafe { core::slice::from_raw_parts_mut(string, strlen(string) + 1) };
        if let Some(rest) = text.strip_prefix_mut(NAME)
            && let Some(start) =
                (0..rest.len()).find(|at| rest.get(*at..).is_some_and(|rest| rest.starts_with(own)))
        {
            let end = start + own.len();
            match rest.get(end) {
                Some(b':') => {
                    let keep = end + 1;
                    let length = rest.len() - keep;
                    rest.copy_within(keep.., 0);
                    rest[length..].fill(0);
                }
                Some(0) => {
                    // SAFETY: moves the remaining pointers, the final null included, down by one.
                    unsafe { remove_entry(environment) };
                    return;
                }
                _ => {}
            }
        }
        // SAFETY: not past the null pointer, which was not reached yet.
        environment = unsafe { environment.add(1) };
    }
}

/// # Safety
/// `entry` points into a null-terminated array, not at its end.
unsafe fn remove_entry(mut entry: *mut *mut u8) {
    loop {
        // SAFETY: `entry` is not the final null, so the next element exists.
        let next = unsafe { *entry.add(1) };
        // SAFETY: as above.
        unsafe { *entry = next };
        if next.is_null() {
            return;
        }
        // SAFETY: the element just moved was not null, so there is another.
        entry = unsafe { entry.add(1) };
    }
}

trait StripPrefixMut {
    fn strip_prefix_mut(&mut self, prefix: &[u8]) -> Option<&mut [u8]>;
}

impl StripPrefixMut for [u8] {
    fn strip_prefix_mut(&mut self, prefix: &[u8]) -> Option<&mut [u8]> {
        if self.starts_with(prefix) { self.get_mut(prefix.len()..) } else { None }
    }
}
