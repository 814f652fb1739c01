//! Offsets of the fields that are read of CPython's objects, by version.

/// Offsets in the objects of a version.
pub struct Layout {
    /// The first line, in PyCodeObject.
    pub first_line: u64,
    /// The path of the file, in PyCodeObject.
    pub file_name: u64,
    /// The qualified name, in PyCodeObject; the name in a version without qualified names.
    pub name: u64,
    /// The flags, in PyCodeObject.
    pub flags: u64,
    /// The number of positional parameters, in PyCodeObject.
    pub positional: u64,
    /// The number of parameters that are given by name only, in PyCodeObject.
    pub keyword_only: u64,
    /// The names of the locals, parameters first, in PyCodeObject.
    pub parameter_names: u64,
    /// Whether the size of an integer is above three bits, two of which tell its sign; otherwise
    /// the size is negative for a negative one.
    pub tags_integers: bool,
    /// The code's constants and flags, in a version without qualified names.
    pub scope: Option<Scope>,
    /// Size in bytes of the head of a `str` object of ASCII characters.
    pub ascii_data: u64,
    /// Size in bytes of the head of another `str` object.
    pub compact_data: u64,
    /// Layout of a dict's keys.
    pub keys: Keys,
    /// Whether objects may be immortal: the lower half of their count is then negative, and must
    /// not be changed.
    immortal: bool,
}

/// Further offsets in PyCodeObject.
pub struct Scope {
    /// Offset of the constants, a tuple.
    pub constants: u64,
    /// Offset of the flags.
    pub flags: u64,
}

/// Layout of the keys of a dict (PyDictKeysObject).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Up to CPython 3.10.
    Sized,
    /// From CPython 3.11 on.
    #[cfg(not(feature = "placed"))]
    Log2,
}

impl Layout {
    /// Whether an object with this count is immortal.
    pub fn is_immortal(&self, count: u64) -> bool {
        self.immortal && (count as u32 as i32) < 0
    }
}

/// CPython 3.8, 3.9 and 3.10.
pub static FRAMES: Layout = Layout {
    first_line: 40,
    file_name: 104,
    name: 112,
    flags: 36,
    positional: 16,
    keyword_only: 24,
    parameter_names: 72,
    tags_integers: false,
    scope: Some(Scope { constants: 56, flags: 36 }),
    ascii_data: 48,
    compact_data: 72,
    keys: Keys::Sized,
    immortal: false,
};

/// CPython 3.11.
#[cfg(not(feature = "placed"))]
pub static V3_11: Layout = Layout {
    first_line: 72,
    file_name: 112,
    name: 128,
    flags: 48,
    positional: 56,
    keyword_only: 64,
    parameter_names: 96,
    tags_integers: false,
    scope: None,
    ascii_data: 48,
    compact_data: 72,
    keys: Keys::Log2,
    immortal: false,
};

/// CPython 3.12 and 3.13.
#[cfg(not(feature = "placed"))]
pub static V3_12: Layout = Layout {
    first_line: 68,
    file_name: 112,
    name: 128,
    flags: 48,
    positional: 52,
    keyword_only: 60,
    parameter_names: 96,
    tags_integers: true,
    scope: None,
    ascii_data: 40,
    compact_data: 56,
    keys: Keys::Log2,
    immortal: true,
};
