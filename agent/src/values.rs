//! Reads arguments and results of calls, in front of the hooks that record: only for sites whose
//! stubs request it.
//!
//! Called through a shim, from any point of any thread. Uses `unsafe` because it reads the
//! registers that the shim has saved on the stack.

use crate::record;
use crate::register;
use crate::ring::{self, Full};
use crate::shadow;
use crate::state::{STUBS, Session, Thread, exchange_cursor, in_data};
use crate::sys;
use calltap_abi::event::{DATA_BYTES, code, data_word};
use calltap_abi::{CHUNK_LIMIT, CHUNK_SIZE, PAGE, frames, stub, values};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The stack when [`read_values`] is called, from the shim's last push upwards.
#[repr(C)]
pub struct Saved {
    flags: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rsi: u64,
    rdi: u64,
    rbp: u64,
    /// Return address in the hook.
    back: u64,
    arithmetic: u64,
    r11: u64,
    rdx: u64,
    rcx: u64,
    rax: u64,
    /// Return address in the stub.
    stub: u64,
}

/// The call whose values are read.
struct CallContext<'a> {
    session: Session,
    saved: &'a Saved,
    vectors: &'a [[u64; 2]; 16],
    slot: u64,
}

impl values::Call for CallContext<'_> {
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

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.session.read_memory(address, bytes)
    }

    fn remember(&self, word: u64) {
        let _ = shadow::keep(below(self.slot), word);
    }

    fn recall(&self) -> Option<u64> {
        shadow::kept(below(self.slot))
    }

    fn forbid_counter(&self) {
        register::forbid_counter(self.session);
    }

    fn is_made_in(&self, range: Range<u64>) -> bool {
        // SAFETY: the thread returns through this word, so that it is mapped; any bytes are a valid
        // word, and it need not be aligned.
        let back = unsafe { (self.slot as *const u64).read_unaligned() };
        match is_own(back) {
            true => !self.session.program_of(back).is_some_and(values::depends_on_caller),
            false => range.contains(&back),
        }
    }

    /// Copies the stack up to the first word that cannot be read, as the end of the stack is not
    /// known here. Not inlined, so that values without callers take no more of the thread's stack.
    #[inline(never)]
    fn copy_stack(&self, bytes: u32) {
        let mut at = self.slot & !7;
        let Some(end) = at.checked_add(bytes.into()) else { return };
        let mut number = 0;
        while at < end {
            let is_near = at / PAGE == self.slot / PAGE;
            let written = if is_near {
                self.write_near(&mut number, at, end)
            } else {
                self.write_far(&mut number, at, end)
            };
            let Some(length) = written else { return };
            at += length;
        }
    }
}

/// Whether an address is one of a stub.
fn is_own(address: u64) -> bool {
    address.wrapping_sub(STUBS.load(Relaxed) as u64) < stub::REGION as u64
}

/// Bytes of stack that a piece covers.
const PIECE_SIZE: usize = 8 * frames::PIECE;
/// Pieces that one system call copies. They lie on the thread's stack meanwhile.
const AT_ONCE: usize = 4;

/// Returns the size of the piece at `at` in bytes, whole words: up to the next boundary of pieces,
/// so that no piece crosses a page.
fn bytes_between(at: u64, end: u64) -> u64 {
    let boundary = (at | (PIECE_SIZE as u64 - 1)) + 1;
    (boundary.min(end) - at).next_multiple_of(8)
}

