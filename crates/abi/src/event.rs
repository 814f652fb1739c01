//! The words that a thread writes into its chunks.
//!
//! With clocks `tsc`, `coarse` and `counter` a word has 8 bytes and is never 0 (0 means "not yet
//! written"):
//!
//! ```text
//!  63       40 39          25 24          5 4    0
//! +-----------+--------------+-------------+------+
//! | low ticks | position^top | site        | code |   one event
//! +-----------+--------------+-------------+------+
//! | return address in the caller           | PARENT|   second word of Call, EntryFrom, TailEntryFrom; of nonlocal exits: an address of the thread's stack
//! +-----------------------------------------------+
//! | high ticks | 0                         | EPOCH|   high ticks of the next event and all later ones
//! +------------------------+----------------+-----+
//! | slot / 8               | top            |STACK|   the next event's slot; those of later events lie around it
//! +----------------+---------+-------------+------+
//! | bytes          | tag^top | site        | ARGUMENTS, RESULTS, FRAMES|   values of the call that the next event enters or ends
//! +----------------+---------+----------+--+------+
//! | seven of these bytes                |  DATA   |   directly behind, as many words as needed
//! +-------------------------------------+---------+
//! ```
//!
//! At the entry or exit of a Go function, words in front of the event say besides whose stack the
//! thread is on:
//!
//! ```text
//! +----------------------------------+------+
//! | goroutine's number, or 0         |GOROUTINE   goroutine of all following events of Go functions; 0: the thread's own stack
//! +----------------------------------+------+
//! | address of its `g`, or top of the stack |GOROUTINE_AT   a goroutine's record; for the thread's own stack, the address that positions count from
//! +----------------------------------+------+
//! | number of the goroutine that started it |STARTED_BY   where the program's version of Go has it; 0: code on a thread's own stack started it
//! +----------------------------------+------+
//! | address of its first function    |STARTED_AT   only behind STARTED_BY
//! +----------------------------------+------+
//! ```
//!
//! The position of such an event is counted from the top of that stack, so it stays the same when
//! the stack moves.
//!
//! The low half of an event is the return address of the hook's own call in the site's stub, xor
//! the address of the frame's return slot shifted left by 22. Stubs have 32 bytes, in a region
//! aligned to 32 MiB, so the address *is* site and code, and seven bits of the stack position (the
//! *tag*) fall into the bits that are the same for all stubs (*top*). Eight more bits of the
//! position lie above. The position distinguishes activations of one function, and shows which
//! frames longjmp or an exception has left when another function is entered.
//!
//! The position has only the lower bits of the slot. If an event belongs to a call that returns,
//! its slot lies in the window of [`WINDOW`] bytes around the slot of the last STACK word, so the
//! whole slot is known; otherwise a STACK word precedes it. Every EPOCH word has one in front,
//! except where no stack positions are recorded: with function alone, and on small stacks.
//!
//! Clock `sparse` writes 4-byte words in 64-byte blocks: low ticks, high ticks with bit 31 set,
//! then 14 event words as above. Call, EntryFrom and TailEntryFrom take three words; the second and
//! third have 27 bits each of the return address, above PARENT and PARENT_HIGH. This clock has no
//! values.

