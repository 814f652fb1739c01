//! Hostile processes and neighbours: a process may lose its own trace, and nothing else may fail.

use calltap_e2e::*;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A directory of directories takes over every attached process of the machine, those of this
/// file's other tests included. The lock excludes these.
static ATTACHING: Mutex<()> = Mutex::new(());

fn attaching_alone() -> MutexGuard<'static, ()> {
    ATTACHING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the path of a session's file, from the mappings of a process that is attached to.
fn file_of(pid: u32, name: &str) -> PathBuf {
    let found = || {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let control = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.ends_with("/control"));
        control.map(|control| Path::new(control).with_file_name(name))
    };
    wait_until("the session's files", || found().is_some());
    found().expect("just seen")
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(calltap());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("calltap")
}

/// Checks that calltap exits with one error line about the damaged session, and is not ended by a
/// signal.
#[track_caller]
fn says_truncated(mut child: Child) {
    let mut errors = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut errors).expect("its errors");
    assert_eq!(end_of(child).code(), Some(1), "{errors}");
    let lines = errors
        .lines()
        .filter(|line| line.contains("the session's shared memory was truncated by another process"));
    assert_eq!(lines.count(), 1, "{errors}");
}

#[test]
fn a_truncated_control_file_is_an_error_and_no_crash() {
    let program = compile(GCC, &["paced.c"], &[]);
    for length in [0, 4096, 1 << 20] {
        let resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let output = resident.directory.join("t").display().to_string();
        let child = start(&["record", "-p", &pid, "-o", &output]);
        let control = file_of(resident.pid, "control");
        resident.await_recorder();
        // The memory has calls that will be missing.
        await_sleeps(resident.pid, 20);
        OpenOptions::new().write(true).open(control).expect("the file").set_len(length).expect("truncated");
        says_truncated(child);
    }
}

#[test]
fn a_truncated_session_leaves_the_others_of_a_mount_alone() {
    if !have_fuse() {
        return;
    }
    let program = compile(GCC, &["paced.c"], &[]);
    let _alone = attaching_alone();
    let (one, other) = (Resident::start(&program, &[]), Resident::start(&program, &[]));
    let place = MountPoint(tempfile::tempdir().expect("a directory"));
    let mounted = calltap_run(&["mount", &place.root().display().to_string()]);
    assert!(mounted.status.success(), "{}", mounted.stderr);
    for resident in [&one, &other] {
        fs::create_dir(place.path(&resident.pid.to_string())).expect("a room");
        place.echo("function", &format!("{}/current_tracer", resident.pid));
    }
    let control = OpenOptions::new().write(true).open(file_of(one.pid, "control")).expect("the file");
    control.set_len(0).expect("truncated");
    wait_until("the end of its room", || !place.path(&one.pid.to_string()).exists());
    let trace = format!("{}/trace", other.pid);
    wait_until("calls of the other", || place.cat(&trace).contains("leaf"));
    place.echo("", &trace);
    wait_until("more calls", || place.cat(&trace).contains("leaf"));
    place.unmount();
    assert!(other.end().0.success());
}

#[test]
fn counts_beyond_their_tables_are_clamped() {
    let program = compile(GCC, &["paced.c"], &[]);
    let _alone = attaching_alone();
    let resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    let control = OpenOptions::new().write(true).open(file_of(resident.pid, "control")).expect("the file");
    let counts = [
        offset_of!(calltap_abi::Control, process_bump),
        offset_of!(calltap_abi::Control, thread_bump),
        offset_of!(calltap_abi::Control, chunk_bump),
    ];
    for at in counts {
        control.write_all_at(&u32::MAX.to_le_bytes(), at as u64).expect("written");
    }
    // All entries claim to be processes of a namespace that does not exist.
    for index in 1..calltap_abi::PROCESS_MAX {
        let entry = calltap_abi::PROCESSES_AT + index * size_of::<calltap_abi::ProcessEntry>();
        let (own, parent) = ((index as u32).to_le_bytes(), 1u32.to_le_bytes());
        control.write_all_at(&[own, parent].concat(), entry as u64).expect("written");
        control.write_all_at(&(index as u64).to_le_bytes(), entry as u64 + 8).expect("written");
    }
    let output = resident.directory.join("s").display().to_string();
    let began = Instant::now();
    for command in
        [&["status", "-p", &pid][..], &["snapshot", "-p", &pid, "-o", &output], &["detach", "-p", &pid]]
    {
        let run = calltap_run(command);
        assert!(run.status.success(), "{command:?}: {}", run.stderr);
    }
    assert!(began.elapsed() < HANGS, "{:?}", began.elapsed());
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn a_name_that_another_user_has_taken_does_not_block_tracing() {
    if !is_root() {
        return skipped("only root can make another user's directories");
    }
    let program = compile(GCC, &["paced.c"], &[]);
    let _alone = attaching_alone();
    let resident = Resident::start(&program, &[]);
    let stat = fs::read_to_string(format!("/proc/{}/stat", resident.pid)).expect("its state");
    let start_time = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19)).expect("a time");
    let namespace = fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    let name = format!("calltap.{}.{start_time}.{namespace}", resident.pid);
    let taken = [name.clone(), format!("{name}.0000000000000000"), format!("{name}.new")];
    let taken = taken.map(|name| Path::new("/dev/shm").join(name));
    for path in &taken {
        fs::DirBuilder::new().mode(0o700).create(path).expect("a directory");
        chown(path, Some(65534), Some(65534)).expect("another's");
    }
    let (pid, output) = (resident.pid.to_string(), resident.directory.join("t").display().to_string());
    let run = calltap_run(&["record", "-p", &pid, "--duration", "50ms", "-o", &output]);
    let attached = ["attach", "status", "detach"].map(|command| calltap_run(&[command, "-p", &pid]));
    taken.iter().for_each(|path| drop(fs::remove_dir_all(path)));
    assert!(run.status.success(), "{}", run.stderr);
    assert!(attached.iter().all(|run| run.status.success()), "{:?}", attached.map(|run| run.stderr));
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