impl CallContext<'_> {
    /// Writes a piece of the page of the return address. Returns how many bytes of stack it covers.
    fn write_near(&self, number: &mut u32, at: u64, end: u64) -> Option<u64> {
        let length = bytes_between(at, end);
        let words = (at..at + length).step_by(8).map(|word| {
            // SAFETY: the word is aligned, and lies in the page of the return address, which this
            // thread returns through and which is mapped therefore, whatever stack this is; any
            // bytes are a valid word.
            unsafe { &*(word as *const AtomicU64) }.load(Relaxed)
        });
        self.write_piece(number, at, words)?;
        Some(length)
    }

    /// Writes pieces of other pages, which the kernel copies: a page may be a guard page, or
    /// another thread may unmap it. Returns `None` if some could not be read.
    #[inline(never)]
    fn write_far(&self, number: &mut u32, at: u64, end: u64) -> Option<u64> {
        if self.session.control().unreadable.load(Relaxed) != 0 {
            return None;
        }
        let mut bytes = [0; AT_ONCE * PIECE_SIZE];
        let length = ((end - at).next_multiple_of(8) as usize).min(bytes.len());
        let wanted = bytes.get_mut(..length)?;
        let copied = sys::read_elements::<AT_ONCE>(at, wanted, PIECE_SIZE);
        for (piece, at) in wanted.get(..copied)?.chunks(PIECE_SIZE).zip((at..).step_by(PIECE_SIZE)) {
            let words = piece.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            self.write_piece(number, at, words)?;
        }
        (copied == length).then_some(length as u64)
    }

    /// Writes a piece of the stack with the number `number`, and increments that. Returns `None` if
    /// there is no room.
    fn write_piece(&self, number: &mut u32, at: u64, words: impl Iterator<Item = u64>) -> Option<()> {
        // The slot of a function that was entered by a jump holds a stub's address, too.
        let true_word = |(at, word): (u64, u64)| match is_own(word) {
            true => shadow::kept(at).unwrap_or(0),
            false => word,
        };
        let words = (at..).step_by(8).zip(words).map(true_word);
        let piece = frames::Piece::new(u8::try_from(*number).ok()?, at, self.caller_rbp(), words);
        *number += 1;
        write(self.session, self.low(code::FRAMES), piece.bytes()).ok()
    }

    /// Returns the caller's rbp; behind a prologue, the function has saved it.
    fn caller_rbp(&self) -> u64 {
        let rbp = self.saved.rbp;
        let behind_prologue = self.saved.stub as usize % stub::SIZE == stub::AFTER_MCOUNT;
        if !behind_prologue || !rbp.is_multiple_of(8) {
            return rbp;
        }
        // SAFETY: such a site lies behind `push rbp; mov rbp, rsp`, and its hook has found the
        // return address at rbp + 8: rbp leads to the function's own frame, which is mapped; any
        // bytes are a valid word.
        unsafe { &*(rbp as *const AtomicU64) }.load(Relaxed)
    }

    /// Returns the low half of the head of a record of this call.
    fn low(&self, code: u32) -> u32 {
        (self.slot as u32) << 22 ^ (self.saved.stub as u32 & !code::MASK) | code
    }
}

/// Returns the address of the word below the return address. It belongs to the call's own frame;
/// only the profiling hooks also use its shadow-stack slot, for the time at which a call began.
fn below(slot: u64) -> u64 {
    slot.wrapping_sub(8)
}

/// Reads the values of a call that is entered or returns, and writes them in front of its event.
/// Returns 0 if the call is not to be recorded.
///
/// # Safety
/// Only the shim calls this, with pointers to the registers that it has saved.
pub unsafe extern "C" fn read_values(slot: u64, saved: *const Saved, vectors: *const [[u64; 2]; 16]) -> u8 {
    // SAFETY: as the caller promises; the shim restores the registers from there only after this
    // function has returned.
    let (saved, vectors) = unsafe { (&*saved, &*vectors) };
    let Some(session) = Session::get() else { return 1 };
    let Some(program) = session.program_of(saved.stub) else { return 1 };
    let exit = matches!(saved.stub as usize % stub::SIZE, stub::AFTER_EXIT | stub::AFTER_LEAVE);
    let context = CallContext { session, saved, vectors, slot };
    let Some(stored) = values::run(program, exit, &context) else { return 0 };
    if !stored.bytes().is_empty() {
        // Without room the values are lost; the event finds no room either, and is counted.
        let _ =
            write(session, context.low(if exit { code::RESULTS } else { code::ARGUMENTS }), stored.bytes());
    }
    1
}

/// Writes a head word and the bytes of values into the thread's ring.
pub fn write(session: Session, low: u32, bytes: &[u8]) -> Result<(), Full> {
    let words = 1 + bytes.len().div_ceil(DATA_BYTES) as u64;
    let thread = register::thread(session)?;
    let address = reserve(session, thread, 8 * words)?;
    let behind = (1..).map(|n| address + 8 * n);
    for (at, piece) in behind.zip(bytes.chunks(DATA_BYTES)) {
        record::store(at, data_word(piece));
    }
    record::store(address, (bytes.len() as u64) << 32 | u64::from(low));
    Ok(())
}

/// Reserves `bytes` bytes in front of a chunk's limit: the room behind the limit is too small for
/// values.
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
