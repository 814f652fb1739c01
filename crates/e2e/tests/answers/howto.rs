//! The how-to pages: each page's commands, in their order, have the results that the page describes
//! on real programs: servers, git, and Python as distributions ship them.
//!
//! The pages use a server of their own. Here its names are replaced by those of the real program; a
//! command that runs until Ctrl-C gets a duration.

mod servers;

use calltap_e2e::{Server, calltap, found_or_skipped, have, output_of, skipped, wait_until};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The process id in the pages.
const PID: &str = "4711";
/// Python as Debian ships it.
const PYTHON: &str = "/usr/bin/python3";

/// The expected result of a command: its exit status, and texts of its output.
type Result<'a> = (i32, &'a [&'a str]);

/// The commands of a page, and a directory in which they run.
struct Page {
    commands: Vec<String>,
    directory: tempfile::TempDir,
}

impl Page {
    /// Reads a page. In its commands, `swaps` replace the page's names by those of a program.
    fn new(name: &str, swaps: &[(&str, &str)]) -> Page {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to").join(name);
        let text = fs::read_to_string(file).expect("the page");
        let commands = text.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
        let swapped = |command: &str| {
            swaps.iter().fold(command.to_owned(), |command, (from, to)| {
                if text.contains(from) { command.replace(from, to) } else { panic!("no {from} in {name}") }
            })
        };
        let commands = commands.map(swapped).collect();
        Page { commands, directory: tempfile::tempdir().expect("a directory") }
    }

    /// Runs the commands, of a process if there is one, and checks their results.
    fn check(&self, pid: Option<u32>, results: &[Result<'_>]) {
        assert_eq!(self.commands.len(), results.len(), "{:?}", self.commands);
        let mut all = String::new();
        for (command, (code, found)) in self.commands.iter().zip(results) {
            let (command, comment) = command.split_once(" #").unwrap_or((command, ""));
            let is_endless = command.contains(PID) && !command.contains("--duration");
            let duration = if is_endless { " --duration 2" } else { "" };
            let pid = pid.map_or_else(|| PID.to_owned(), |pid| pid.to_string());
            let line = format!("{}{duration}", command.replace(PID, &pid));
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("calltap() {{ {} \"$@\"; }}; {line}", calltap().display())]);
            shell.current_dir(self.directory.path()).stdin(Stdio::null());
            let Output { status, stdout, stderr } = shell.output().expect("sh");
            let said = [stdout, stderr].concat();
            all += &format!("$ {line} #{comment}\n{}", String::from_utf8_lossy(&said));
            assert_eq!(status.code(), Some(*code), "{all}");
            let said = String::from_utf8_lossy(&said);
            found.iter().for_each(|words| assert!(said.contains(words), "{words:?}: {all}"));
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).expect("a file");
    }
}

