//! Why an object file gets no list.

/// A file that cannot have a list of calls.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The magic number is missing.
    #[error("{what}")]
    NotElf {
        /// What it is instead.
        what: &'static str,
    },
    /// A program, a library, a core dump.
    #[error("{what}, not a relocatable object file")]
    NotRelocatable {
        /// What it is instead.
        what: &'static str,
    },
    /// Another machine's code.
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
    /// A part of it is of a form that this version does not know.
    #[error("{what}")]
    Unknown {
        /// The part.
        what: String,
    },
}

impl Error {
    /// It is no object file that could have a list, rather than one that is broken.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Error::NotElf { .. } | Error::NotRelocatable { .. } | Error::Machine { .. })
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into() }
    }
}
