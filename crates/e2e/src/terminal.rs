//! A pseudo-terminal on which calltap runs.

use crate::attached::changed_text;
use crate::run::calltap;
use crate::wait::wait_until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A pseudo-terminal with calltap on it.
pub struct Terminal {
    /// The controlling side, for keys and the screen.
    pub controller: File,
    /// The terminal side, kept open to read its modes.
    pub terminal: File,
    shown: Arc<Mutex<String>>,
    /// The process of calltap.
    pub child: Child,
    closed: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Runs calltap on a terminal of twelve rows.
    pub fn start(arguments: &[&str]) -> Terminal {
        Terminal::with(arguments, &[], false)
    }

    /// Runs calltap on a wider terminal, with these environment variables and with standard error
    /// on the terminal as well.
    pub fn whole(arguments: &[&str], environment: &[(&str, &str)]) -> Terminal {
        Terminal::with(arguments, environment, true)
    }

    fn with(arguments: &[&str], environment: &[(&str, &str)], whole: bool) -> Terminal {
        // Another test's program must not keep the terminal open.
        let controller =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("the right to it");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_owned();
        let terminal = File::options().read(true).write(true).open(name).expect("its other end");
        // Only a wide terminal has room for all columns of a table of `diff`.
        let ws_col = if whole { 200 } else { 100 };
        tcsetwinsize(&terminal, Winsize { ws_row: 12, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        let end = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        let mut command = Command::new(calltap());
        // Pager and colours are chosen by the test, not by the user's environment.
        command.env_remove("CALLTAP_PAGER").env_remove("LESS").env_remove("NO_COLOR");
        command.args(arguments).env("PAGER", "cat").envs(environment.iter().copied());
        let stderr = if whole { end() } else { Stdio::null() };
        let child = command.stdin(end()).stdout(end()).stderr(stderr).spawn().expect("calltap");
        let controller = File::from(controller);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut output, text) = (controller.try_clone().expect("a descriptor"), Arc::clone(&shown));
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !is_closed.load(Relaxed) {
                let mut readable = [PollFd::new(&output, PollFlags::IN)];
                if poll(&mut readable, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })) == Ok(0) {
                    continue;
                }
                let Ok(n @ 1..) = output.read(&mut bytes) else { return };
                *text.lock().unwrap() += &String::from_utf8_lossy(&bytes[..n]);
            }
        });
        Terminal { controller, terminal, shown, child, closed, reader }
    }

    /// Closes the terminal, as the end of an ssh connection does, and returns the process of
    /// calltap.
    pub fn close(self) -> Child {
        self.closed.store(true, Relaxed);
        self.reader.join().expect("its reader");
        self.child
    }

    /// Waits until a text is drawn.
    pub fn wait_for(&self, what: &str) {
        wait_until(what, || self.shown.lock().unwrap().contains(what));
    }

    /// Returns the text drawn so far.
    pub fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until the program leaves the alternate screen.
    pub fn wait_for_leave(&self) {
        self.wait_for("\x1b[?1049l");
    }

    /// Clears the text drawn so far, and presses keys.
    pub fn press(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.controller.write_all(keys.as_bytes()).expect("keys");
    }

    /// Whether keys are delivered one by one.
    pub fn is_raw(&self) -> bool {
        use rustix::termios::LocalModes;
        !tcgetattr(&self.terminal).expect("its modes").local_modes.contains(LocalModes::ICANON)
    }
}

/// Returns the number of enabled sites: those whose first byte is a jump's.
pub fn jumps(pid: u32) -> usize {
    changed_text(pid).iter().filter(|change| change.contains(": [e9")).count()
}
