//! Sizes that several layouts share.

/// Bytes of the smallest page.
pub const PAGE: u64 = 4096;

/// First address behind those that the kernel gives to a program by default (four levels of page
/// tables).
pub const USER_END: u64 = 1 << 47;

/// Bytes of a chunk of ring memory; chunks are aligned to their size in the target.
pub const CHUNK_SIZE: usize = 0x10000;
/// Offset of the first event in a chunk, behind [`ChunkHeader`](crate::ChunkHeader).
pub const CHUNK_DATA: usize = 64;
/// Offset in a chunk at or behind which no event starts. The bytes behind take the tail of the last
/// event, and the cursor of a thread that found the chunk full: a failed reservation moves the
/// cursor by up to 64 bytes, and signal handlers can nest some.
pub const CHUNK_LIMIT: usize = 0xF800;
