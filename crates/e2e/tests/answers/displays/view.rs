//! `calltap view` of a trace and of a process: which clients may read the page, its contents, and
//! its effect on a running process.

use calltap_e2e::{
    GCC, HANGS, Resident, Run, Server, State, calltap, calltap_run, changed_text, compile, ends_within, have,
    jumps, kill, one_line, rows_of, run_timeout, skipped, source, succeeds, trace_of_naps, wait_until,
};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// A page that is served.
pub(super) struct View {
    server: Server,
    pub(super) address: String,
}

impl View {
    /// Starts the server, and waits until it has printed the address.
    fn start(arguments: &[&str]) -> View {
        let mut command = Command::new(calltap());
        command.arg("view").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("calltap");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("an address");
        assert!(address.starts_with("http://127.0.0.1:") && address.ends_with("/\n"), "{address:?}");
        View { server: Server(child), address: address.trim().to_owned() }
    }

    /// Serves a file, and waits until all of it is read; before, the page answers only how far it
    /// is.
    pub(super) fn of_file(path: &str) -> View {
        View::of_files(&[path])
    }

    /// Serves a file with these arguments, as [`View::of_file`] does.
    pub(super) fn of_files(arguments: &[&str]) -> View {
        let view = View::start(arguments);
        wait_until("all events", || {
            let (progress, (status, body)) = (view.get("api/progress"), view.ask("GET", "api/summary"));
            assert!(status == 200 || status == 503 && body.contains("not all read yet"), "{status} {body}");
            assert!(progress != Value::Null || status == 200, "{status} {body}");
            progress == Value::Null
        });
        view
    }

    /// Returns host and port, and the path of the page.
    fn parts(&self) -> (&str, &str) {
        let rest = self.address.strip_prefix("http://").expect("http");
        rest.split_at(rest.find('/').expect("a path"))
    }

    /// Returns status and body of a path below the page's.
    pub(super) fn ask(&self, method: &str, name: &str) -> (u16, String) {
        let (host, path) = self.parts();
        ask(host, method, &format!("{path}{name}"))
    }

    pub(super) fn get(&self, name: &str) -> Value {
        let (status, body) = self.ask("GET", name);
        assert_eq!(status, 200, "{name}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{name}: {error}: {body}"))
    }

    pub(super) fn end(mut self) -> ExitStatus {
        kill(self.server.0.id(), libc::SIGINT);
        self.has_ended()
    }

    /// Waits for the server's end.
    fn has_ended(&mut self) -> ExitStatus {
        ends_within(&mut self.server.0, HANGS).expect("its end")
    }
}

fn ask(host: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).expect("the server");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .expect("a question");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    // Long answers are sent in chunks.
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole += &after[..size];
        rest = after.get(size + 2..).unwrap_or_default();
    }
    (status, whole)
}

/// Checks that calltap has left nothing behind, and that the program ends well.
fn whole(resident: Resident, before: &State) {
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let after = State::of(resident.pid, &["State"]);
    assert_eq!((&after.files, &after.threads), (&before.files, &before.threads));
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status}: {output}{errors}");
}

#[test]
fn page_equals_report() {
    let (_program, path) = trace_of_naps();
    let view = View::of_file(&path);
    let (status, page) = view.ask("GET", "");
    assert!(status == 200 && page.contains("<title>calltap</title>"), "{status} {page}");
    let report = calltap_run(&["report", "-i", &path, "--format", "json"]);
    let report = Value::from(rows_of(&report.stdout));
    let rows = |value: &Value, keys: [&str; 4]| -> Vec<String> {
        let mut rows: Vec<String> = value
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| {
                keys.map(|key| key.parse::<usize>().map_or(&row[key], |at| &row[at]).to_string()).join(" ")
            })
            .collect();
        rows.sort();
        rows
    };
    let expected = rows(&report, ["function", "calls", "total_ns", "self_ns"]);
    assert_eq!(rows(&view.get("api/functions"), ["1", "3", "4", "5"]), expected);
    let summary = view.get("api/summary");
    let thread = &summary["threads"][0];
    assert_eq!((&summary["lost"], &thread["depth"]), (&Value::from(0), &Value::from(3)), "{summary}");
    // At a coarse and at a fine resolution: all calls of `leaf`, at the third level.
    let leaf = report.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "leaf"));
    let nap = report.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "nap"));
    let calls = leaf.and_then(|row| row["calls"].as_u64()).zip(nap.and_then(|row| row["calls"].as_u64()));
    let calls = calls.map(|(leaf, nap)| leaf + nap);
    let end = summary["end"].as_u64().expect("an end");
    for resolution in [end / 100, end / 10_000, 0] {
        let question =
            format!("api/timeline?from=0&to={end}&resolution={resolution}&lanes={}.2.2", thread["id"]);
        let lanes = view.get(&question);
        let track = lanes[0]["tracks"][0].as_array().expect("a track");
        let drawn: u64 = track.chunks(7).filter_map(|block| block[3].as_u64()).sum();
        assert_eq!(Some(drawn), calls, "{question}");
    }
    assert!(view.end().success(), "Ctrl-C is a good end");
}

