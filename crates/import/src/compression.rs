//! Decompresses the parts of a file of version 7.

use crate::bytes::{Cursor, MAX_PART_LEN};
use crate::error::Error;
use flate2::read::ZlibDecoder;
use std::io::{self, Read};

/// Compression of the parts of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    None,
    Zstd,
    Zlib,
}

impl Compression {
    /// Returns the compression that the file names.
    pub(crate) fn named(name: &str) -> Result<Compression, Error> {
        match name {
            "none" => Ok(Compression::None),
            "zstd" => Ok(Compression::Zstd),
            "zlib" => Ok(Compression::Zlib),
            other => Err(Error::Compression(calltap_names::printable(other).into_owned())),
        }
    }

    /// Reads and decompresses the next piece: the lengths of its packed and unpacked bytes, then
    /// the packed bytes.
    pub(crate) fn piece(self, cursor: &mut Cursor<'_>, what: &'static str) -> Result<Vec<u8>, Error> {
        let (packed, unpacked) = (cursor.u32()?, cursor.u32()?);
        let bytes = cursor.take(packed.into())?;
        let length = unpacked as usize;
        if u64::from(unpacked) > MAX_PART_LEN {
            return Err(Error::Damaged("a compressed part is too long"));
        }
        let unpacked = match self {
            Compression::None => return Err(Error::Damaged("a part is compressed, and the file is not")),
            Compression::Zstd => zstd::bulk::decompress(&bytes, length),
            Compression::Zlib => inflate(&bytes, length),
        };
        let unpacked = unpacked.map_err(|source| Error::Decompress { what, source })?;
        match unpacked.len() == length {
            true => Ok(unpacked),
            false => Err(Error::Damaged("a compressed part has not the length that it claims")),
        }
    }
}

fn inflate(bytes: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    ZlibDecoder::new(bytes).take(length as u64 + 1).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn piece(packed: &[u8], length: u32) -> Vec<u8> {
        [&(packed.len() as u32).to_le_bytes(), &length.to_le_bytes()[..], packed].concat()
    }

    #[test]
    fn both_algorithms_are_read_and_lengths_are_checked() {
        let text = b"events events events events events".to_vec();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let zstd = zstd::bulk::compress(&text, 1).unwrap();
        let read = |how: Compression, bytes: &Vec<u8>| {
            how.piece(&mut Cursor::new(bytes, 0, "a part").unwrap(), "a part")
        };
        let length = text.len() as u32;
        assert_eq!(read(Compression::Zlib, &piece(&zlib, length)).unwrap(), text);
        assert_eq!(read(Compression::Zstd, &piece(&zstd, length)).unwrap(), text);
        for wrong in [length - 1, length + 1] {
            assert!(read(Compression::Zlib, &piece(&zlib, wrong)).is_err());
            assert!(read(Compression::Zstd, &piece(&zstd, wrong)).is_err());
        }
        assert!(matches!(read(Compression::Zstd, &piece(&zlib, length)), Err(Error::Decompress { .. })));
        let cut = &piece(&zlib, length)[..12];
        assert!(matches!(read(Compression::Zlib, &cut.to_vec()), Err(Error::Truncated("a part"))));
        assert!(matches!(Compression::named("lzma"), Err(Error::Compression(name)) if name == "lzma"));
    }
}
