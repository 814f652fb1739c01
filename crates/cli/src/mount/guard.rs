//! A helper process that waits for the end of calltap: if calltap is killed, it unmounts the
//! directory.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The helper process of a mount.
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts the helper for a mounted directory.
    pub fn new(place: &Path) -> Guard {
        // The pipe that the helper reads from ends with calltap. The helper is a shell, so that it
        // inherits nothing of calltap's, not even the file of the mount.
        let script = "trap '' HUP INT QUIT TERM; read -r end; [ \"$end\" = over ] || umount -l \"$0\" 2>/dev/null || fusermount3 -uz \"$0\" 2>/dev/null";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(place).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        use std::os::unix::process::CommandExt;
        // Without a shell, the mount stays if calltap is killed.
        Guard(command.process_group(0).spawn().ok())
    }

    /// Ends the helper after the directory was unmounted.
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
    /// Tells the helper to unmount the directory. Open files stay open.
    fn drop(&mut self) {
        self.end(b"");
    }
}