/// `code` of an event: the offset of a return address in the stub, so it is a small number, below
/// 32.
pub mod code {
    /// A function is entered.
    pub const ENTRY: u32 = 5;
    /// A function is entered; its caller follows, and no exit will.
    pub const CALL: u32 = 6;
    /// A function is entered; its caller follows.
    pub const ENTRY_FROM: u32 = 7;
    /// A function returns.
    pub const EXIT: u32 = 16;
    /// A function is entered by a jump.
    pub const TAIL_ENTRY: u32 = 17;
    /// A function is entered by a jump; its caller follows.
    pub const TAIL_ENTRY_FROM: u32 = 18;
    /// A function is entered in the stack frame of its caller, whose slot it shares, but returns on
    /// its own: a Python function that the interpreter runs in the frame of the calling function.
    pub const NESTED_ENTRY: u32 = 19;
    /// A Go function is entered.
    pub const GO_ENTRY: u32 = 20;
    /// A Go function is entered; its caller follows.
    pub const GO_ENTRY_FROM: u32 = 21;
    /// A Go function returns.
    pub const GO_EXIT: u32 = 22;
    /// A Go function is entered; its caller follows, and no exit will.
    pub const GO_CALL: u32 = 23;
    /// Number of the goroutine to which the following events of Go functions belong.
    pub const GOROUTINE: u32 = 24;
    /// Address of that goroutine's record, or the top of the stack.
    pub const GOROUTINE_AT: u32 = 25;
    /// Number of the goroutine that started that goroutine.
    pub const STARTED_BY: u32 = 12;
    /// Address of the function that that goroutine was started with.
    pub const STARTED_AT: u32 = 13;
    /// The thread is about to leave calls without their returns, by longjmp or for an exception.
    /// The slot is the one that the next call of the frame where it continues will have; an address
    /// below the stack pointer at which the thread is still follows.
    pub const NONLOCAL: u32 = 11;
    /// As [`NONLOCAL`], by the unwinder: the frame where the thread continues is a caller of all
    /// frames that it leaves, while longjmp may also lead to another stack.
    pub const UNWINDING: u32 = 14;
    /// Arguments, in front of the entry with the same site and tag.
    pub const ARGUMENTS: u32 = 8;
    /// Results, in front of the return with the same site and tag.
    pub const RESULTS: u32 = 9;
    /// A piece of a copy of the stack ([`frames`](crate::frames)), in front of the arguments with
    /// the same site and tag.
    pub const FRAMES: u32 = 10;
    /// A word of the bytes of arguments, results or frames.
    pub const DATA: u32 = 27;
    /// Second word of an event: the return address in the caller, above these bits.
    pub const PARENT: u32 = 29;
    /// Sparse clock: third word, with the upper bits of the return address.
    pub const PARENT_HIGH: u32 = 28;
    /// Slot of the next event's return address.
    pub const STACK: u32 = 26;
    /// A reserved word without contents.
    pub const PAD: u32 = 30;
    /// High ticks of the next event and all later ones.
    pub const EPOCH: u32 = 31;
    /// Bits of a word that hold the code.
    pub const MASK: u32 = 31;
}

/// Whether an event of this code tells that the thread leaves calls without their returns.
pub fn is_nonlocal(code: u32) -> bool {
    matches!(code, code::NONLOCAL | code::UNWINDING)
}

/// Whether an event of this code has a second word: its caller, or where the thread is that leaves
/// calls.
pub fn has_parent(code: u32) -> bool {
    matches!(
        code,
        code::CALL | code::ENTRY_FROM | code::TAIL_ENTRY_FROM | code::GO_ENTRY_FROM | code::GO_CALL
    ) || is_nonlocal(code)
}

/// Whether an event of this code is that of a Go function, and belongs to a goroutine.
pub fn is_of_go(code: u32) -> bool {
    (code::GO_ENTRY..=code::GO_CALL).contains(&code)
}

/// Returns the two words that identify the goroutine of the following events.
pub fn goroutine_words(goroutine: u64, at: u64) -> [u64; 2] {
    [goroutine << 5 | code::GOROUTINE as u64, at << 5 | code::GOROUTINE_AT as u64]
}

/// Returns the two words about the start of a goroutine, which follow the words that identify it.
pub fn start_words(parent: u64, function: u64) -> [u64; 2] {
    [parent << 5 | code::STARTED_BY as u64, function << 5 | code::STARTED_AT as u64]
}

/// Bits of the clock in an event.
pub const CLOCK_BITS: u32 = 24;
/// Bytes of stack in which the positions of events differ.
pub const WINDOW: u64 = 1 << POSITION_BITS << 3;
/// Bits of an event's position, which counts in units of 8 bytes.
const POSITION_BITS: u32 = 15;
/// Bit offset of the position.
const POSITION_AT: u32 = 25;
/// Bits of the position that are xored with the same bits of the stub region's address.
const TOP: u64 = 0x7f;

/// Returns an event word, given its low half.
pub fn event_word(ticks: u64, slot: u64, low: u32) -> u64 {
    let upper = slot >> 3 << POSITION_AT & ((1 << (POSITION_AT + POSITION_BITS)) - 1) & !0xffff_ffff;
    ticks << (64 - CLOCK_BITS) | upper | u64::from(low)
}

