//! Pages of chunks that have no memory of their own yet.

use crate::shm::Shared;
use calltap_abi::CHUNK_SIZE;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

impl Shared {
    /// Whether no page of a chunk from an offset on was ever written to. The file system tells, as
    /// reading such a page would give it memory.
    pub(crate) fn is_blank(&self, chunk: u32, from: usize) -> bool {
        let Some(at) = self.chunk_offset(chunk) else { return false };
        match seek(self.file(), SeekFrom::Data((at + from) as u64)) {
            Ok(data) => data >= (at + CHUNK_SIZE) as u64,
            // ENXIO: no data lies behind. Other errors tell nothing.
            Err(error) => error == Errno::NXIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn pages_are_blank_until_written() {
        let shared = Shared::map(&tempfile::tempfile().unwrap(), 8, 8).unwrap();
        let write = |chunk, offset: usize| shared.chunk(chunk).unwrap()[offset / 8].store(1, Relaxed);
        write(0, 0x100);
        assert!(shared.is_blank(1, 0) || !shared.is_blank(0, 0), "a file system may not know");
        write(0, 0x9000);
        write(2, 0);
        assert!(!shared.is_blank(0, 0) && !shared.is_blank(0, 0x1000) && !shared.is_blank(0, 0x9000));
        assert!(!shared.is_blank(2, 0) && !shared.is_blank(1 << 20, 0));
    }
}