#[test]
fn page_is_served_during_reading_until_view_is_ended() {
    let program = compile(GCC, &["threads.c"], &["-pthread"]);
    let path = program.directory().join("big.data").display().to_string();
    let recorded = calltap_run(&["record", "-o", &path, "--", &program.path.display().to_string(), "busy"]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let info = calltap_run(&["info", "-i", &path, "--format", "json"]).stdout;
    let info: Value = serde_json::from_str(&info).expect("JSON");
    let all = info["events"].as_u64();
    assert!(all > Some(100_000), "{info}");
    let view = View::start(&[&path]);
    assert_eq!(view.ask("GET", "").0, 200);
    // The file may be read completely by now, or not.
    let progress = view.get("api/progress");
    let (done, events) = (progress["done"].as_u64(), progress["events"].as_u64());
    assert!(progress == Value::Null || done <= events && events == all, "{progress}");
    assert!(view.end().success());
    let view = View::of_file(&path);
    assert_eq!(view.get("api/summary")["events"].as_u64(), all);
    assert!(view.end().success());
}

#[test]
fn view_serves_only_clients_with_token_on_loopback() {
    let (_program, path) = trace_of_naps();
    let view = View::of_file(&path);
    let (host, page) = view.parts();
    let token = page.trim_matches('/');
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    let wrong = token.replace(|c| c == token.chars().next().unwrap_or('0'), "x");
    for path in [
        "/",
        "/api/summary",
        &format!("/{token}"),
        &format!("/{wrong}/"),
        &format!("//{token}/"),
        "/../etc/passwd",
    ] {
        let (status, body) = ask(host, "GET", path);
        assert_eq!(status, 404, "{path}: {body}");
        assert!(!body.contains("paced") && !body.contains(token), "{path}: {body}");
    }
    // The server listens on no other address.
    let port: u16 = host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let listens = |line: &&str| line.contains(&format!(":{port:04X} 00000000:0000 0A"));
    let tcp = fs::read_to_string("/proc/net/tcp").expect("the kernel's list");
    assert!(tcp.lines().filter(listens).all(|line| line.contains(" 0100007F:")), "{tcp}");
    let again = View::start(&[&path]);
    assert_ne!(again.parts().1, page, "another token each time");
    assert!(again.end().success() && view.end().success());
}

#[test]
fn questions_that_make_no_sense_are_refused_and_the_others_answered_on() {
    let (_program, path) = trace_of_naps();
    let view = View::of_file(&path);
    for (method, name, status) in [
        ("GET", "api/nothing", 404),
        ("GET", "page.html", 404),
        ("GET", "../../etc/passwd", 404),
        ("GET", "api/timeline", 400),
        ("GET", "api/timeline?from=-1&to=5&resolution=0&lanes=0.0.0", 400),
        ("GET", "api/timeline?from=0&to=99999999999999999999999&resolution=0", 400),
        ("GET", "api/timeline?from=0&to=5&resolution=0&lanes=0", 400),
        ("GET", "api/function?f=4000000000", 404),
        ("GET", "api/calls?f=0&bar=1000", 404),
        ("GET", "api/flame?root=x", 400),
        ("GET", "api/switch?f=0&on=1", 405),
        ("POST", "api/summary", 405),
        ("POST", "api/switch?f=0&on=1", 409),
        ("POST", "", 404),
    ] {
        let (got, body) = view.ask(method, name);
        assert_eq!(got, status, "{method} {name}: {body}");
    }
    // Ranges beyond the end are empty, not errors.
    let far = u64::MAX;
    view.get(&format!("api/timeline?from={far}&to=0&resolution=0&lanes=0.0.4294967295,77.0.3"));
    view.get("api/overview?columns=18446744073709551615");
    assert_eq!(view.get("api/next?f=0&at=18446744073709551615"), Value::Null);
    // Bytes that are not a request, and browsers that disconnect in the middle of one.
    let host = view.parts().0;
    for bytes in [
        &b"\0\xff\r\n\r\n"[..],
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n",
    ] {
        for _ in 0..8 {
            let mut stream = TcpStream::connect(host).expect("the server");
            // The server closes connections beyond its limit, perhaps before this is written.
            let _ = stream.write_all(bytes);
        }
    }
    for _ in 0..20 {
        let mut stream = TcpStream::connect(host).expect("the server");
        let _ = write!(stream, "GET {}api/functions HTTP/1.1\r\nHost: x\r\n\r\n", view.parts().1);
    }
    assert_eq!((view.get("api/live"), view.get("api/progress")), (Value::Null, Value::Null));
    assert!(view.end().success());
}

#[test]
fn view_reports_errors_in_one_line() {
    let (program, path) = trace_of_naps();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its number").port().to_string();
    one_line(&calltap_run(&["view", &path, "--port", &port]), &[&port, "in use"]);
    one_line(&calltap_run(&["view", &path, "--port", "70000"]), &["--port", "'70000'"]);
    for words in [&["/nonexistent.data"][..], &["-i", "/nonexistent.data"]] {
        one_line(&calltap_run(&[&["view"], words].concat()), &["/nonexistent.data"]);
    }
    let text = program.directory().join("text");
    fs::write(&text, "this is no trace").expect("a file");
    one_line(&calltap_run(&["view", &text.display().to_string()]), &["text"]);
    one_line(&calltap_run(&["view", &path, "-p", "1"]), &["exclude each other"]);
    one_line(&calltap_run(&["view", "-p", "1", "--save", "x.html"]), &["--save", "calltap record -p 1"]);
    one_line(&calltap_run(&["view", &path, "--save", "/no/such/place"]), &["/no/such/place"]);
    one_line(&calltap_run(&["view", "-p", "4194305"]), &["process 4194305: no such process"]);
    one_line(&calltap_run(&["tui", &path]), &["needs a terminal"]);
    // A truncated file is shown up to its end.
    let bytes = fs::read(&path).expect("the trace");
    fs::write(&text, &bytes[..bytes.len() - 40]).expect("a file");
    let view = View::of_file(&text.display().to_string());
    assert_ne!(view.get("api/summary")["notes"].as_array().map(Vec::len), Some(0));
    assert!(view.end().success());
}

#[test]
fn a_window_has_functions_and_call_paths_of_its_own() {
    let (_program, path) = trace_of_naps();
    let view = View::of_file(&path);
    let end = view.get("api/summary")["end"].as_u64().expect("an end");
    let calls = |rows: &Value, name: &str| -> u64 {
        let rows = rows.as_array().into_iter().flatten();
        rows.filter(|row| row[1] == name).filter_map(|row| row[3].as_u64()).sum()
    };
    let all = view.get("api/functions");
    let lap = all.as_array().into_iter().flatten().find(|row| row[1] == "lap").expect("lap")[0].clone();
    let [first, second] = [(0, end / 2), (end / 2, end + 1)].map(|(from, to)| {
        let functions = view.get(&format!("api/functions?from={from}&to={to}"));
        let flame = view.get(&format!("api/flame?root=0&from={from}&to={to}"));
        let boxes = flame["boxes"].as_array().expect("boxes").clone();
        let drawn: u64 = boxes.iter().filter(|b| b[1] == lap).filter_map(|b| b[5].as_u64()).sum();
        assert_eq!(drawn, calls(&functions, "lap"), "{flame}");
        calls(&functions, "leaf")
    });
    // A call that spans the middle is in both halves.
    let whole = calls(&all, "leaf");
    assert!(first < whole && second < whole, "{first} and {second} of {whole}");
    // The page's times are those of other commands.
    let begin = view.get("api/summary")["begin"].as_u64().expect("a begin");
    let calls = calltap_run(&["replay", "--time", "relative", "-n", "5", &path]).stdout;
    let stamp = format!("{}.{:06} ", begin / 1_000_000_000, begin / 1000 % 1_000_000);
    assert!(begin > 0 && calls.contains(&stamp), "{begin}: {calls}");
    assert!((whole..=whole + 1).contains(&(first + second)), "{first} and {second} of {whole}");
    let (status, why) = view.ask("GET", "api/functions?from=9");
    assert!(status == 400 && why.contains("'to'"), "{status} {why}");
    assert!(view.end().success());
}

/// Returns a browser that can be driven, if one is installed.
pub(super) fn browser() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| have(name));
    if found.is_none() || !have("node") {
        skipped("the page of 'calltap view' in a browser: no chromium, or no node");
        return None;
    }
    found
}