/// Returns an EPOCH word.
pub fn epoch_word(ticks: u64) -> u64 {
    ticks >> CLOCK_BITS << CLOCK_BITS | code::EPOCH as u64
}

/// Returns a STACK word for a slot, given the low half of an event with that slot.
pub fn stack_word(slot: u64, low: u32) -> u64 {
    let top = (u64::from(low >> POSITION_AT) ^ slot >> 3) & TOP;
    slot >> 3 << 20 | top << 5 | code::STACK as u64
}

/// State of the last EPOCH and STACK words, which events need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// Upper bits of the clock.
    pub high: u64,
    /// Lowest slot of the window, in units of 8 bytes.
    window: u64,
    top: u64,
}

impl Context {
    /// Notes a STACK word.
    pub fn set_stack(&mut self, word: u64) {
        self.window = (word >> 20).wrapping_sub(WINDOW >> 4);
        self.top = word >> 5 & TOP;
    }

    /// Returns the time of an event.
    #[inline(always)]
    pub fn ticks(&self, word: u64) -> u64 {
        self.high | word >> (64 - CLOCK_BITS)
    }

    /// Returns the slot of an event's return address, in units of 8 bytes.
    #[inline(always)]
    pub fn slot(&self, word: u64) -> u64 {
        let lower = word >> POSITION_AT ^ self.top;
        self.window.wrapping_add(lower.wrapping_sub(self.window) & ((1 << POSITION_BITS) - 1))
    }
}

/// Returns the second word of an event that carries its caller.
pub fn parent_word(parent: u64) -> u64 {
    parent << 5 | code::PARENT as u64
}

/// Bytes of values in a word.
pub const DATA_BYTES: usize = 7;

/// Returns a word of values.
pub fn data_word(bytes: &[u8]) -> u64 {
    bytes.iter().take(DATA_BYTES).rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) << 8
        | u64::from(code::DATA)
}

/// Returns the bytes of a word of values.
pub fn data_of_word(word: u64) -> [u8; DATA_BYTES] {
    core::array::from_fn(|n| (word >> (8 * n + 8)) as u8)
}

/// Sparse clock: returns the second and third word of an event that carries its caller.
pub fn parent_halves(parent: u64) -> [u32; 2] {
    [(parent as u32) << 5 | code::PARENT, ((parent >> 27) as u32) << 5 | code::PARENT_HIGH]
}

/// Sparse clock: returns the return address in two such words.
pub fn parent_of_halves([low, high]: [u32; 2]) -> u64 {
    u64::from(high >> 5) << 27 | u64::from(low >> 5)
}

/// Sparse clock: bytes of a block. The first 8 are the time.
pub const SPARSE_BLOCK: usize = 64;
/// Sparse clock: bit of the word with the high ticks, so that it is never 0.
pub const SPARSE_HIGH: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the slot and the time that a reader finds in an event, with a window around `placed`.
    fn check(placed: u64, slot: u64, ticks: u64) {
        let region = 0x7f12_3456_0000_u64 & !((32 << 20) - 1);
        let low = |slot: u64| (slot as u32) << 22 ^ (region as u32 | 77 << 5 | code::ENTRY);
        let mut context = Context { high: epoch_word(ticks) & !u64::from(code::MASK), ..Context::default() };
        context.set_stack(stack_word(placed, low(placed)));
        let word = event_word(ticks, slot, low(slot));
        assert_eq!((context.slot(word), context.ticks(word)), (slot >> 3, ticks), "{placed:x} {slot:x}");
    }

    #[test]
    fn slots_within_the_window_are_known_whole() {
        for placed in [0x7fff_ffff_e008_u64, 0x55e0_0000_0000, 0x7f00_0003_fff8, 0x4_0000] {
            for offset in [0, 8, 1 << 10, 0xffff & !7, (WINDOW / 2) - 8] {
                check(placed, placed + offset, 0x1234_5678_9abc);
                check(placed, placed - offset, u64::MAX - offset);
            }
            check(placed, placed - WINDOW / 2, 1 << CLOCK_BITS);
        }
    }
}
