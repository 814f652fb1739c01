//! Long output on a terminal goes into a pager, as git's does.
//!
//! `CALLTAP_PAGER`, else `PAGER`, else less; none where that is empty or `cat`. Where `LESS` is not set, less ends by itself if all fits on the screen,
//! leaves what it showed, and cuts long lines, which the arrow keys scroll.

use crate::terminal::progress;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Characters with which a command is one for the shell.
const FOR_SHELL: &[char] =
    &['|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', ' ', '\t', '*', '?', '[', '#', '~', '='];

/// The command that the user wants, if there is a terminal that it can work on.
pub fn wanted() -> Option<String> {
    let terminal = env::var("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || terminal.is_empty() || terminal == "dumb" {
        return None;
    }
    let command = ["CALLTAP_PAGER", "PAGER"].iter().find_map(|name| env::var(name).ok());
    let command = command.unwrap_or_else(|| "less".to_owned());
    Some(command.trim().to_owned()).filter(|command| !command.is_empty() && command != "cat")
}

/// A pager, which begins with the first thing to show.
pub struct Pager<W> {
    command: String,
    /// What is written to where the pager cannot be started.
    plain: W,
    state: State,
}

enum State {
    Waiting,
    Runs(Child, Option<ChildStdin>),
    Missing,
}

impl<W: Write> Pager<W> {
    /// By this command; or as it would be without.
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
                // Ctrl-C is for the pager: calltap ends when that does.
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
    /// All was said: waits until it is read.
    fn drop(&mut self) {
        if let State::Runs(child, input) = &mut self.state {
            drop(input.take());
            let _ = child.wait();
        }
    }
}
