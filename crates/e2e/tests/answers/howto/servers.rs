//! The how-to pages about servers: nginx, postgres, a program on tokio, and one in Go.

use super::{Page, running};
use crate::delays::servers::{postgres_programs, start_postgres};
use crate::delays::users::User;
use crate::tasks::Nginx;
use calltap_e2e::{Go, compile_cargo, have, have_tracepoints};

#[test]
fn the_page_about_event_loops_finds_a_slow_request_of_nginx() {
    if !have("nginx") || !have_tracepoints() {
        return;
    }
    let nginx = Nginx::start(1, "/late");
    let master = format!("-p {} --children", nginx.pid());
    let swaps = [
        ("-p nginx --children", master.as_str()),
        ("--duration 2", "--duration 3"),
        ("--from 1.903 --until 1.956", "--from 0 --until 4"),
    ];
    let page = Page::new("event-loop.md", &swaps);
    page.check(
        Some(nginx.workers()[0]),
        &[
            (0, &[", avg ", "p99"]),
            (0, &[" functions on, in nginx"]),
            (0, &["slowest:", "nginx-"]),
            (0, &["ngx_process_events_and_timers() {", "sys_epoll_wait(", "/* blocked "]),
        ],
    );
}

#[test]
fn the_page_about_databases_finds_the_session_that_holds_a_row_of_postgres() {
    let user = User::all().into_iter().find(|user| !user.is_root() && user.is_privileged());
    let Some((user, programs)) = user.zip(postgres_programs()) else { return };
    let postgres = start_postgres(user, &programs);
    let (program, place) = (programs.join("psql"), postgres.directory());
    let psql = format!("{} -X -q -U it -h {} postgres", program.display(), place.display());
    // A session sleeps with the row changed, a second one wants the row, and a third one is open
    // all the time. The second one waits for less than deadlock_timeout, whose timer wakes it after
    // a second.
    let update = "update one set value = value + 1";
    let sessions = format!(
        "(while sleep 0.05; do echo \"select 'open';\" || exit; done) | {psql} >/dev/null & \
         while {psql} -c 'select 1'; do {psql} -c '{update}; select pg_sleep(1)' & sleep 0.5; {psql} -c '{update}'; wait $!; done"
    );
    let _sessions = running("sh", &["-c", &sessions]);
    let page = Page::new("database.md", &[("--duration 20", "--duration 6")]);
    page.check(
        Some(postgres.pid()),
        &[
            (0, &["6 functions on, in postgres"]),
            (
                0,
                &[
                    " ms  heap_update  postgres-",
                    "<- ProcSleep\n",
                    " in SetLatch <- CommitTransactionCommand\n",
                    "<- pg_sleep <- PortalRun\n",
                ],
            ),
            (0, &["pg_parse_query(arg1=\"select 'open'"]),
        ],
    );
}

#[test]
fn the_page_about_async_programs_finds_the_holder_of_a_lock() {
    let Some(program) = compile_cargo("futures", &["--release"], "") else { return };
    let command = format!("{} locked", program.path.display());
    let swaps = [("./server", command.as_str()), ("server::handle", "futures::waiter")];
    let page = Page::new("async.md", &swaps);
    page.check(
        None,
        &[
            (0, &[" functions on, in futures"]),
            (0, &["Longest poll", "futures::waiter::{{closure}}"]),
            (0, &[" ms  futures::waiter::{{closure}}  task ", "until it was woken by futures::holder"]),
        ],
    );
}

#[test]
fn the_page_about_go_names_the_waits_of_a_slow_call() {
    for go in Go::all() {
        let program = go.compile("waits.go", &[]);
        let page = Page::new("go-request.md", &[("./server", &program.path.to_string_lossy())]);
        page.check(
            None,
            &[
                (0, &[" functions on, in waits"]),
                (0, &[" ms  main.handle"]),
                (
                    0,
                    &[
                        " ms  main.handle  goroutine-",
                        " ms  blocked in sync.Mutex.Lock <- ",
                        "woken by goroutine-",
                    ],
                ),
                (0, &["GOROUTINE  STARTED BY"]),
            ],
        );
    }
}
