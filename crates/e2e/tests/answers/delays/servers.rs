//! Waits of servers as distributions ship them, and of their child processes: redis, postgres,
//! nginx. Each is recorded as root, for whom the kernel reports wakings, and as a user without
//! privileges.

use crate::delays::users::{Recorder, User, all_known, blocked, is_woken_by, one, waits_of};
use calltap_e2e::{Server, calltap_run, changed_text, have, have_switches, skipped, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const MS: u64 = 1_000_000;

/// A server in a directory of its own.
pub struct Service {
    user: User,
    server: Server,
    directory: TempDir,
}

impl Service {
    fn start(user: User, program: &str, arguments: &[&str], directory: TempDir) -> Service {
        let mut command = user.command(program);
        command.args(arguments).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")));
        Service { user, server, directory }
    }

    /// Returns the server's process id.
    pub fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Returns the server's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Records the server during an action.
    fn record(&self, functions: &[&str], act: impl FnOnce()) -> PathBuf {
        let recorder = Recorder::attach(self.user, self.pid(), self.directory.path(), functions);
        act();
        recorder.end()
    }
}

/// Sends a line to redis, and reads one.
fn tell_redis(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("redis");
    stream.write_all(format!("{line}\r\n").as_bytes()).expect("redis");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    answer.trim_end().to_owned()
}

/// Checks waits of redis: `DEBUG SLEEP` sleeps in `debugCommand`, and the child that `BGSAVE` forks
/// sleeps 2 ms after each of 100 keys.
fn redis(user: User) {
    let directory = user.directory();
    let arguments = ["--port", "0", "--unixsocket", "s", "--save", "", "--enable-debug-command", "yes"];
    let redis = Service::start(user, "redis-server", &arguments, directory);
    let socket = redis.path("s");
    wait_until("redis", || UnixStream::connect(&socket).is_ok());
    for line in ["DEBUG POPULATE 100", "CONFIG SET rdb-key-save-delay 2000"] {
        assert_eq!(tell_redis(&socket, line), "+OK");
    }
    let trace = redis.record(&["rdbSave*", "debugCommand", "call"], || {
        assert_eq!(tell_redis(&socket, "BGSAVE"), "+Background saving started");
        assert_eq!(tell_redis(&socket, "DEBUG SLEEP 0.2"), "+OK");
        wait_until("the child's end", || {
            tell_redis(&socket, "LASTSAVE");
            redis.path("dump.rdb").exists()
        });
    });
    let rows = user.rows(&trace);
    let saved = one(&rows, "rdbSaveDb");
    assert!(all_known(saved) && blocked(saved) >= 200 * MS, "100 naps of 2 ms: {saved}");
    assert!(all_known(one(&rows, "rdbSaveKeyValuePair")), "{rows}");
    let told = user.why(&trace, "call>150ms");
    let nap = &waits_of(&told, "call")[0];
    assert!(nap["ns"].as_u64().is_some_and(|ns| ns >= 190 * MS), "{nap:#}");
    assert_eq!(nap["path"][0], "debugCommand", "{nap:#}");
    if user.is_privileged() {
        assert_eq!(
            (&nap["in"], &nap["woken_by"]["kind"]),
            (&"clock_nanosleep()".into(), &"interrupt".into())
        );
        let told = user.why(&trace, "rdbSaveRio>100ms");
        let nap = &waits_of(&told, "rdbSaveRio")[0];
        assert!(nap["waits"].as_u64().is_some_and(|times| times >= 90), "{nap:#}");
        assert_eq!(
            (&nap["in"], &nap["woken_by"]["kind"]),
            (&"clock_nanosleep()".into(), &"interrupt".into())
        );
    }
}

#[test]
fn redis_sleeps_and_so_does_the_child_that_saves() {
    if have("redis-server") && have_switches() {
        User::all().into_iter().for_each(redis);
    }
}

/// Returns the directory of Debian's postgres programs; `None` if they are not installed.
pub fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|entry| entry.path().join("bin")).find(|path| path.join("postgres").exists());
    if found.is_none() {
        skipped("no postgres here");
    }
    found
}

/// Starts a session with these statements, each in a transaction of its own.
fn psql(programs: &Path, directory: &Path, statements: &[&str]) -> Server {
    let mut command = std::process::Command::new(programs.join("psql"));
    command.args(["-X", "-q", "-U", "it", "-h"]).arg(directory).arg("postgres");
    statements.iter().for_each(|statement| _ = command.args(["-c", statement]));
    Server(command.stdout(Stdio::null()).spawn().expect("psql"))
}

