//! Reasons why sites are not enabled.

use crate::gates::NoGates;
use calltap_patch::ChangeError;
use std::io;

/// The reason why a site cannot be enabled.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Whether enabling it is not tried again.
    pub for_good: bool,
    pub why: NotEnabled,
}

/// Failure of enabling a site.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotEnabled {
    #[error("expected {}, found {}", hex(expected), hex(found))]
    Mismatch { expected: Vec<u8>, found: Vec<u8> },
    #[error(
        "several instructions, one of which a thread may be at: call init() before other threads are started"
    )]
    MayRun,
    #[error("its trampoline is out of reach")]
    OutOfReach,
    #[error("cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    #[error("cannot be written: {0}")]
    PartlyWritten(io::ErrorKind),
    #[error("{0}")]
    Gates(NoGates),
}

impl Refusal {
    /// Returns the refusal for a failed change of a site with `expected` bytes.
    pub(crate) fn new(failure: ChangeError<io::ErrorKind>, expected: &[u8]) -> Refusal {
        let (for_good, why) = match failure {
            ChangeError::Mismatch(found) => {
                (true, NotEnabled::Mismatch { expected: expected.to_vec(), found: found.to_vec() })
            }
            ChangeError::Demands(_) => (false, NotEnabled::MayRun),
            ChangeError::OutOfReach => (true, NotEnabled::OutOfReach),
            ChangeError::ReadFailed(error) => (false, NotEnabled::Unreadable(error)),
            ChangeError::PartialWrite(error) => (true, NotEnabled::PartlyWritten(error)),
        };
        Refusal { for_good, why }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
