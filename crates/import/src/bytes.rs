//! Bounded reads of the bytes of a file.

use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Maximum length of a part of the head; kallsyms of large kernels is a tenth of it.
pub(crate) const MAX_PART_LEN: u64 = 256 << 20;

/// Bytes that can be read at any offset.
pub trait Bytes {
    /// Returns the number of bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills `into` with the bytes from offset `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Bytes for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, at)
    }
}

impl Bytes for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let from = usize::try_from(at).map_err(|_| end())?;
        let bytes = self.get(from..).and_then(|rest| rest.get(..into.len())).ok_or_else(end)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// A read position. All errors name the part that is read.
pub(crate) struct Cursor<'b> {
    bytes: &'b dyn Bytes,
    what: &'static str,
    at: u64,
    end: u64,
}

impl<'b> Cursor<'b> {
    /// Makes a cursor from `at` to the end of the bytes.
    pub(crate) fn new(bytes: &'b dyn Bytes, at: u64, what: &'static str) -> Result<Cursor<'b>, Error> {
        Ok(Cursor { bytes, what, at, end: bytes.size().map_err(Error::Read)? })
    }

    /// Makes a cursor at another offset of the same bytes.
    pub(crate) fn elsewhere(&self, at: u64, what: &'static str) -> Cursor<'b> {
        Cursor { bytes: self.bytes, what, at, end: self.end }
    }

    /// Sets the name of the following part, for errors.
    pub(crate) fn part(&mut self, what: &'static str) {
        self.what = what;
    }

    /// Returns the offset.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Reads `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Result<Vec<u8>, Error> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end);
        let end = end.ok_or(Error::Truncated(self.what))?;
        if length > MAX_PART_LEN {
            return Err(Error::Damaged("a part of the head is too long"));
        }
        let mut bytes = vec![0; length as usize];
        self.bytes.read(self.at, &mut bytes).map_err(Error::Read)?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(&self.take(N as u64)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a zero-terminated text.
    pub(crate) fn text(&mut self) -> Result<String, Error> {
        const MAX_TEXT_LEN: usize = 4096;
        let mut text = Vec::new();
        loop {
            match self.u8()? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                _ if text.len() == MAX_TEXT_LEN => return Err(Error::Damaged("a name is too long")),
                byte => text.push(byte),
            }
        }
    }

    /// Reads an 8-byte length and as many bytes.
    pub(crate) fn sized(&mut self) -> Result<Vec<u8>, Error> {
        let length = self.u64()?;
        self.take(length)
    }
}
