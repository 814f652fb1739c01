//! Reads arguments and results, in front of the hooks that record: only where somebody asked for them.
//!
//! Called through a shim, from any point of any thread. Unsafe because it reads the registers that the shim has saved, by their places on the stack.

use crate::mirror;
use crate::record::{self, in_data};
use crate::ring::{self, Full};
use crate::state::{Session, Thread, exchange_cursor};
use crate::sys;
use calltap_abi::event::{DATA_BYTES, code, data_word};
use calltap_abi::values::{self, Stored};
use calltap_abi::{CHUNK_LIMIT, CHUNK_SIZE, stub};
use core::sync::atomic::Ordering::Relaxed;

/// What lies on the stack when [`read_values`] is called, from the shim's last push upwards.
#[repr(C)]
pub struct Saved {
    flags: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rsi: u64,
    rdi: u64,
    rbp: u64,
    /// Into the hook.
    back: u64,
    arithmetic: u64,
    r11: u64,
    rdx: u64,
    rcx: u64,
    rax: u64,
    /// Into the stub.
    stub: u64,
}

/// A call.
struct Met<'a> {
    session: Session,
    saved: &'a Saved,
    vectors: &'a [[u64; 2]; 16],
    slot: u64,
}

impl values::Call for Met<'_> {
    fn register(&self, n: usize) -> u64 {
        let saved = self.saved;
        let all = [saved.rdi, saved.rsi, saved.rdx, saved.rcx, saved.r8, saved.r9, saved.rax, saved.r10];
        all.get(n).copied().unwrap_or(0)
    }

    fn xmm(&self, n: usize) -> u64 {
        self.vectors.get(n).map_or(0, |[low, _]| *low)
    }

    fn slot(&self) -> u64 {
        self.slot
    }

    /// The kernel copies it, and says so if something is not there: a pointer is the program's, and may lead anywhere.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.session.control().unreadable.load(Relaxed) == 0 && sys::read_memory(address, bytes)
    }

    fn remember(&self, word: u64) {
        mirror::keep(below(self.slot), word);
    }

    fn recall(&self) -> Option<u64> {
        mirror::kept(below(self.slot))
    }
}

/// The word below the return address is a part of the call's own frame: nothing else keeps anything in its mirror (but the hooks that profile, when something began).
fn below(slot: u64) -> u64 {
    slot.wrapping_sub(8)
}

/// Reads what is wanted of a call that is entered or returns, and writes it in front of its event. 0: the call is not to be recorded.
///
/// # Safety
/// Called by the shim: the pointers are to what it has saved.
pub unsafe extern "C" fn read_values(slot: u64, saved: *const Saved, vectors: *const [[u64; 2]; 16]) -> u8 {
    // SAFETY: as the caller promises; the shim reads them again only when this has returned.
    let (saved, vectors) = unsafe { (&*saved, &*vectors) };
    let Some(session) = Session::get() else { return 1 };
    let Some(program) = session.program_of(saved.stub) else { return 1 };
    let exit = matches!(saved.stub as usize % stub::SIZE, stub::AFTER_EXIT | stub::AFTER_LEAVE);
    let Some(stored) = values::run(program, exit, &Met { session, saved, vectors, slot }) else { return 0 };
    if !stored.bytes().is_empty() {
        let code = if exit { code::RESULTS } else { code::ARGUMENTS };
        let low = (slot as u32) << 22 ^ (saved.stub as u32 & !code::MASK) | code;
        // (Without room they are lost; the event will not find any either, and is counted.)
        let _ = write(session, low, &stored);
    }
    1
}

fn write(session: Session, low: u32, stored: &Stored) -> Result<(), Full> {
    let bytes = stored.bytes();
    let words = 1 + bytes.len().div_ceil(DATA_BYTES) as u64;
    let thread = record::thread(session)?;
    let address = reserve(session, thread, 8 * words)?;
    let behind = (1..).map(|n| address + 8 * n);
    for (at, piece) in behind.zip(bytes.chunks(DATA_BYTES)) {
        record::store(at, data_word(piece));
    }
    record::store(address, (bytes.len() as u64) << 32 | u64::from(low));
    Ok(())
}

/// Room for so many bytes, all of it in front of a chunk's limit: they are more than the room behind is meant for.
fn reserve(session: Session, thread: &Thread, bytes: u64) -> Result<u64, Full> {
    loop {
        let seen = thread.cursor.load(Relaxed);
        if !in_data(seen) {
            ring::advance(session, thread)?;
            continue;
        }
        let limit = seen & !(CHUNK_SIZE as u64 - 1) | CHUNK_LIMIT as u64;
        if seen + bytes <= limit {
            if exchange_cursor(thread, seen, seen + bytes) {
                return Ok(seen);
            }
        } else if exchange_cursor(thread, seen, limit) {
            record::pad(seen, (limit - seen) / 8);
        }
    }
}
