//! Errors for files that cannot be read at all. Broken parts of a readable file are complaints
//! instead.

/// The reason why a file is not a traceable program or library.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The magic number is missing.
    #[error("not an ELF file")]
    NotElf,
    /// ELFCLASS32, x32 included.
    #[error("a 32-bit ELF file: only 64-bit programs can be traced")]
    Bits32,
    /// Code of another machine.
    #[error("an ELF file for {machine}: only x86-64 can be traced")]
    Machine {
        /// Name of the machine, or its number.
        machine: String,
    },
    /// The file is neither an executable nor a shared object.
    #[error("{what}, not an executable or shared object")]
    NotLoadable {
        /// Description of the file's actual type.
        what: String,
    },
    /// The headers contradict themselves or the length of the file.
    #[error("truncated or corrupt ELF file: {what}")]
    Corrupt {
        /// Description of the broken part.
        what: String,
    },
}
