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
    /// Something was written since it was last flushed.
    pub written: bool,
    /// By this thread.
    pub writer: u32,
    pub content: Content,
}

/// What is kept of it.
#[derive(Debug)]
pub(crate) enum Content {
    /// What it read as when it was opened.
    Text(String),
    Records(Box<Reader>),
    Pipe(Box<Pipe>),
    Pages(Pages),
    PendingFilter(Box<PendingFilter>),
    /// Only written to.
    Nothing,
}

/// What a read came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// This; nothing at the end of the file.
    Data(Vec<u8>),
    /// There is nothing yet.
    Wait,
}
