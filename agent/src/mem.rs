//! The memory functions to which rustc emits calls. They are local to the agent (the linker script
//! hides them), so that the program's own, which may be traced, are never called.
//!
//! Uses `unsafe` because these functions copy through raw pointers.

use core::arch::asm;

/// # Safety
/// As C's memcpy.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's promise; the direction flag is clear (the ABI's rule, and the shim's
    // `cld`).
    unsafe {
        asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's memmove.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= n {
        // SAFETY: the destination does not start inside the source, so copying upwards is right.
        return unsafe { memcpy(to, from, n) };
    }
    // SAFETY: the caller's promise; copies downwards and clears the direction flag again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") n => _,
             inout("rdi") to.wrapping_add(n).wrapping_sub(1) => _,
             inout("rsi") from.wrapping_add(n).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
/// As C's memset.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") value as u8,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's memcmp.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller's promise: both are readable for n bytes. Volatile, so that this loop
        // is not turned into a call to memcmp.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// # Safety
/// As C's bcmp.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, n) }
}

/// # Safety
/// As C's strlen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the caller's promise: a terminated string.
    while unsafe { s.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}