fn is_done(mut client: Server) -> bool {
    client.0.wait().is_ok_and(|status| status.success())
}

/// Starts a server with a database of its own, which has the table `one` with a row.
pub fn start_postgres(user: User, programs: &Path) -> Service {
    let directory = user.directory();
    let place = directory.path().display().to_string();
    let (data, program) = (format!("{place}/data"), |name: &str| programs.join(name).display().to_string());
    let mut initdb = user.command(&program("initdb"));
    initdb.args(["-D", &data, "-A", "trust", "-U", "it", "--no-sync", "--no-locale"]).current_dir(&place);
    let made = initdb.output().expect("initdb");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let flags = ["-D", &data, "-k", &place, "-c", "listen_addresses=", "-c", "fsync=off"];
    let postgres = Service::start(user, &program("postgres"), &flags, directory);
    let at = postgres.directory().to_owned();
    let table = "create table if not exists one (id int, value int); insert into one values (1, 0)";
    wait_until("postgres", || {
        postgres.path(".s.PGSQL.5432").exists() && is_done(psql(programs, &at, &[table]))
    });
    postgres
}

/// The statements of a session are read in the running server's child processes.
#[test]
fn statements_of_a_running_postgres_are_shown_by_name_with_its_children() {
    let user = User::all().into_iter().find(|user| !user.is_root());
    let Some((user, programs)) = user.zip(postgres_programs()) else { return };
    let postgres = start_postgres(user, &programs);
    let at = postgres.directory();
    let master = postgres.pid();
    let task = format!("/proc/{master}/task/{master}/children");
    let children = || fs::read_to_string(&task).unwrap_or_default();
    let is_session = |pid: &str| {
        let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).contains("[local]")
    };
    let has_session = || children().split_whitespace().any(is_session);
    // The server's child for the session that made the table ends a little after its client.
    wait_until("no session", || !has_session());
    // A session that is open before calltap attaches.
    let mut command = std::process::Command::new(programs.join("psql"));
    command.args(["-X", "-q", "-U", "it", "-h"]).arg(at).arg("postgres");
    let mut client = Server(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql"));
    let mut statements = client.0.stdin.take().expect("piped");
    writeln!(statements, "select 'the first';").expect("a statement");
    wait_until("a session", has_session);
    let asked = thread::spawn(move || {
        let pid = master.to_string();
        let flags = ["-p", &pid, "--children", "--duration", "3", "--json"];
        calltap_run(&[&["watch", "pg_parse_query", "-A", "arg1/s"], &flags[..]].concat())
    });
    let mut sent = 0;
    while !asked.is_finished() {
        writeln!(statements, "select 'needle', {sent};").expect("a statement");
        sent += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let run = asked.join().expect("an answer");
    assert!(run.status.success(), "{}", run.stderr);
    let needles = run.stdout.lines().filter(|line| line.contains("select 'needle', ")).count();
    assert!(needles > 0, "{sent} sent: {}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(": 1 function on, in postgres"), "{}", run.stderr);
    drop(statements);
    assert!(is_done(client), "the session goes on to its end");
    for pid in children().split_whitespace().chain([master.to_string().as_str()]) {
        assert_eq!(changed_text(pid.parse().expect("a number")), [""; 0], "{pid}");
    }
}

/// Changes the row, tells the other session by a lock, and sleeps on once that waits.
const FIRST: &str = "do $$ begin update one set value = value + 1; perform pg_advisory_xact_lock(7); \
     for n in 1..200 loop perform pg_sleep(0.05); exit when exists(select from pg_locks where not granted); \
     end loop; perform pg_sleep(0.3); end $$";
/// Waits until the first session has changed the row.
const AWAIT: &str = "do $$ begin while not exists(select from pg_locks where locktype = 'advisory') loop \
     perform pg_sleep(0.01); end loop; end $$";

/// Checks waits of postgres: two sessions want one row, and the second waits until the first, which
/// sleeps in its transaction, has committed.
fn postgres(user: User, programs: &Path) {
    let postgres = start_postgres(user, programs);
    let at = postgres.directory().to_owned();
    let functions =
        ["heap_update", "pg_sleep", "PortalRun", "ProcSleep", "SetLatch", "CommitTransactionCommand"];
    let trace = postgres.record(&functions, || {
        let first = psql(programs, &at, &[FIRST]);
        let second = psql(programs, &at, &[AWAIT, "update one set value = value + 1"]);
        assert!(is_done(first) && is_done(second));
    });
    let waits = one(&user.rows(&trace), "ProcSleep").clone();
    assert!(all_known(&waits) && blocked(&waits) >= 100 * MS, "{waits}");
    let told = user.why(&trace, "heap_update>100ms");
    let wait = &waits_of(&told, "heap_update")[0];
    assert_eq!(wait["path"][0], "ProcSleep", "{wait:#}");
    if user.is_privileged() {
        assert!(wait["in"].as_str().is_some_and(|call| call.starts_with("epoll_wait(")), "{wait:#}");
        is_woken_by(wait, "postgres", "CommitTransactionCommand");
        let nap = &wait["meanwhile"]["blocked"][0];
        assert_eq!((&nap["path"][0], &nap["path"][1]), (&"pg_sleep".into(), &"PortalRun".into()), "{wait:#}");
    }
}

#[test]
fn a_session_of_postgres_waits_for_the_row_that_another_has_changed() {
    // postgres refuses to run as root.
    let users = User::all().into_iter().filter(|user| !user.is_root());
    if let Some(programs) = postgres_programs().filter(|_| have_switches()) {
        users.for_each(|user| postgres(user, &programs));
    }
}

/// Answers the first request after a delay.
fn answer_late(socket: UnixListener, nap: Duration) {
    let (mut stream, _) = socket.accept().expect("a request");
    let mut bytes = [0; 4096];
    let _ = stream.read(&mut bytes);
    thread::sleep(nap);
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

/// Checks waits of nginx, which passes a request on to a slow server. The worker was forked by the
/// master.
fn nginx(user: User) {
    let directory = user.directory();
    let place = directory.path().display().to_string();
    let runs_as = if user.is_root() { "user root;" } else { "" };
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {place}/{name};")).concat();
    let configuration = format!(
        "daemon off; {runs_as} worker_processes 1; pid {place}/pid; error_log {place}/errors;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; {paths}\n\
         server {{ listen unix:{place}/front; location / {{ proxy_pass http://unix:{place}/back:/; }} }} }}\n"
    );
    fs::write(directory.path().join("conf"), configuration).expect("a file");
    let upstream = UnixListener::bind(directory.path().join("back")).expect("a socket");
    user.owns(&directory.path().join("back"));
    let conf = format!("{place}/conf");
    let nginx = Service::start(user, "nginx", &["-p", &place, "-c", &conf, "-e", "errors"], directory);
    wait_until("nginx", || UnixStream::connect(nginx.path("front")).is_ok());
    let worker = nginx.user.child(nginx.server.0.id());
    let functions = ["ngx_process_events_and_timers", "ngx_http_process_request"];
    let recorder = Recorder::attach(user, worker, nginx.directory.path(), &functions);
    let server = thread::spawn(move || answer_late(upstream, Duration::from_millis(300)));
    let mut client = UnixStream::connect(nginx.path("front")).expect("nginx");
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("nginx");
    let mut page = String::new();
    client.read_to_string(&mut page).expect("a page");
    assert!(page.ends_with("ok"), "{page}");
    server.join().expect("the server");
    let trace = recorder.end();
    let told = user.why(&trace, "ngx_process_events_and_timers>250ms");
    let all: Vec<&Value> = waits_of(&told, "ngx_process_events_and_timers").iter().collect();
    let wait = all.iter().find(|wait| wait["ns"].as_u64().is_some_and(|ns| ns >= 250 * MS));
    let wait = wait.unwrap_or_else(|| panic!("{told:#}"));
    if user.is_privileged() {
        assert!(wait["in"].as_str().is_some_and(|call| call.starts_with("epoll_wait(")), "{wait:#}");
        let waker = &wait["woken_by"];
        assert_eq!(
            (&waker["kind"], &waker["pid"]),
            (&"process".into(), &std::process::id().into()),
            "{wait:#}"
        );
    }
}

#[test]
fn nginx_worker_waits_for_its_upstream_server() {
    if have("nginx") && have_switches() {
        User::all().into_iter().for_each(nginx);
    }
}
