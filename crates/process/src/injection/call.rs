//! A call of a function that a thread of another process makes.

/// A call for a thread to make.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Address of the function.
    pub function: u64,
    /// The first two arguments.
    pub arguments: [u64; 2],
    /// A string to put at [`CodeCave::string_address`](super::inject::CodeCave::string_address).
    pub string: &'a [u8],
    /// Address of a function that is called if `function` returns 0, unless this is 0. It returns a
    /// string with the reason.
    pub complaint: u64,
    /// Signals whose mask the call leaves alone. Their handlers must return.
    pub let_in: u64,
    /// Whether the call opens files. A new thread with a descriptor table of its own then makes it,
    /// so that the program's other threads do not see them.
    pub opens_files: bool,
}

impl Call<'_> {
    /// Returns a call without a string.
    pub fn new(function: u64, arguments: [u64; 2]) -> Call<'static> {
        Call { function, arguments, string: &[], complaint: 0, let_in: 0, opens_files: false }
    }
}