/// Serves the page of a small trace. Returns the process, host and port, and path.
fn view(program: &Program) -> (Server, String, String) {
    let path = program.directory().join("t").display().to_string();
    let run = calltap_run(&["record", "-q", "-o", &path, "--", &program.path.display().to_string()]);
    assert!(run.status.success(), "{}", run.stderr);
    let mut command = Command::new(calltap());
    command.args(["view", &path]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("calltap");
    let mut address = Vec::new();
    let mut out = child.stdout.take().expect("piped");
    while !address.ends_with(b"\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("an address");
        address.push(byte[0]);
    }
    let address = String::from_utf8(address).expect("text");
    let rest = address.trim().strip_prefix("http://").expect("http");
    let (host, path) = rest.split_at(rest.find('/').expect("a path"));
    (Server(child), host.to_owned(), path.to_owned())
}

/// Returns the answer to these bytes, or the part that arrives in time.
fn told(host: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(host).expect("the server");
    stream.set_read_timeout(Some(HANGS)).expect("set");
    // The server may close the connection before everything was written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn clients_without_the_token_cannot_exhaust_the_page_server() {
    let (mut server, host, path) = view(&compile(GCC, &["tail.c"], &[]));
    let page = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let check = |what: &str| {
        let answer = told(&host, page.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200"), "{what}: {answer}");
    };
    for length in ["100000000000", "18446744073709551615", "1"] {
        let answer = told(
            &host,
            format!("POST /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 4"), "{length}: {answer}");
        check(length);
    }
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    assert!(!told(&host, long.as_bytes()).starts_with("HTTP/1.1 200"));
    check("a long head");
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&host).expect("the server")).collect();
    check("two hundred connections");
    drop(idle);
    let began = Instant::now();
    assert_eq!(told(&host, b"GET / HTTP/1.1\r\nX: "), "");
    assert!(began.elapsed() < HANGS, "a head that never ends");
    assert!(server.0.try_wait().expect("the test's own child").is_none());
    kill(server.0.id(), libc::SIGINT);
    assert!(server.0.wait().expect("the test's own child").success());
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_a_file_is_refused_at_once() {
    let place = tempfile::tempdir().expect("a directory");
    let pipe = place.path().join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for path in [&pipe, "/dev/zero"] {
        for more in [&[][..], &["--inlined"]] {
            one_line(&calltap_run(&[&["sites", path], more].concat()), &[path]);
        }
    }
}

#[test]
fn names_do_nothing_to_a_terminal_in_any_output() {
    // A name with an escape sequence, a line break, a tab, and a character that reverses the
    // direction of text.
    const NAME: &str = "evil\x1b[2Jred\nline\tx\u{202e}y";
    let place = tempfile::tempdir().expect("a directory");
    let source = place.path().join("evil.c");
    let body = "__attribute__((noinline, noipa)) int plain(int n) { return n * 3 + 1; } int main(int n, char **v) { return plain(n) == 9; }";
    fs::write(&source, body).expect("written");
    let (object, program) = (place.path().join("evil.o"), place.path().join("evil\x1b[31m"));
    let tool = |name: &str, arguments: &[&std::ffi::OsStr]| {
        let done = Command::new(name).args(arguments).output().expect("a tool");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    };
    tool("gcc", &["-O1".as_ref(), "-c".as_ref(), "-o".as_ref(), object.as_ref(), source.as_ref()]);
    let renamed = format!("plain={NAME}");
    tool("objcopy", &["--redefine-sym".as_ref(), renamed.as_ref(), object.as_ref()]);
    tool("gcc", &["-o".as_ref(), program.as_ref(), object.as_ref()]);
    let trace = place.path().join("t").display().to_string();
    let program = program.display().to_string();
    let record = calltap_run(&["record", "-o", &trace, "--", &program]);
    assert!(record.status.success(), "{}", record.stderr);
    let commands: [&[&str]; 9] = [
        &["sites", &program],
        &["sites", "--format", "json", &program],
        &["sites", "--linker-names", &program],
        &["report", "-i", &trace],
        &["report", "-i", &trace, "--format", "csv"],
        &["replay", "-i", &trace],
        &["graph", "-i", &trace],
        &["export", "-i", &trace, "--to", "csv"],
        &["info", "-i", &trace],
    ];
    let mut shown = 0;
    for command in commands {
        let run = calltap_run(command);
        let all = run.stdout + &run.stderr + &record.stderr;
        let strange = |c: char| {
            c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!all.contains(strange), "{command:?}: {all:?}");
        assert!(!all.lines().any(|line| line.starts_with("line")), "{command:?}: {all:?}");
        shown += usize::from(
            all.contains("evil\\u{1b}[2Jred\\nline\\tx\\u{202e}y") || all.contains("evil\\\\u{1b}[2Jred"),
        );
    }
    assert!(shown >= 7, "the name itself is shown in {shown}");
}