/// Returns a command that uses the page in a browser.
pub(super) fn drive(address: &str, browser: &str, what: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(source("page.mjs")).args([address, browser, what]);
    command
}

#[test]
fn page_is_operated_by_keys_in_browser() {
    let Some(browser) = browser() else { return };
    let (program, path) = trace_of_naps();
    let view = View::of_file(&path);
    let mut command = drive(&view.address, browser, "file");
    command.env("TMPDIR", program.directory());
    let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
    assert!(status.success(), "{stdout}{stderr}");
    assert!(view.end().success());
}

#[test]
fn a_saved_page_is_used_in_the_same_way_without_calltap() {
    let Some(browser) = browser() else { return };
    let (program, path) = trace_of_naps();
    let page = program.directory().join("page.html");
    let saved = calltap_run(&["view", &path, "--save", &page.display().to_string()]);
    assert!(saved.status.success() && saved.stderr.lines().count() == 1, "{}", saved.stderr);
    assert!(saved.stderr.contains("every call is in it; details of all functions"), "{}", saved.stderr);
    let size = fs::metadata(&page).expect("the page").len();
    assert!((100_000..1_000_000).contains(&size), "{size} bytes");
    // A saved page does not ask questions that it has no answer for.
    fs::remove_file(&path).expect("the trace");
    let mut command = drive(&format!("file://{}", page.display()), browser, "saved");
    command.env("TMPDIR", program.directory());
    let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
    assert!(status.success(), "{stdout}{stderr}");
}

