//! Open files.

use crate::nodes::{Kind, Node};
use crate::pages::Pages;
use crate::reader::{Pipe, Reader};
use crate::tokens::PendingFilter;

/// An open file.
#[derive(Debug)]
pub(crate) struct Handle {
    pub node: Node,
    pub kind: Kind,
    pub arg: u16,
    /// Whether there was a write since the last flush.
    pub written: bool,
    /// The thread of the last write.
    pub writer: u32,
    /// Whether the instance records nothing while the file is open (`pause-on-trace`).
    pub pauses: bool,
    pub content: Content,
}

/// The state of an open file.
#[derive(Debug)]
pub(crate) enum Content {
    /// Contents as of opening the file.
    Text(String),
    Records(Box<Reader>),
    Pipe(Box<Pipe>),
    Pages(Pages),
    PendingFilter(Box<PendingFilter>),
    /// None: the file is only written to.
    Nothing,
}

/// Result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The bytes; none at the end of the file.
    Data(Vec<u8>),
    /// No bytes yet: the reader has to wait.
    Wait,
}
