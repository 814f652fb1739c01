//! `ftraced_enabled`: the daemon of Linux 2.6.27 that converts calls of mcount, which were recorded
//! when they were first made.

use super::{Model, Refusal, number};
use rustix::io::Errno;
use std::fmt::Write;

/// Length from which a text is refused.
const MAX_TEXT_LEN: usize = 64;

impl Model<'_> {
    /// Returns `enabled` or `disabled`. Where sites are known at load there is no daemon:
    /// `disabled`.
    pub(crate) fn ftraced_enabled(&self) -> String {
        let enabled = self.words.ftraced.as_ref().is_some_and(|ftraced| ftraced.enabled);
        if enabled { "enabled\n".into() } else { "disabled\n".into() }
    }

    /// Switches the daemon. Every accepted value has the recorded calls converted at once.
    pub(crate) fn set_ftraced_enabled(&mut self, text: &str) -> Result<(), Refusal> {
        if text.len() >= MAX_TEXT_LEN {
            return Err(Refusal::invalid("too long a word"));
        }
        let enabled = match text {
            _ if text.starts_with("enable") => true,
            _ if text.starts_with("disable") => false,
            _ => number::parse(text)? != 0,
        };
        match &mut self.words.ftraced {
            Some(ftraced) => ftraced.write(enabled),
            None if enabled => {
                let why = "all sites were found at load: the daemon has no sites to convert (see record --discovery first-call)";
                return Err(Refusal::new(Errno::NODEV, why));
            }
            None => {}
        }
        Ok(())
    }

    /// Returns the lines of `dyn_ftrace_total_info` with the durations of updates; empty without
    /// the daemon.
    pub(crate) fn update_times(&self) -> String {
        let mut text = String::new();
        if let Some(ftraced) = &self.words.ftraced {
            let _ = writeln!(text, "ftrace boot update time = {} (ns)", ftraced.first_ns);
            let _ = writeln!(text, "ftrace module total update time = {} (ns)", ftraced.later_ns);
        }
        text
    }
}
