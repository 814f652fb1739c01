//! Page faults, signals and moves to other processors are reported where they happened, as often as
//! the program has counted.

use crate::delays::users::{User, one};
use calltap_e2e::{GCC, compile, have_switches};
use serde_json::Value;

fn record(user: User) {
    let program = compile(GCC, &["faults.c"], &[]);
    user.owns(program.directory());
    let file = |name: &str| program.directory().join(name).display().to_string();
    let (trace, path) = (file("faults.data"), program.path.display().to_string());
    let said = user.ask(&["record", "--events", "faults", "-o", &trace, "--", &path]);
    assert!(said.stdout.starts_with("7 signals, "), "{}", said.stdout);
    let has_two = said.stdout.contains(" 2 processors");
    assert_eq!(said.stderr.contains("signals are not recorded: "), !user.is_privileged(), "{}", said.stderr);
    let rows = user.rows(trace.as_ref());
    let touched = one(&rows, "touch")["faults"].as_u64().expect("a number");
    // A page that the kernel reclaims meanwhile faults again.
    assert!((200..230).contains(&touched), "{rows}");
    let signaled = &one(&rows, "be_signaled")["signals"];
    let expected = if user.is_privileged() { Value::from(7) } else { Value::Null };
    assert_eq!(*signaled, expected, "{rows}");
    if has_two {
        let hopped = one(&rows, "hop")["migrations"].as_u64().expect("a number");
        assert!(
            (9..=11).contains(&hopped),
            "ten times to the other one, and then where the kernel likes: {rows}"
        );
    }
    assert_eq!(one(&rows, "touch")["major_faults"], 0, "{rows}");
    let replay = user.ask(&["replay", &trace]).stdout;
    let faults = replay.lines().filter(|line| line.contains("/* page fault at 0x"));
    assert!(faults.count() as u64 >= touched, "{replay}");
    assert_eq!(replay.matches("/* signal 10 (SIGUSR1) */").count(), if user.is_privileged() { 7 } else { 0 });
    assert!(!has_two || replay.contains("/* moved from processor "), "{replay}");
    let chrome = user.ask(&["export", "--to", "chrome", "-i", &trace]).stdout;
    let events: Value = serde_json::from_str(&chrome).expect("JSON");
    let all = events["traceEvents"].as_array().expect("events");
    let marks =
        all.iter().filter(|event| event["name"] == "page fault" && event["args"]["address"].is_string());
    assert!(marks.count() as u64 >= touched);
    are_in_tables(user, &trace, touched);
    let table = user.ask(&["report", "-s", "faults", &trace]).stdout;
    let first = table.lines().find(|line| !line.starts_with('#')).expect("a heading");
    assert!(first.contains(" FAULTS "), "{table}");
}

/// Checks that exports by call have the incidents of each call, and exports by time have the time
/// of each incident.
fn are_in_tables(user: User, trace: &str, touched: u64) {
    let csv = user.ask(&["export", "--to", "csv", "-i", trace]).stdout;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let titles = lines.next().expect("titles");
    let column = |name: &str| titles.iter().position(|title| *title == name).expect("a column");
    let (function, columns) =
        (column("function"), ["faults", "major_faults", "migrations", "signals"].map(column));
    let rows: Vec<Vec<&str>> = lines.collect();
    let row = |name: &str| rows.iter().find(|row| row[function] == name).expect("a call");
    assert_eq!(row("touch")[columns[0]], touched.to_string(), "{csv}");
    assert_eq!(row("touch")[columns[1]], "0", "{csv}");
    let signals = if user.is_privileged() { "7" } else { "" };
    assert_eq!(row("be_signaled")[columns[3]], signals, "{csv}");
    let otlp = user.ask(&["export", "--to", "otlp", "-F", "touch", "-i", trace]).stdout;
    let fault = format!(r#"{{"key":"calltap.faults","value":{{"intValue":"{touched}"}}}}"#);
    assert!(otlp.contains(&fault), "{otlp}");
    let firefox = user.ask(&["export", "--to", "firefox", "-i", trace]).stdout;
    assert!(firefox.matches("page fault at 0x").count() as u64 >= touched, "the pages of one function");
}

#[test]
fn page_faults_signals_and_migrations_are_shown_in_their_calls() {
    if have_switches() {
        let users = User::all().into_iter().filter(|user| *user != User::RootOfOther);
        users.for_each(record);
    }
}

#[test]
fn incidents_are_recorded_only_on_request() {
    let program = compile(GCC, &["faults.c"], &[]);
    let trace = program.directory().join("plain.data").display().to_string();
    User::Own.ask(&["record", "-q", "-o", &trace, "--", &program.path.display().to_string()]);
    let rows = User::Own.rows(trace.as_ref());
    assert!(one(&rows, "touch")["faults"].is_null(), "{rows}");
    assert!(!User::Own.ask(&["replay", &trace]).stdout.contains("page fault"));
}
