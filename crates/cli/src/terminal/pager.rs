//! A pager for long output on a terminal, as git has it.
//!
//! The command is `CALLTAP_PAGER`, else `PAGER`, else less; an empty command or `cat` is no pager.
//! Where `LESS` is not set, less ends by itself if all fits on the screen, leaves what it showed,
//! and cuts long lines, which the arrow keys scroll.

use crate::terminal::progress;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Characters with which a command is run by the shell.
const FOR_SHELL: &[char] =
    &['|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', ' ', '\t', '*', '?', '[', '#', '~', '='];

/// Returns the command that the user wants, if standard output is a terminal on which it can work.
pub fn wanted() -> Option<String> {
    let terminal = env::var("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || terminal.is_empty() || terminal == "dumb" {
        return None;
    }
    let command = ["CALLTAP_PAGER", "PAGER"].iter().find_map(|name| env::var(name).ok());
    let command = command.unwrap_or_else(|| "less".to_owned());
    Some(command.trim().to_owned()).filter(|command| !command.is_empty() && command != "cat")
}

/// A writer to a pager, which is started by the first write.
pub struct Pager<W> {
    command: String,
    /// The writer that is used if the pager cannot be started.
    plain: W,
    state: State,
}

enum State {
    Waiting,
    Runs(Child, Option<ChildStdin>),
    Missing,
}

impl<W: Write> Pager<W> {
    /// Returns a writer to the pager `command`, or to `plain` if the pager cannot be started.
    pub fn new(command: String, plain: W) -> Pager<W> {
        Pager { command, plain, state: State::Waiting }
    }

    fn begin(&mut self) {
        let mut command = if self.command.contains(FOR_SHELL) {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(&self.command);
            shell
        } else {
            Command::new(&self.command)
        };
        for (name, value) in [("LESS", "FRSX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        progress::give_way();
        self.state = match command.stdin(Stdio::piped()).spawn() {
            Ok(mut child) => {
                // Ctrl-C is for the pager: calltap ends when the pager does.
                let _ = signal_hook::flag::register(
                    signal_hook::consts::SIGINT,
                    Arc::new(AtomicBool::new(false)),
                );
                let input = child.stdin.take();
                State::Runs(child, input)
            }
            Err(_) => State::Missing,
        };
    }
}

impl<W: Write> Write for Pager<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let State::Waiting = self.state {
            self.begin();
        }
        match &mut self.state {
            State::Runs(_, Some(input)) => input.write(bytes),
            _ => self.plain.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Runs(_, Some(input)) => input.flush(),
            _ => self.plain.flush(),
        }
    }
}

impl<W> Drop for Pager<W> {
    /// Closes the pager's input, and waits until the pager ends.
    fn drop(&mut self) {
        if let State::Runs(child, input) = &mut self.state {
            drop(input.take());
            let _ = child.wait();
        }
    }
}
