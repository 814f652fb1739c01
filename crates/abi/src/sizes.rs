//! Sizes that several layouts are made of.

/// Bytes of the smallest page there is.
pub const PAGE: u64 = 4096;

/// One past the highest address that the kernel gives a program which does not ask for more (four levels of page tables).
pub const USER_END: u64 = 1 << 47;

/// Bytes of a chunk of ring memory; chunks are aligned to their size in the target.
pub const CHUNK_SIZE: usize = 0x10000;
/// Events are stored from this offset in a chunk, behind [`ChunkHeader`](crate::ChunkHeader).
pub const CHUNK_DATA: usize = 64;
/// No event starts at or behind this offset. What lies behind takes the tail of the last event, and the cursor of a thread that
/// found the chunk full: a failed reservation moves the cursor up to 32 bytes, and signal handlers can nest some.
pub const CHUNK_LIMIT: usize = 0xF800;
