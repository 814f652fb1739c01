//! A terminal to run calltap on.

use crate::attached::changed_text;
use crate::run::calltap;
use crate::wait::wait_until;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A terminal with calltap on it.
pub struct Terminal {
    /// Whose keys and screen they are.
    pub controller: File,
    /// Kept, so that it can be asked how it is.
    pub terminal: File,
    shown: Arc<Mutex<String>>,
    /// calltap.
    pub child: Child,
}

impl Terminal {
    /// Runs calltap on a terminal of twelve rows.
    pub fn start(arguments: &[&str]) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("the right to it");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_owned();
        let terminal = File::options().read(true).write(true).open(name).expect("its other end");
        tcsetwinsize(&terminal, Winsize { ws_row: 12, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let end = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        let mut command = Command::new(calltap());
        command.args(arguments);
        let child = command.stdin(end()).stdout(end()).stderr(Stdio::null()).spawn().expect("calltap");
        let controller = File::from(controller);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut output, text) = (controller.try_clone().expect("a descriptor"), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                *text.lock().unwrap() += &String::from_utf8_lossy(&bytes[..n]);
            }
        });
        Terminal { controller, terminal, shown, child }
    }

    /// Waits until this is drawn.
    pub fn wait_for(&self, what: &str) {
        wait_until(what, || self.shown.lock().unwrap().contains(what));
    }

    /// Waits until the program leaves its page for what the terminal showed before.
    pub fn wait_for_leave(&self) {
        self.wait_for("\x1b[?1049l");
    }

    /// Forgets what was drawn, and presses keys.
    pub fn press(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.controller.write_all(keys.as_bytes()).expect("keys");
    }

    /// Do keys come one by one?
    pub fn is_raw(&self) -> bool {
        use rustix::termios::LocalModes;
        !tcgetattr(&self.terminal).expect("its modes").local_modes.contains(LocalModes::ICANON)
    }
}

/// Sites that lead away.
pub fn jumps(pid: u32) -> usize {
    changed_text(pid).iter().filter(|change| change.contains(": [e9")).count()
}
