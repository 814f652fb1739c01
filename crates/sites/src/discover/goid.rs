//! Offsets in `runtime.g` of a goroutine's number and of its starter's number, which depend on the
//! version of Go.
//!
//! The linker writes the version into the file (Go's own `debug/buildinfo` reads it). The offsets
//! below are from the debugging information of programs built by each version. For any other
//! version the offset is unknown, and no goroutine's number is read.

use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::site::{GPlace, Goroutine};

/// Layout of `runtime.g`, and place of its address, in one version of Go.
#[derive(Clone, Copy)]
pub(crate) struct GLayout {
    /// Whether compiled functions keep its address in r14.
    pub is_in_r14: bool,
    /// Offsets in words, as in [`Goroutine`].
    pub number: u8,
    pub started_by: Option<u8>,
}

impl GLayout {
    /// Returns the goroutine whose record's address is in this place.
    pub(crate) fn goroutine(self, g: GPlace) -> Goroutine {
        Goroutine { g, number: self.number, started_by: self.started_by }
    }
}

const SECTION: &[u8] = b".go.buildinfo";
/// Beginning of the section. The size of a pointer, and flags, follow.
const MAGIC: &[u8; 14] = b"\xff Go buildinf:";
const FLAGS: u64 = 15;
/// Flag: the version is in the section, behind a byte with its length. Otherwise the section has a
/// pointer to it.
const INLINE: u8 = 2;
const POINTER: u64 = 16;
const TEXT: u64 = 32;
/// Length of the longest version that is read.
const MAX_VERSION_LEN: u64 = 127;

/// Returns the layout of `g`.
pub(crate) fn layout(image: &Image<'_>, dynamic: &Dynamic<'_>) -> Option<GLayout> {
    of_version(&version(image, dynamic)?)
}

/// The version of Go that a program was built with, as `go version FILE` reports it.
fn version(image: &Image<'_>, dynamic: &Dynamic<'_>) -> Option<String> {
    let at = image.section(SECTION)?.address;
    let head = image.bytes(at, TEXT)?;
    if !head.starts_with(MAGIC) {
        return None;
    }
    let text = if head[FLAGS as usize] & INLINE != 0 {
        let length = u64::from(*image.bytes(at + TEXT, 1)?.first()?);
        image.bytes(at + TEXT + 1, length.min(MAX_VERSION_LEN))?
    } else {
        let string = dynamic.pointer_at(image, at + POINTER)?;
        let length = u64::from_le_bytes(image.bytes(string.checked_add(8)?, 8)?.try_into().ok()?);
        image.bytes(dynamic.pointer_at(image, string)?, length.min(MAX_VERSION_LEN))?
    };
    Some(String::from_utf8_lossy(text).into_owned())
}

fn of_version(version: &str) -> Option<GLayout> {
    let minor = version.strip_prefix("go1.")?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    let version: u32 = minor[..digits].parse().ok()?;
    // Go 1.17 is the first version that keeps `g` in r14, and 1.21 the first one that notes by
    // which goroutine another was started.
    let (number, started_by) = match version {
        16..=20 => (19, None),
        21..=22 | 25 => (19, Some(34)),
        // A word, `syscallbp`, was added in front of the number; 1.25 removed another one.
        23..=24 => (20, Some(35)),
        26..=27 => (19, Some(35)),
        _ => return None,
    };
    Some(GLayout { is_in_r14: version >= 17, number, started_by })
}

#[cfg(test)]
mod tests {
    use super::of_version;

    #[test]
    fn the_places_are_known_of_listed_versions_only() {
        for (version, expected) in [
            ("go1.16.15", Some((19, None))),
            ("go1.17", Some((19, None))),
            ("go1.19.8", Some((19, None))),
            ("go1.21.0", Some((19, Some(34)))),
            ("go1.22rc1 X:boringcrypto", Some((19, Some(34)))),
            ("go1.23.4", Some((20, Some(35)))),
            ("go1.24.11", Some((20, Some(35)))),
            ("go1.25.5", Some((19, Some(34)))),
            ("go1.26.1", Some((19, Some(35)))),
            ("go1.27.3", Some((19, Some(35)))),
            ("go1.28", None),
            ("go1.15.15", None),
            ("go1.99", None),
            ("devel +abc", None),
            ("go1.", None),
        ] {
            let found = of_version(version).map(|layout| (layout.number, layout.started_by));
            assert_eq!(found, expected, "{version}");
            let is_in_r14 = of_version(version).is_some_and(|layout| layout.is_in_r14);
            assert_eq!(is_in_r14, expected.is_some() && version != "go1.16.15", "{version}");
        }
    }
}