#[test]
fn saved_page_states_its_resolution() {
    let program = compile(GCC, &["threads.c"], &["-pthread"]);
    let path = program.directory().join("big.data").display().to_string();
    let recorded = calltap_run(&["record", "-o", &path, "--", &program.path.display().to_string(), "busy"]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let page = program.directory().join("page.html");
    let saved = calltap_run(&["view", &path, "--save", &page.display().to_string()]);
    assert!(saved.stderr.contains("of each other are one block"), "{}", saved.stderr);
    let text = fs::read_to_string(&page).expect("the page");
    assert!(text.len() < 16_000_000, "{} bytes", text.len());
    let data = text.rsplit_once("id=\"saved\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let data: Value = serde_json::from_str(data.expect("its data").0).expect("JSON");
    // All calls of the table are in the blocks.
    let functions = data["functions"].as_array().expect("functions");
    let called: u64 = functions.iter().filter_map(|row| row[3].as_u64()).sum();
    let lanes = data["lanes"].as_array().expect("lanes");
    let tracks = lanes.iter().flat_map(|lane| lane["tracks"].as_array().into_iter().flatten());
    let blocks = tracks.flat_map(|track| track.as_array().expect("blocks").chunks(7));
    let drawn: u64 = blocks.filter_map(|block| block[3].as_u64()).sum();
    assert_eq!((drawn, &data["exact"]), (called, &Value::from(false)));
    let notes = data["summary"]["notes"].to_string();
    assert!(notes.contains("A saved page: calls within"), "{notes}");
}

#[test]
fn in_a_browser_a_click_switches_a_function_of_a_running_process() {
    let Some(browser) = browser() else { return };
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let before = State::at_rest(resident.pid, &["State"]);
    let view =
        View::start(&["-p", &resident.pid.to_string(), "--max-overhead", "none", "--interval", "200ms"]);
    let all = jumps(resident.pid);
    let mut command = drive(&view.address, browser, "live");
    command.env("TMPDIR", program.directory()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("node");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!((line.as_str(), jumps(resident.pid)), ("off\n", all - 1));
    child.stdin.take().expect("piped").write_all(b"on\n").expect("its input");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("its output");
    assert_eq!((rest.as_str(), jumps(resident.pid)), ("fine\n", all));
    succeeds(&mut child);
    assert!(view.end().success());
    whole(resident, &before);
}

#[test]
fn view_shows_running_process_and_detaches() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let before = State::at_rest(resident.pid, &["State"]);
    let empty = resident.directory.join("empty");
    fs::create_dir(&empty).expect("a directory");
    let pid = resident.pid.to_string();
    let view = View::start(&["-p", &pid, "--max-overhead", "none", "--interval", "100ms"]);
    let row = |name: &str| {
        let live = view.get("api/live");
        live["rows"].as_array().and_then(|rows| rows.iter().find(|row| row[1] == name).cloned())
    };
    wait_until("leaf", || row("leaf").is_some_and(|row| row[3].as_f64() > Some(0.0)));
    wait_until("its calls", || {
        let functions = view.get("api/functions?fresh=1");
        functions
            .as_array()
            .is_some_and(|all| all.iter().any(|f| f[1] == "leaf" && f[3].as_u64() > Some(100)))
    });
    let all = jumps(resident.pid);
    let leaf = row("leaf").expect("a row")[0].to_string();
    for (on, jumping) in [(0, all - 1), (1, all)] {
        assert_eq!(view.ask("POST", &format!("api/switch?f={leaf}&on={on}")).0, 200);
        wait_until("its site", || jumps(resident.pid) == jumping);
    }
    assert_eq!(view.ask("POST", "api/switch?f=99999&on=0").0, 404);
    assert_eq!(fs::read_dir(&empty).expect("the directory").count(), 0);
    assert!(view.end().success());
    whole(resident, &before);
}

#[test]
fn a_page_that_is_not_looked_at_leaves_the_process() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let before = State::at_rest(resident.pid, &["State"]);
    let mut view = View::start(&["-p", &resident.pid.to_string(), "--idle", "1ms"]);
    assert!(view.has_ended().success());
    whole(resident, &before);
}

#[test]
fn view_shows_last_calls_after_process_end() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let view = View::start(&["-p", &resident.pid.to_string(), "--interval", "50ms"]);
    wait_until("a call", || view.get("api/functions?fresh=1").as_array().is_some_and(|all| !all.is_empty()));
    assert!(resident.end().0.success());
    wait_until("its end", || view.get("api/live")["ended"] == true);
    assert!(view.get("api/functions?fresh=1").as_array().is_some_and(|all| !all.is_empty()));
    assert!(view.end().success());
}

