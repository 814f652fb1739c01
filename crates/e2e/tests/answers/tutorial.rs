//! The tutorial: its commands have the results that it describes, on the server that it uses.

use calltap_e2e::{await_that, calltap, have};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The port and the process id of the server in the text.
const PORT: &str = "7777";
const PID: &str = "4711";

/// Texts in the output of each command.
const FOUND: [&[&str]; 5] = [
    &["  keysCommand  ", "  <- call"],
    &["call: "],
    &["events of slow calls"],
    &["keysCommand"],
    &["stringmatchlen(arg1=\"user:1999*\", arg3=\"user:"],
];

/// The server and its clients, started as the tutorial starts them, and ended on drop.
struct Busy {
    port: String,
    clients: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Busy {
    fn start(text: &str) -> Busy {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let directory = tempfile::tempdir().expect("a directory");
        let mut busy = Busy { port: free.port().to_string(), clients: Vec::new(), directory };
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let line = line.replace(PORT, &busy.port);
            if !line.starts_with("redis-") && !line.starts_with("while ") {
                continue;
            }
            match line.strip_suffix(" &") {
                Some(line) => busy.clients.push(busy.shell(line).stdout(Stdio::null()).spawn().expect("sh")),
                None => drop(busy.output(&line)),
            }
            // The daemon's first process ends before the server listens.
            if line.starts_with("redis-server") {
                let port = busy.port.parse::<u16>().expect("a number");
                await_that("redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
            }
        }
        assert_eq!(busy.clients.len(), 2);
        busy
    }

    /// Returns a command of the tutorial, in a process group of its own. `calltap` is the one under
    /// test.
    fn shell(&self, line: &str) -> Command {
        let line = line.replacen("calltap ", &format!("{} ", calltap().display()), 1);
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(self.directory.path()).process_group(0);
        command
    }

    fn output(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = self.shell(line).output().expect("sh");
        let said = [stdout, stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(status.success(), "{line}: {status}: {said}");
        said
    }

    fn pid(&self) -> String {
        let info = self.output(&format!("redis-cli -p {} info server", self.port));
        let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("its id");
        pid.trim().to_owned()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for client in &mut self.clients {
            if let Some(group) = Pid::from_raw(client.id() as i32) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = client.wait();
        }
        let _ = self.shell(&format!("redis-cli -p {} shutdown nosave", self.port)).output();
    }
}

#[test]
fn the_tutorial_s_five_commands_find_the_slow_request() {
    if !have("redis-server") || !have("redis-benchmark") {
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let text = fs::read_to_string(file).expect("the tutorial");
    let busy = Busy::start(&text);
    let pid = busy.pid();
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    $ ")).collect();
    assert_eq!(commands.len(), FOUND.len(), "{commands:?}");
    let mut all = String::new();
    for (command, found) in commands.iter().zip(FOUND) {
        let mut said = busy.output(&command.replace(PID, &pid));
        // On a busy machine no slow call may be complete in these seconds: the command is repeated,
        // as the tutorial advises.
        for _ in 0..2 {
            if said.contains("calltap: 0 events of slow calls") {
                all += &said;
                said = busy.output(&command.replace(PID, &pid));
            }
        }
        all += &said;
        let finds = |line: &str| found.iter().all(|words| line.contains(words));
        assert!(said.lines().any(finds), "{command}: {all}");
    }
}
