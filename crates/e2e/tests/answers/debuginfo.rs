//! Debugging files from a server: fetched on request, checked, cached, used; and the messages of
//! failures.

use calltap_e2e::{BARE, GCC, Program, calltap, calltap_run, compile, have, output_of, source};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Starts a server that answers requests for one path with some contents, and others with 404.
/// Returns its address.
fn serve(path: String, content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
            let request = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let is_there = request.split(' ').nth(1) == Some(&path);
            let (status, body) = if is_there { ("200 OK", &content[..]) } else { ("404 Not Found", &[][..]) };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // The client may have closed the connection.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    format!("http://{address}")
}

/// Returns a stripped program, its build-id, and its debugging file.
fn stripped() -> (Program, String, PathBuf) {
    let program = compile(&BARE[0], &["paced.c"], &["-g", "-Wl,--build-id"]);
    let (path, debug) = (program.path.to_string_lossy(), program.directory().join("debug"));
    let debug_path = debug.to_string_lossy();
    let done = output_of("objcopy", &["--only-keep-debug", &path, &debug_path]).is_some()
        && output_of("strip", &[&path]).is_some();
    assert!(done, "binutils make the files");
    let notes = output_of("readelf", &["-n", &path]).expect("notes");
    let id =
        notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build-id").to_owned();
    (program, id, debug)
}

/// Runs calltap with these servers and this cache. Returns both outputs, and whether it succeeded.
fn run(servers: &str, cache: &Path, words: &[&str]) -> (String, String, bool) {
    let mut command = Command::new(calltap());
    command
        .args(words)
        .env("XDG_CACHE_HOME", cache)
        .env_remove("DEBUGINFOD_CACHE_PATH")
        .env("DEBUGINFOD_URLS", servers);
    command.env_remove("http_proxy").env("no_proxy", "*");
    let output = command.output().expect("calltap");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

#[test]
fn names_come_from_a_server_when_asked_for() {
    if !have("curl") {
        println!("SKIPPED: no curl here");
        return;
    }
    let (program, id, debug) = stripped();
    let (path, cache) = (program.path.to_string_lossy().into_owned(), program.directory().join("cache"));
    let trace = program.directory().join("trace").to_string_lossy().into_owned();
    let good = serve(format!("/buildid/{id}/debuginfo"), fs::read(&debug).expect("the debugging file"));
    let record = |servers: &str| run(servers, &cache, &["record", "-o", &trace, "-F", "lap", "--", &path]);
    let (listed, _, _) = run(&good, &cache, &["sites", &path]);
    assert!(listed.contains("have no names") && listed.contains("calltap tools debuginfo"), "{listed}");
    let (_, said, done) = run(&good, &cache, &["record", "-o", &trace, "--", &path]);
    assert!(done && said.contains("have no names: 'calltap tools debuginfo"), "{said}");
    let (_, said, done) = record(&good);
    assert!(!done && said.contains("no traceable function matches 'lap'"), "{said}");
    let fetch =
        |servers: &str, more: &[&str]| run(servers, &cache, &[&["tools", "debuginfo", &path], more].concat());
    // A failure prints one line, and leaves no file.
    let nowhere = "http://127.0.0.1:1";
    let absent = serve("/nothing".to_owned(), Vec::new());
    let other = serve(format!("/buildid/{id}/debuginfo"), fs::read(calltap()).expect("calltap's own file"));
    let garbage = serve(format!("/buildid/{id}/debuginfo"), b"no file".to_vec());
    for (servers, more, says) in [
        ("", &[][..], "DEBUGINFOD_URLS is not set"),
        (nowhere, &[], "connect"),
        (&absent, &[], "404"),
        (&other, &[], "of another build"),
        (&garbage, &[], "of another build (none)"),
        (&good, &["--max-size", "1K"], "--max-size"),
    ] {
        let (out, said, done) = fetch(servers, more);
        assert!(!done && out.is_empty() && said.lines().count() == 1, "{servers}: {said}");
        assert!(said.contains(says), "{servers}: {said}");
        let left = cache.join("debuginfod_client").join(&id);
        assert!(!left.exists(), "{servers}: {}", left.display());
    }
    // The file comes from the first server that has it.
    let (_, said, done) = fetch(&format!("{nowhere} {absent} {good}"), &[]);
    assert!(done && said.contains("debuginfod_client"), "{said}");
    let (_, said, done) = fetch(nowhere, &[]);
    assert!(done && said.contains("is there already"), "{said}");
    let (listed, _, _) = run("", &cache, &["sites", &path]);
    assert!(listed.contains("  lap") && !listed.contains("have no names"), "{listed}");
    let (_, said, done) = record("");
    assert!(done && said.contains("1 function on"), "{said}");
}

#[test]
fn replay_shows_source_lines() {
    let program = compile(GCC, &["paced.c"], &["-g"]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("t"));
    let trace = trace.to_string_lossy().into_owned();
    assert!(calltap_run(&["record", "-q", "-o", &trace, "--", &path]).status.success());
    let text = fs::read_to_string(source("paced.c")).expect("the source");
    let line_of = |start: &str| 1 + text.lines().position(|line| line.starts_with(start)).expect("a line");
    let replayed = calltap_run(&["replay", &trace, "--lines"]).stdout;
    let check = |call: &str, start: &str| {
        let comment = format!("paced.c:{} */", line_of(start));
        let is_it = |line: &&str| line.contains(call);
        let shown: Vec<&str> = replayed.lines().filter(is_it).collect();
        assert!(!shown.is_empty() && shown.iter().all(|line| line.contains(&comment)), "{call}: {shown:#?}");
    };
    check(" main() {", "int main");
    check(" lap() {", "TRACED long lap");
    check(" leaf();", "TRACED long leaf");
    let plain = calltap_run(&["replay", &trace]).stdout;
    assert!(!plain.contains("paced.c:"), "{plain}");
    // Debugging information of another build says nothing about this trace.
    let other = compile(GCC, &["paced.c"], &["-g", "-O2"]);
    fs::copy(&other.path, &program.path).expect("another build");
    let replayed = calltap_run(&["replay", &trace, "--lines"]).stdout;
    assert!(replayed.contains("lap()") && !replayed.contains("paced.c:"), "{replayed}");
}
