//! Tasks of the how-to pages, on programs as distributions ship them: stripped, unmodified, several
//! processes, scripts.

use calltap_e2e::{calltap_run, changed_text, have, rows_of, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, JoinHandle};

/// nginx, and a client that requests a page continuously.
pub struct Nginx {
    master: Child,
    over: Arc<AtomicBool>,
    client: Option<JoinHandle<()>>,
    directory: tempfile::TempDir,
}

impl Nginx {
    /// Starts nginx with some workers. Of its pages, `/` is answered at once, `/late` in a second.
    pub fn start(workers: usize, page: &'static str) -> Nginx {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().display().to_string();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let configuration = format!(
            "daemon off; user root; worker_processes {workers}; pid {place}/pid; error_log {place}/errors;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
             server {{ listen {free}; root {place}; location /late {{ limit_rate 400; }} }} }}\n"
        );
        fs::write(directory.path().join("index.html"), "a page\n").expect("a file");
        // With its header it is longer than what nginx sends in a second.
        fs::write(directory.path().join("late"), "late ".repeat(70)).expect("a file");
        fs::write(directory.path().join("conf"), configuration).expect("a file");
        let mut command = Command::new("nginx");
        command
            .args(["-p", &place, "-c", &format!("{place}/conf")])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let master = command.spawn().expect("nginx");
        wait_until("nginx", || TcpStream::connect(free).is_ok());
        let over = Arc::new(AtomicBool::new(false));
        let client = {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                while !over.load(Acquire) {
                    let Ok(mut stream) = TcpStream::connect(free) else { continue };
                    let _ = stream.write_all(format!("GET {page} HTTP/1.0\r\n\r\n").as_bytes());
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            })
        };
        let nginx = Nginx { master, over, client: Some(client), directory };
        wait_until("its workers", || nginx.workers().len() == workers);
        nginx
    }

    /// Returns the process id of the master.
    pub fn pid(&self) -> u32 {
        self.master.id()
    }

    /// Returns the process ids of the workers.
    pub fn workers(&self) -> Vec<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = fs::read_to_string(children).expect("children");
        children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
    }

    /// Returns the objects that a command prints, one for each process.
    fn ask(&self, words: &[&str]) -> Vec<Value> {
        let pid = self.pid().to_string();
        let flags = ["-p", &pid, "--children", "--duration", "1", "--json"];
        let run = calltap_run(&[words, &flags].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.over.store(true, Release);
        let _ = self.client.take().map(JoinHandle::join);
        let _ = Pid::from_raw(self.master.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.master.wait();
    }
}

#[test]
fn requests_of_nginx_are_found_in_its_workers() {
    if !have("nginx") {
        return;
    }
    let nginx = Nginx::start(2, "/");
    let counted = nginx.ask(&["count", "ngx_http_process_request"]);
    let calls = |object: &Value| object["functions"][0]["calls"].as_u64().unwrap_or(0);
    assert_eq!(counted.len(), 3, "a master and two workers: {counted:?}");
    assert!(counted.iter().map(calls).sum::<u64>() > 0, "{counted:?}");
    let master = counted.iter().find(|object| object["pid"] == nginx.pid());
    assert_eq!(master.map(calls), Some(0), "{counted:?}");
    // In an event loop no single call spans a request.
    let spans = nginx.ask(&["span", "ngx_http_process_request@arg1", "..", "ngx_http_finalize_request@arg1"]);
    let count = |object: &Value| object["spans"].as_u64().unwrap_or(0);
    assert!(spans.iter().map(count).sum::<u64>() > 0, "{spans:?}");
    for object in &counted {
        let pid = object["pid"].as_u64().expect("a number") as u32;
        assert!(changed_text(pid).is_empty(), "{pid}");
    }
    assert!(!nginx.directory.path().join("errors").metadata().is_ok_and(|meta| meta.len() > 100_000));
}

#[test]
fn a_script_is_recorded_by_its_interpreter() {
    if !fs::exists("/usr/bin/python3").unwrap_or(false) {
        calltap_e2e::skipped("a script of Python: no /usr/bin/python3");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let [script, trace] = ["app.py", "trace"].map(|name| directory.path().join(name));
    fs::write(&script, "#!/usr/bin/python3\nprint(sum(len(str(n)) for n in range(1000)))\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let (script, trace) = (script.display().to_string(), trace.display().to_string());
    let run = calltap_run(&["record", "-o", &trace, "-F", "PyObject_*", "--", &script]);
    assert!(run.status.success() && run.stdout == "2890\n", "{} {}", run.stdout, run.stderr);
    let report = calltap_run(&["report", &trace]).stdout;
    assert!(report.contains("PyObject_Str"), "{report}");
}

#[test]
fn a_stripped_git_is_recorded_and_its_functions_can_be_named() {
    if !have("git") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    let git = |words: &[&str]| {
        let done = Command::new("git").args(["-C", &place]).args(words).output().expect("git");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "the first"]);
    let [trace, answer] = ["trace", "answer"].map(|name| directory.path().join(name).display().to_string());
    let log = ["git", "-C", &place, "log", "--format=%s"];
    let run = calltap_run(&[&["record", "-o", &trace, "--"], &log[..]].concat());
    assert!(run.status.success() && run.stdout == "the first\n", "{} {}", run.stdout, run.stderr);
    let rows = rows_of(&calltap_run(&["report", &trace, "--json"]).stdout);
    assert!(rows.len() > 20, "{} functions", rows.len());
    // The names of a table can be used in questions.
    let name = rows[0]["function"].as_str().expect("a name");
    let run = calltap_run(&[&["count", name, "--json", "-o", &answer, "--"], &log[..]].concat());
    assert!(run.status.success(), "{name}: {}", run.stderr);
    let answer: Value = serde_json::from_str(&fs::read_to_string(&answer).expect("an answer")).expect("JSON");
    assert_eq!(answer["functions"][0]["calls"], rows[0]["calls"], "{name}: {answer}");
}

#[test]
fn programs_with_almost_no_code_name_their_library() {
    let directory = tempfile::tempdir().expect("a directory");
    let build = |words: &[&str]| {
        let done = Command::new("gcc").args(words).current_dir(directory.path()).output().expect("gcc");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let library = "__asm__(\".text\\n.skip 1 << 20, 0x90\");\nint work(int n) { return n + 1; }\n";
    fs::write(directory.path().join("work.c"), library).expect("a file");
    let main = "int work(int);\nint main(void) { return work(41) - 42; }\n";
    fs::write(directory.path().join("starter.c"), main).expect("a file");
    build(&["-O2", "-shared", "-fPIC", "-o", "libwork.so", "work.c"]);
    build(&["-O2", "-o", "starter", "starter.c", "-L.", "-lwork", "-Wl,-rpath,$ORIGIN"]);
    let [program, trace] = ["starter", "trace"].map(|name| directory.path().join(name).display().to_string());
    let run = calltap_run(&["record", "-o", &trace, "--", &program]);
    assert!(run.status.success(), "{}", run.stderr);
    let hint =
        "starter contains almost no code: most is in libwork.so; to trace that: -F 'libwork:*' --later";
    assert!(run.stderr.contains(hint), "{}", run.stderr);
    let run = calltap_run(&["record", "-o", &trace, "-F", "libwork:*", "--later", "--", &program]);
    assert!(run.status.success() && run.stderr.contains(" functions on, in libwork.so"), "{}", run.stderr);
}
