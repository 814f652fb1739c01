//! Reasons why an object file gets no list.

/// The reason why a file cannot have a list of calls.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The magic number is missing.
    #[error("{what}")]
    NotElf {
        /// The kind of file, or what is wrong with it.
        what: &'static str,
    },
    /// The file is a program, a library, or a core dump.
    #[error("{what}, not a relocatable object file")]
    NotRelocatable {
        /// The kind of file.
        what: &'static str,
    },
    /// The file has another machine's code.
    #[error(
        "an object file for machine {number}: only those for x86-64 and i386 can have their calls recorded"
    )]
    Machine {
        /// ELF's number of the machine.
        number: u16,
    },
    /// The file contradicts itself or its length.
    #[error("truncated or corrupt object file: {what}")]
    Corrupt {
        /// The part that is broken.
        what: String,
    },
    /// A part of the file has a form that this version does not know.
    #[error("{what}")]
    Unknown {
        /// The part.
        what: String,
    },
}

impl Error {
    /// Whether the file is not an object file that could have a list, rather than a broken one.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Error::NotElf { .. } | Error::NotRelocatable { .. } | Error::Machine { .. })
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into() }
    }
}
