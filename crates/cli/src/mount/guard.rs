//! A process that does nothing but wait for the end of calltap: if calltap is killed, it unmounts the directory.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// While it exists, a process looks after the mount.
pub struct Guard(Option<Child>);

impl Guard {
    /// For a directory that is mounted.
    pub fn new(place: &Path) -> Guard {
        // The pipe it reads from ends with calltap. It is a shell, so that it holds nothing of calltap's: not the mount's own file either.
        let script = "trap '' HUP INT QUIT TERM; read -r end; [ \"$end\" = over ] || umount -l \"$0\" 2>/dev/null || fusermount3 -uz \"$0\" 2>/dev/null";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(place).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        use std::os::unix::process::CommandExt;
        // Without a shell, the mount stays if calltap is killed.
        Guard(command.process_group(0).spawn().ok())
    }

    /// It is unmounted: there is nothing to look after any more.
    pub fn dismiss(mut self) {
        self.end(b"over\n");
    }

    fn end(&mut self, word: &[u8]) {
        let Some(mut child) = self.0.take() else { return };
        if let Some(mut input) = child.stdin.take() {
            let _ = input.write_all(word);
        }
        let _ = child.wait();
    }
}

impl Drop for Guard {
    /// Open files stay open, but nothing stays mounted.
    fn drop(&mut self) {
        self.end(b"");
    }
}
