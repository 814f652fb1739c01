//! The one place that writes to the program's text.
//!
//! A batch is verified whole before any of it is written; bytes that are not as expected are left alone and reported.
//! Text is written through `/proc/self/mem`, which works on read-only mappings without changing their protection (so also under
//! W^X policies), and splits no mapping. In this version batches are applied only to code that no thread can be executing: before the program's
//! first instruction, and in libraries that dlopen has mapped and not yet returned.
//!
//! Unsafe because it reads and changes the program's code.

use crate::sys::{self, Fd};
use calltap_abi::plan::{self, Status, Write};
use core::sync::atomic::Ordering::*;

const PAGE: usize = 4096;
const MAX: usize = plan::BYTES_MAX;

/// Verifies all writes to modules that `is_new` knows (by their bias), then carries out those whose old bytes were there.
///
/// # Safety
/// For what is new, every `address..address + length` is mapped and readable, and no thread executes those bytes.
pub unsafe fn apply(writes: &[Write], is_new: &dyn Fn(u64) -> bool) {
    for write in writes {
        if !is_new(write.bias.load(Relaxed)) {
            write.status.store(Status::NotNew as u32, Relaxed);
            continue;
        }
        // SAFETY: the caller's promise.
        unsafe { verify(write) };
    }
    let Ok(memory) = sys::open(b"/proc/self/mem\0", sys::O_RDWR) else {
        for write in writes.iter().filter(|write| write.status.load(Relaxed) == Status::Pending as u32) {
            write.status.store(Status::Failed as u32, Relaxed);
        }
        return;
    };
    let mut rest = writes;
    while let Some(first) = rest.first() {
        // One write per page; a site that reaches into the next page goes with the page it begins in.
        let page = first.address.load(Relaxed) as usize / PAGE;
        let n = rest.iter().take_while(|write| write.address.load(Relaxed) as usize / PAGE == page).count();
        let (batch, later) = rest.split_at_checked(n.max(1)).unwrap_or((rest, &[]));
        // SAFETY: the caller's promise.
        unsafe { write_page(&memory, batch) };
        rest = later;
    }
}

fn length(write: &Write) -> usize {
    (write.length.load(Relaxed) as usize).min(MAX)
}

/// # Safety
/// As [`apply`].
unsafe fn verify(write: &Write) {
    let (address, n) = (write.address.load(Relaxed) as usize, length(write));
    let mut actual = [0u8; MAX];
    for (i, byte) in actual.iter_mut().enumerate().take(n) {
        // SAFETY: mapped and readable, the caller's promise.
        *byte = unsafe { ((address + i) as *const u8).read_volatile() };
    }
    if n != 0 && actual == plan::load(&write.new) {
        write.status.store(Status::Written as u32, Relaxed); // a forked child asks again for what its parent had patched
    } else if n == 0 || actual != plan::load(&write.old) {
        plan::store(&write.actual, &actual);
        write.status.store(Status::Surprise as u32, Relaxed);
    }
}

/// # Safety
/// As [`apply`]; all writes begin in one page and are ascending.
unsafe fn write_page(memory: &Fd, writes: &[Write]) {
    let mut text = [0u8; PAGE + MAX];
    let pending = || writes.iter().filter(|write| write.status.load(Relaxed) == Status::Pending as u32);
    let (Some(first), Some(last)) = (pending().next(), pending().next_back()) else { return };
    let start = first.address.load(Relaxed) as usize;
    let end = (last.address.load(Relaxed) as usize + length(last)).min(start + text.len());
    for (i, byte) in text.iter_mut().enumerate().take(end - start) {
        // SAFETY: between two sites of one page of a mapped module.
        *byte = unsafe { ((start + i) as *const u8).read_volatile() };
    }
    for write in pending() {
        let at = (write.address.load(Relaxed) as usize).wrapping_sub(start);
        let new = plan::load(&write.new);
        for (i, byte) in new.iter().enumerate().take(length(write)) {
            if let Some(place) = text.get_mut(at + i) {
                *place = *byte;
            }
        }
    }
    let bytes = text.get(..end - start).unwrap_or(&[]);
    // SAFETY: the verified bytes of sites, and what was between them, which nobody writes: it is text.
    let written = unsafe { memory.write_at(bytes, start as u64) };
    let status = if written == Ok(bytes.len()) { Status::Written } else { Status::Failed };
    for write in pending() {
        write.status.store(status as u32, Relaxed);
    }
}
