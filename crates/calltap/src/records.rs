//! Where the records of open calls lie: that of the stack slot at S at `S * SCALE + OFFSET`, 32 bytes for each word of the stack.

/// The stacks that have records: the highest 8 TB of the address space, where the kernel puts stacks and mappings.
const STACKS: u64 = 0x7800_0000_0000;
const STACKS_END: u64 = 0x8000_0000_0000;
/// Where the records begin: between the shadow memory of sanitizers and the lowest address of programs that can lie anywhere.
pub const START: u64 = 0x2000_0000_0000;
/// Bytes of the address range of all records.
pub const LENGTH: u64 = (STACKS_END - STACKS) * SCALE;
/// Bytes of a record for each byte of a stack.
pub const SCALE: u64 = 4;
/// What the record of S is away from S * SCALE: also a constant of the assembly, and of its unwind rule.
pub const OFFSET: u64 = START.wrapping_sub(STACKS * SCALE);

/// Has the stack slot at this address a record?
pub fn have(slot: u64) -> bool {
    (STACKS..STACKS_END).contains(&slot) && slot.is_multiple_of(8)
}

/// The address of the record of a stack slot.
pub fn of(slot: u64) -> u64 {
    (slot * SCALE).wrapping_add(OFFSET)
}
