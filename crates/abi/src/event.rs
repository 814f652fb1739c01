//! The words a thread writes into its chunks.
//!
//! Clocks `tsc`, `coarse` and `counter` write 8-byte words, never 0 (0 is "not yet written"):
//!
//! ```text
//!  63            32 31     25 24          5 4    0
//! +----------------+---------+-------------+------+
//! | low ticks      | tag^top | site        | code |   one event
//! +----------------+---------+-------------+------+
//! | return address in the caller           | PARENT|   second word of Call, EntryFrom and TailEntryFrom
//! +-----------------------------------------------+
//! | high ticks     | 0                     | EPOCH|   the next event's high ticks, and all later ones'
//! +----------------+---------+-------------+------+
//! | bytes          | tag^top | site        | ARGUMENTS, RESULTS|   values of the call whose entry or return comes next
//! +----------------+---------+----------+--+------+
//! | seven of these bytes                |  DATA   |   as many words as they take, which directly follow
//! +-------------------------------------+---------+
//! ```
//!
//! The low half is the return address of the hook's own call in the site's stub, xor the address of the frame's
//! return slot shifted left by 22: stubs are 32 bytes in a region aligned to 32 MiB, so the address *is* site and code, and seven
//! bits of the stack position (the *tag*) fall into the bits that are the same for all stubs. The tag tells
//! activations of one function apart when frames were left by longjmp or an exception.
//!
//! Clock `sparse` writes 4-byte words in 64-byte blocks: low ticks, high ticks with bit 31 set, then 14 event
//! words as above; Call, EntryFrom and TailEntryFrom take three words, the second and third 27 bits of the return address each, above
//! PARENT and PARENT_HIGH. It has no values.

/// `code` of an event: offset of a return address in the stub, so small numbers below 32.
pub mod code {
    /// Entered.
    pub const ENTRY: u32 = 5;
    /// Entered; caller follows; no exit will.
    pub const CALL: u32 = 6;
    /// Entered; caller follows.
    pub const ENTRY_FROM: u32 = 7;
    /// Returned.
    pub const EXIT: u32 = 16;
    /// Entered by a jump.
    pub const TAIL_ENTRY: u32 = 17;
    /// Entered by a jump; caller follows.
    pub const TAIL_ENTRY_FROM: u32 = 18;
    /// Arguments, in front of the entry of the same site and tag.
    pub const ARGUMENTS: u32 = 8;
    /// Results, in front of the return likewise.
    pub const RESULTS: u32 = 9;
    /// A word of the bytes of either.
    pub const DATA: u32 = 27;
    /// Second word of an event: a return address above these bits.
    pub const PARENT: u32 = 29;
    /// Sparse clock: third word, with the upper bits of the return address.
    pub const PARENT_HIGH: u32 = 28;
    /// A reserved slot that holds nothing.
    pub const PAD: u32 = 30;
    /// High ticks.
    pub const EPOCH: u32 = 31;
    /// The five bits.
    pub const MASK: u32 = 31;
}

/// Does an event of this code carry its caller?
pub fn has_parent(code: u32) -> bool {
    matches!(code, code::CALL | code::ENTRY_FROM | code::TAIL_ENTRY_FROM)
}

/// The second word of an event that carries its caller.
pub fn parent_word(parent: u64) -> u64 {
    parent << 5 | code::PARENT as u64
}

/// Bytes of values in a word.
pub const DATA_BYTES: usize = 7;

/// A word of values.
pub fn data_word(bytes: &[u8]) -> u64 {
    bytes.iter().take(DATA_BYTES).rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) << 8
        | u64::from(code::DATA)
}

/// The bytes of such a word.
pub fn data_of_word(word: u64) -> [u8; DATA_BYTES] {
    core::array::from_fn(|n| (word >> (8 * n + 8)) as u8)
}

/// Sparse clock: the second and third word of an event that carries its caller.
pub fn parent_halves(parent: u64) -> [u32; 2] {
    [(parent as u32) << 5 | code::PARENT, ((parent >> 27) as u32) << 5 | code::PARENT_HIGH]
}

/// The return address of two such words.
pub fn parent_of_halves([low, high]: [u32; 2]) -> u64 {
    u64::from(high >> 5) << 27 | u64::from(low >> 5)
}

/// Sparse clock: bytes of a block, of which the first 8 are the time.
pub const SPARSE_BLOCK: usize = 64;
/// Sparse clock: set in the word that holds the high ticks, so that it is never 0.
pub const SPARSE_HIGH: u32 = 1 << 31;
