//! Page faults, signals and moves to other processors, told where they happened: as often as the program knows.

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
    // A page that the kernel takes away meanwhile is not there again.
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
    let table = user.ask(&["report", "-s", "faults", &trace]).stdout;
    let first = table.lines().find(|line| !line.starts_with('#')).expect("a heading");
    assert!(first.contains(" FAULTS "), "{table}");
}

#[test]
fn page_faults_signals_and_moves_are_told_where_they_happen() {
    if have_switches() {
        let users = User::all().into_iter().filter(|user| *user != User::RootOfOther);
        users.for_each(record);
    }
}

#[test]
fn they_are_told_only_when_asked_for() {
    let program = compile(GCC, &["faults.c"], &[]);
    let trace = program.directory().join("plain.data").display().to_string();
    User::Own.ask(&["record", "-q", "-o", &trace, "--", &program.path.display().to_string()]);
    let rows = User::Own.rows(trace.as_ref());
    assert!(one(&rows, "touch")["faults"].is_null(), "{rows}");
    assert!(!User::Own.ask(&["replay", &trace]).stdout.contains("page fault"));
}