/// Returns a running program, which ends with the test.
fn running(program: &str, arguments: &[&str]) -> Server {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Server(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// Whether Python is installed.
fn have_python() -> bool {
    found_or_skipped(Path::new(PYTHON).exists(), "how-to pages on Python: no /usr/bin/python3")
}

#[test]
fn the_page_about_allocations_finds_those_of_python() {
    if !have_python() {
        return;
    }
    // Objects of more than 512 bytes are malloc's.
    let program =
        "import time\nwhile True:\n  for n in range(600, 3000, 8): bytearray(n)\n  time.sleep(0.01)";
    let python = running(PYTHON, &["-S", "-c", program]);
    let page = Page::new("allocations.md", &[]);
    page.check(
        Some(python.0.id()),
        &[(0, &["  malloc", "  free"]), (0, &["\n    malloc\n", "    Py_RunMain\n"]), (0, &["malloc(arg1="])],
    );
}

#[test]
fn the_page_about_a_slow_request_finds_one_in_redis() {
    if !have("redis-server") || !have("redis-cli") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let (port, place) = (free.port().to_string(), directory.path().display().to_string());
    let flags = ["--port", &port, "--save", "", "--enable-debug-command", "yes", "--dir", &place];
    let redis = running("redis-server", &flags);
    wait_until("redis", || TcpStream::connect(free).is_ok());
    let requests = format!(
        "while :; do redis-cli -p {port} debug sleep 0.02; redis-cli -p {port} get key; sleep 0.01; done"
    );
    let mut client = running("sh", &["-c", &requests]);
    let swaps = [("handle_request", "call"), ("-p 4711 --duration 60s", "-p 4711 --duration 3s")];
    let page = Page::new("slow-request.md", &swaps);
    page.check(
        Some(redis.0.id()),
        &[
            (0, &["  call  ", "  <- processCommand"]),
            (0, &["call: ", "p99"]),
            (0, &["events of slow calls"]),
            (0, &["debugCommand"]),
        ],
    );
    let _ = client.0.kill();
}

#[test]
fn the_pages_about_the_start_and_the_crash_of_a_program() {
    if !have_python() {
        return;
    }
    let python = format!("{PYTHON} -S -c 'import os; os.getpid()'");
    let page = Page::new("startup.md", &[("./serve", &python)]);
    page.check(None, &[(0, &[" functions on, in "]), (0, &["Py_BytesMain", "TOTAL"])]);
    let crash = format!("{PYTHON} -S -c 'import os; os.abort()'");
    let page = Page::new("crash.md", &[("./serve", &crash)]);
    page.check(None, &[(134, &["crash.data.1"]), (0, &["();"])]);
}

#[test]
fn the_page_about_scripts_traces_one_and_its_interpreter() {
    if !have_python() {
        return;
    }
    let page = Page::new("interpreters.md", &[]);
    page.write("app.py", "import json\nprint(json.loads(json.dumps([str(n) for n in range(50)]))[7])\n");
    page.check(None, &[(0, &["7\n", " functions on, in python3"]), (0, &["7\n", "json"])]);
}

#[test]
fn the_page_about_a_gate_fails_a_build_that_calls_more() {
    if !have_python() {
        return;
    }
    let work = |calls: u32| format!("-F PyObject_Str -- {PYTHON} -S -c 'for n in range({calls}): str(n)'");
    let (old, new) = (work(200), work(400));
    let swaps = [
        ("-- ./base/serve 200", old.as_str()),
        ("-- ./change/serve 200", &new),
        ("p50(lookup)>1.5x", "p50(PyObject_Str)>1000000x"),
        ("calls(evict)>1x", "calls(PyObject_Str)>1x"),
    ];
    let page = Page::new("ci-gate.md", &swaps);
    page.check(None, &[(0, &[]), (3, &["calls(PyObject_Str)>1x: PyObject_Str has "])]);
}

#[test]
fn the_page_about_stripped_programs_names_a_function_of_git() {
    if !have("git") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    output_of("git", &["-C", &place, "init", "-q"]).expect("git");
    let path = output_of("which", &["git"]).expect("its path");
    let path = path.trim();
    let run = calltap_e2e::calltap_run(&["sites", path, "--format", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let rows = rows["functions"].as_array().or(rows.as_array()).expect("functions");
    let mut names =
        rows.iter().filter(|row| row["traceable"] == true).filter_map(|row| row["function"].as_str());
    let Some(name) = names.rfind(|name| name.contains("git+0x")) else {
        return skipped("a git without symbols");
    };
    let git = running("git", &["-C", &place, "cat-file", "--batch"]);
    let swaps = [("./serve.stripped", path), ("serve.stripped+0x1320", name)];
    let page = Page::new("stripped.md", &swaps);
    page.check(Some(git.0.id()), &[(0, &["git+0x"]), (0, &["1 function on, in git"])]);
}

#[test]
fn the_page_about_library_calls_lists_those_of_git() {
    if !have("git") {
        return;
    }
    let page = Page::new("library-calls.md", &[("./serve", "git init -q here"), ("-F strcmp", "-F strlen")]);
    page.check(None, &[(0, &[" functions on, in git"]), (0, &["CALLS"]), (0, &["callers of strlen"])]);
}

#[test]
fn the_page_about_things_left_open_finds_a_file_of_python() {
    if !have_python() {
        return;
    }
    let python = format!("{PYTHON} -S left.py");
    let page = Page::new("left-open.md", &[("./serve", &python)]);
    page.write("left.py", "import os\nfor n in range(9): os.open('left.py', os.O_RDONLY)\n");
    page.check(None, &[(0, &[" spans open, the oldest since "]), (0, &["    Py_RunMain\n", "    open64\n"])]);
}

#[test]
fn the_page_about_many_processes_shows_those_of_make() {
    if !have("make") {
        return;
    }
    let page = Page::new("many-processes.md", &[]);
    page.write("Makefile", "all: a b\na b: ; @sleep 0.01; echo $@\n");
    page.check(
        None,
        &[(0, &["processes, 0 lost"]), (0, &[" processes:\n", "make\n", "  sh\n"]), (0, &["THREAD"])],
    );
}

#[test]
fn every_page_has_a_test() {
    // `attach::containers` makes the containers of its page.
    let elsewhere = ["containers.md"];
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to")).expect("pages");
    for page in pages {
        let page = page.expect("a page").file_name().to_string_lossy().into_owned();
        let tests = [include_str!("howto.rs"), include_str!("howto/servers.rs")];
        let is_used = tests.iter().any(|tests| tests.contains(&format!("Page::new(\"{page}\"")));
        assert!(is_used || elsewhere.contains(&page.as_str()), "{page}");
    }
}

/// Returns the command lines in a document that begin with calltap, each without its comment and
/// what follows it in a pipe.
fn commands(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let indented = line.strip_prefix("    ").map(|line| line.trim_start().trim_start_matches("$ "));
        let quoted = line.split('`').skip(1).step_by(2);
        let found = match indented.filter(|line| line.starts_with("calltap ")) {
            Some(line) => vec![line],
            None => quoted.filter(|text| text.starts_with("calltap ")).collect(),
        };
        let until = |text: &str| {
            let ends = [" #", " | ", "; ", " < ", " &"].into_iter().filter_map(|end| text.find(end));
            text[..ends.min().unwrap_or(text.len())].trim().to_owned()
        };
        all.extend(found.into_iter().map(until).filter(|text| !text.contains("...")));
    }
    all
}

/// Returns the documents.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md")];
    for folder in ["docs", "docs/how-to", "docs/guides", "docs/reference", "docs/explanation"] {
        let files = fs::read_dir(root.join(folder)).expect("documents");
        let files = files.map(|file| file.expect("a document").path());
        all.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    all
}

/// Every command line in the documents is one that calltap understands: it is given to calltap with
/// a process that does not exist, in a directory without files.
#[test]
fn command_lines_in_documents_are_understood() {
    let empty = tempfile::tempdir().expect("a directory");
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document");
        for line in commands(&text) {
            let placeholder = ["PID", "4711", "$pid", "CHILD", "nginx", "postgres", "haproxy"];
            let is_run = [" -- python3", " -- /usr/bin/python3", " -- make", " install-completions"];
            // A line of two words names a command. The others would show the program's output.
            let is_mentioned = line.split_whitespace().count() < 3 || line.contains("COMMAND");
            if is_mentioned || is_run.iter().any(|part| line.contains(part)) {
                continue;
            }
            let words = output_of("bash", &["-c", &format!("printf '%s\\n' {}", line.replace('$', ""))]);
            let words = words.unwrap_or_else(|| panic!("{}: {line}", document.display()));
            let named = |word: &str| {
                if placeholder.contains(&word) || word == "pid" {
                    "4194304".to_owned()
                } else {
                    word.to_owned()
                }
            };
            let mut command = Command::new(calltap());
            command.args(words.lines().skip(1).map(named)).current_dir(&empty).env("CALLTAP_PAGER", "");
            let run = calltap_e2e::run(command, b"");
            let mistakes =
                ["no option of", "takes no such word", "unrecognized", "unexpected", "cannot be used"];
            let is_wrong = mistakes.iter().any(|mistake| run.stderr.contains(mistake));
            assert!(!is_wrong, "{}: {line}\n{}", document.display(), run.stderr);
            count += 1;
        }
    }
    assert!(count > 150, "{count} command lines");
}
