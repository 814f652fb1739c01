//! `error_log`: what was wrong with what was written.

use crate::control::Refusal;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt::Write;

/// So many are kept, as in the kernel.
const KEPT: usize = 8;

/// Why something written was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// As the system call says it.
    pub errno: Errno,
    /// For people; what says nothing is not logged.
    pub why: String,
    /// Byte of what was written that it is about.
    pub at: usize,
}

impl Wrong {
    /// An argument that is none, for this reason.
    pub fn argument(why: impl Into<String>) -> Wrong {
        Wrong { errno: Errno::INVAL, why: why.into(), at: 0 }
    }

    /// It is about what stands there.
    pub fn at(self, at: usize) -> Wrong {
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
pub struct ErrorLog(VecDeque<String>);

impl ErrorLog {
    /// Adds one: when it was, in which file, what was written there (nothing: it was understood, and could not be done).
    pub fn add(&mut self, ns: u64, file: &str, written: &str, wrong: &Wrong) {
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

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What the file reads as.
    pub fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect()
    }
}
