//! Addresses of the records of open calls: the record of the stack slot at S is at `S * SCALE +
//! OFFSET`, 32 bytes for each word of the stack.

/// Start of the stacks that have records: the highest 8 TB of the address space, where the kernel
/// puts stacks and mappings.
const STACKS: u64 = 0x7800_0000_0000;
const STACKS_END: u64 = 0x8000_0000_0000;
/// Start of the records: between the shadow memory of sanitizers and the lowest address of
/// position-independent programs.
pub(crate) const START: u64 = 0x2000_0000_0000;
/// Length of the address range of all records, in bytes.
pub(crate) const LENGTH: u64 = (STACKS_END - STACKS) * SCALE;
/// Bytes of records for each byte of a stack.
pub(crate) const SCALE: u64 = 4;
/// Difference between the record of S and S * SCALE; a constant of the assembly, and of its unwind
/// rule, too.
pub(crate) const OFFSET: u64 = START.wrapping_sub(STACKS * SCALE);

/// Whether the stack slot at this address has a record.
pub(crate) fn have(slot: u64) -> bool {
    (STACKS..STACKS_END).contains(&slot) && slot.is_multiple_of(8)
}

/// Returns the address of the record of a stack slot.
pub(crate) fn of(slot: u64) -> u64 {
    (slot * SCALE).wrapping_add(OFFSET)
}
