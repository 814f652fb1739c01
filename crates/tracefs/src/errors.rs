//! `error_log`: the refused writes.

use crate::control::Refusal;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt::Write;

/// Number of errors that are kept, as in the kernel.
const KEPT: usize = 8;

/// The reason why a write was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    /// Error number of the system call.
    pub errno: Errno,
    /// Explanation in words; an error without one is not logged.
    pub why: String,
    /// Byte offset of the error in the written text.
    pub at: usize,
}

impl Wrong {
    /// Returns the error of an invalid argument.
    pub(crate) fn argument(why: impl Into<String>) -> Wrong {
        Wrong { errno: Errno::INVAL, why: why.into(), at: 0 }
    }

    /// Sets the byte offset of the error.
    pub(crate) fn at(self, at: usize) -> Wrong {
        Wrong { at, ..self }
    }
}

impl From<Errno> for Wrong {
    fn from(errno: Errno) -> Wrong {
        Wrong { errno, why: String::new(), at: 0 }
    }
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Wrong {
        Wrong { errno: refusal.errno, why: refusal.why, at: 0 }
    }
}

/// The last errors of an instance.
#[derive(Default, Debug)]
pub(crate) struct ErrorLog(VecDeque<String>);

impl ErrorLog {
    /// Adds an error: its time, its file and the written text. The text is empty if the write was
    /// valid but could not be carried out.
    pub(crate) fn add(&mut self, ns: u64, file: &str, written: &str, wrong: &Wrong) {
        if wrong.why.is_empty() {
            return;
        }
        let (seconds, us) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
        let mut text = format!("[{seconds:>5}.{us:06}] {file}: error: {}\n", wrong.why.replace('\n', " "));
        let written = written.trim_end();
        if !written.is_empty() {
            let before = written.bytes().take(wrong.at).filter(|byte| byte & 0xc0 != 0x80).count();
            let _ = writeln!(text, "  Command: {}\n           {:before$}^", written.replace('\n', " "), "");
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(text);
    }

    /// Removes all errors.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the contents of the file.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect()
    }
}
