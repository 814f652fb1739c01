//! Where versions of CPython have what is read of their objects.

/// Offsets in objects of a version.
pub struct Layout {
    /// In PyCodeObject: the first line,
    pub first_line: u64,
    /// the path of the file,
    pub file_name: u64,
    /// the qualified name, or, of a version that has none, the name.
    pub name: u64,
    /// Where a version without qualified names has the code's constants and flags.
    pub scope: Option<Scope>,
    /// Bytes of the head of a `str` object: of ASCII characters,
    pub ascii_data: u64,
    /// and of others.
    pub compact_data: u64,
    /// How a dict's keys are laid out.
    pub keys: Keys,
    /// Objects may be immortal: the lower half of their count is negative, and it is not changed.
    immortal: bool,
}

/// Further offsets in PyCodeObject.
pub struct Scope {
    /// Its constants, a tuple.
    pub constants: u64,
    /// Its flags.
    pub flags: u64,
}

/// How the keys of a dict (PyDictKeysObject) are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Up to CPython 3.10.
    Sized,
    /// From 3.11 on.
    #[cfg(not(feature = "placed"))]
    Log2,
}

impl Layout {
    /// Is an object with this count immortal?
    pub fn is_immortal(&self, count: u64) -> bool {
        self.immortal && (count as u32 as i32) < 0
    }
}

/// CPython 3.8, 3.9 and 3.10.
pub static FRAMES: Layout = Layout {
    first_line: 40,
    file_name: 104,
    name: 112,
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
    scope: None,
    ascii_data: 40,
    compact_data: 56,
    keys: Keys::Log2,
    immortal: true,
};
