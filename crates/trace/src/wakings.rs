//! Records of the kernel about a thread besides its context switches: wakings, and system calls.

use crate::codec::Damage;
use crate::codec::streams::{Cursor, narrow, put_varint, unzigzag, zigzag};
use crate::kernel_log::Entry;
use calltap_names::printable_bytes;

/// A waking of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waking {
    /// Time: nanoseconds of CLOCK_MONOTONIC where wakings are written, ticks of the trace's clock
    /// where they are read.
    pub at: u64,
    /// Whether an interrupt woke it. `pid` and `tid` then are of the interrupted thread, which is
    /// not involved.
    pub interrupt: bool,
    /// The process that woke it.
    pub pid: u32,
    /// The thread that woke it; 0: none of the trace's threads.
    pub tid: u32,
    /// Name of that process; empty where it is not known.
    pub comm: String,
}

/// An entry to or an exit from a system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemCall {
    /// Time, as in `Waking::at`.
    pub at: u64,
    /// Number of the system call on the machine's kernel.
    pub number: u32,
    /// Entry or exit, with its data.
    pub edge: Edge,
}

/// An end of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// The system call begins, with these arguments.
    Enter([u64; 6]),
    /// The system call returns this.
    Exit(i64),
}

/// Maximum number of bytes of a name that are kept.
const NAME: usize = 64;

impl Entry for Waking {
    fn at(&self) -> u64 {
        self.at
    }

    fn set_at(&mut self, at: u64) {
        self.at = at;
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.pid) << 1 | u64::from(self.interrupt));
        put_varint(out, self.tid.into());
        let name = &self.comm.as_bytes()[..self.comm.len().min(NAME)];
        put_varint(out, name.len() as u64);
        out.extend_from_slice(name);
    }

    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<Waking, Damage> {
        let (word, tid, length) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
        if length > NAME as u64 {
            return Err(Damage("a name is too long"));
        }
        let comm = printable_bytes(cursor.take(length as usize)?);
        Ok(Waking { at, interrupt: word & 1 != 0, pid: narrow(word >> 1)?, tid: narrow(tid)?, comm })
    }
}

impl Entry for SystemCall {
    fn at(&self) -> u64 {
        self.at
    }

    fn set_at(&mut self, at: u64) {
        self.at = at;
    }

    fn put(&self, out: &mut Vec<u8>) {
        let is_exit = matches!(self.edge, Edge::Exit(_));
        put_varint(out, u64::from(self.number) << 1 | u64::from(is_exit));
        match self.edge {
            Edge::Enter(arguments) => {
                arguments.iter().for_each(|argument| put_varint(out, zigzag(*argument)))
            }
            Edge::Exit(result) => put_varint(out, zigzag(result as u64)),
        }
    }

    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<SystemCall, Damage> {
        let word = cursor.varint()?;
        let number = narrow(word >> 1)?;
        let mut next = || cursor.varint().map(unzigzag);
        let edge = if word & 1 != 0 {
            Edge::Exit(next()? as i64)
        } else {
            Edge::Enter([next()?, next()?, next()?, next()?, next()?, next()?])
        };
        Ok(SystemCall { at, number, edge })
    }
}