#[test]
fn the_page_shows_each_of_several_processes() {
    let program = compile(GCC, &["paced.c"], &[]);
    let residents = [Resident::start(&program, &[]), Resident::start(&program, &[])];
    let [first, second] = residents.each_ref().map(|resident| resident.pid);
    let list = format!("{first},{second}");
    let view = View::start(&["-p", &list, "--max-overhead", "none", "--interval", "100ms"]);
    assert_eq!(view.get("api/processes"), json!([[first, "paced"], [second, "paced"]]));
    let leaf = |pid: u32| {
        let live = view.get(&format!("api/live?process={pid}"));
        let row = live["rows"].as_array().and_then(|rows| rows.iter().find(|row| row[1] == "leaf").cloned());
        row.map(|row| row[0].to_string())
    };
    wait_until("leaf", || leaf(first).is_some() && leaf(second).is_some());
    let title = view.get(&format!("api/summary?fresh=1&process={second}"))["title"].clone();
    assert_eq!(title, format!("paced ({second})"));
    let all = [first, second].map(jumps);
    let switch = format!("api/switch?f={}&on=0&process={second}", leaf(second).unwrap_or_default());
    assert_eq!(view.ask("POST", &switch).0, 200);
    wait_until("its site", || [first, second].map(jumps) == [all[0], all[1] - 1]);
    assert_eq!(view.ask("GET", "api/live?process=1").0, 404);
    if let Some(browser) = browser() {
        let mut command = drive(&view.address, browser, "several");
        command.env("TMPDIR", program.directory());
        let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
        assert!(status.success(), "{stdout}{stderr}");
    }
    assert!(view.end().success());
    assert!([first, second].iter().all(|pid| changed_text(*pid).is_empty()));
    for resident in residents {
        assert!(resident.end().0.success());
    }
}
