//! `calltap top` on running programs: the table shows what the programs do, and leaves them
//! unchanged.

use calltap_e2e::{
    GCC, Program, Resident, Run, State, Terminal, await_sleeps, calltap, calltap_run, changed_text, compile,
    end_of, jumps, kill, wait_until,
};
use rustix::termios::tcgetattr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A row of the table.
#[derive(Debug)]
struct Line {
    /// Calls per second.
    calls: f64,
    /// Microseconds.
    avg: f64,
    max: f64,
    /// Percent.
    time: f64,
    /// Whether the function was off for a part of the interval, or for all of it.
    is_partial: bool,
    state: String,
    function: String,
}

/// Parses the blocks of a text.
fn blocks(text: &str) -> Vec<Vec<Line>> {
    let block = |block: &str| -> Vec<Line> {
        let mut lines = block.lines();
        assert!(lines.next().is_some_and(|heading| heading.starts_with("# ")), "{text}");
        let titles = lines.next().map(|titles| titles.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(titles.as_deref(), Some("CALLS/S AVG_US MAX_US TIME% STATE MODULE FUNCTION"), "{text}");
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| match words[at] {
                "-" => 0.0,
                word => word.trim_start_matches('>').parse().unwrap_or_else(|_| panic!("{line}")),
            };
            Line {
                calls: number(0),
                avg: number(1),
                max: number(2),
                time: number(3),
                is_partial: words[0].starts_with(['>', '-']),
                state: words[4].to_owned(),
                function: words[6..].join(" "),
            }
        };
        lines.map(line).collect()
    };
    text.split_terminator("\n\n").map(block).collect()
}

fn of<'a>(block: &'a [Line], function: &str) -> &'a Line {
    block
        .iter()
        .find(|line| line.function == function)
        .unwrap_or_else(|| panic!("no {function} in {block:?}"))
}

/// Starts a program that sleeps; its file is removed on drop.
fn paced() -> (Program, Resident) {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    (program, resident)
}

fn top(resident: &Resident, flags: &[&str]) -> Run {
    let pid = resident.pid.to_string();
    let mut all = vec!["top", "-p", &pid];
    all.extend(flags);
    calltap_run(&all)
}

/// Runs `top` repeatedly until its output passes a check, as on a busy machine a program may not
/// run for some intervals. Returns the last run.
fn top_until(resident: &Resident, flags: &[&str], shows: impl Fn(&Run) -> bool) -> Run {
    let is_last = |run: &Run| !run.status.success() || shows(run);
    let run = (0..20).map(|_| top(resident, flags)).find(is_last).expect("the program does what it is for");
    assert!(run.status.success(), "{}", run.stderr);
    run
}

/// Checks that calltap has left nothing behind, and that the program ends well.
fn whole(mut resident: Resident, before: &State) {
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let after = State::of(resident.pid, &["State"]);
    assert_eq!(
        (&after.files, &after.threads, &after.status),
        (&before.files, &before.threads, &before.status)
    );
    assert!(resident.runs());
    let again = resident.attach(&["--duration", "10ms"]);
    assert!(again.status.success() && !again.stderr.contains("cleaned up"), "{}", again.stderr);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status}: {output}{errors}");
}

/// Starts `top` with its output in a file, and waits for the first output.
fn beside(resident: &Resident) -> (Child, impl Fn() -> String + use<>) {
    let path = resident.directory.join(format!("{}.top", resident.pid));
    let file = File::create(&path).expect("a file for the output");
    let mut command = Command::new(calltap());
    command.args(["top", "-p", &resident.pid.to_string(), "--interval", "50ms"]);
    let child = command.stdin(Stdio::null()).stdout(file).stderr(Stdio::inherit()).spawn().expect("calltap");
    let text = move || fs::read_to_string(&path).unwrap_or_default();
    wait_until("its first block", || text().contains("\n\n"));
    (child, text)
}

fn signal(child: &Child, signal: i32) {
    kill(child.id(), signal);
}

#[test]
fn a_function_that_sleeps_for_a_millisecond_is_seen_to() {
    let (_program, resident) = paced();
    let before = State::at_rest(resident.pid, &["State"]);
    let flags = ["--interval", "300ms", "--count", "3", "--max-overhead", "none"];
    let has_laps = |run: &Run| {
        blocks(&run.stdout).iter().all(|block| {
            let calls = |function| of(block, function).calls;
            calls("leaf") > calls("nap") && calls("nap") > 0.0
        })
    };
    let run = top_until(&resident, &flags, has_laps);
    let blocks = blocks(&run.stdout);
    assert_eq!(blocks.len(), 3, "{}", run.stdout);
    for block in &blocks {
        let (nap, leaf) = (of(block, "nap"), of(block, "leaf"));
        assert!(nap.calls > 0.0 && nap.calls <= 1010.0 && nap.avg >= 1000.0 && nap.max >= nap.avg, "{nap:?}");
        // The time is at most the interval, and at least that of the sleeps, less the time in which
        // the thread was not scheduled.
        assert!(nap.time <= 101.0 && nap.time >= nap.calls / 10.0 - 1.0, "{nap:?}");
        // The end of an interval may cut a round.
        let ratio = leaf.calls / nap.calls;
        assert!((8.0..=12.0).contains(&ratio) || nap.calls < 50.0, "{leaf:?} {nap:?}");
        assert!(leaf.avg < nap.avg && block.iter().all(|line| line.state == "on"), "{block:?}");
        assert_eq!(block[0].function, "leaf", "most calls first: {}", run.stdout);
    }
    whole(resident, &before);
}

#[test]
fn rows_are_chosen_sorted_and_limited_as_asked() {
    let (_program, resident) = paced();
    let flags = ["--interval", "200ms", "--count", "2", "--max-overhead", "none"];
    let names = |more: &[&str]| -> Vec<String> {
        let has_calls = |run: &Run| {
            let last = blocks(&run.stdout).pop().unwrap_or_default();
            !last.is_empty() && last.iter().all(|line| line.calls > 0.0)
        };
        let run = top_until(&resident, &[&flags, more].concat(), has_calls);
        let mut blocks = blocks(&run.stdout);
        blocks.pop().into_iter().flatten().map(|line| line.function).collect()
    };
    assert_eq!(names(&["-F", "na*"]), ["nap"]);
    assert_eq!(names(&["-N", "leaf", "-s", "function"]), ["lap", "nap"]);
    assert_eq!(names(&["-s", "max", "-n", "1"]), ["lap"]);
    assert_eq!(names(&["--graph", "nap"]), ["nap"]);
    assert_eq!(names(&["--graph", "lap", "--depth", "1"]), ["lap"]);
    assert!(resident.end().0.success());
}

#[test]
fn intervals_are_objects_in_json() {
    let (_program, resident) = paced();
    let calls = |line: &str, name: &str| {
        let interval: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&interval["calltap_top"], &interval["pid"]), (&1.into(), &resident.pid.into()));
        assert!(interval["length_ns"].as_u64() > Some(0) && interval["lost"] == 0, "{interval}");
        let rows = interval["functions"].as_array().expect("functions");
        let row = rows.iter().find(|row| row["function"] == name);
        row.and_then(|row| row["calls"].as_u64()).unwrap_or(0)
    };
    let flags = ["--interval", "300ms", "--count", "2", "--max-overhead", "none", "--json"];
    let has_laps = |run: &Run| run.stdout.lines().all(|line| calls(line, "leaf") > calls(line, "nap"));
    let run = top_until(&resident, &flags, has_laps);
    assert!(run.stdout.lines().count() == 2 && has_laps(&run), "{}", run.stdout);
    assert!(resident.end().0.success());
}

#[test]
fn invalid_top_options_are_refused_in_one_line_before_attaching() {
    let (_program, resident) = paced();
    let before = State::at_rest(resident.pid, &["State"]);
    let refused = |flags: &[&str], why: &str| {
        let run = top(&resident, flags);
        assert!(!run.status.success(), "{flags:?}");
        assert!(run.stderr.contains(why) && run.stderr.lines().count() == 1, "{flags:?}: {}", run.stderr);
        assert_eq!((run.stdout.as_str(), changed_text(resident.pid)), ("", vec![]), "{flags:?}");
    };
    refused(&["-F", "naps"], "no traceable function matches 'naps'; nearest: nap");
    refused(&["--interval", "soon"], "'soon' is not a time");
    refused(&["--interval", "1ms"], "--interval must be at least 10ms");
    refused(&["--count", "0"], "--count must be at least 1");
    refused(&["--max-overhead", "little"], "'little' is not a percentage");
    let absent = calltap_run(&["top", "-p", "4194305"]);
    assert_eq!(absent.stderr, "calltap: process 4194305: no such process\n");
    whole(resident, &before);
}

#[test]
fn top_detaches_on_signals() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let (_program, resident) = paced();
        let before = State::at_rest(resident.pid, &["State"]);
        let (child, text) = beside(&resident);
        assert!(!changed_text(resident.pid).is_empty());
        signal(&child, number);
        assert!(end_of(child).success());
        assert!(blocks(&text()).iter().flatten().any(|line| line.function == "nap"));
        whole(resident, &before);
    }
}

#[test]
fn top_detaches_when_its_reader_exits() {
    let (_program, resident) = paced();
    let before = State::at_rest(resident.pid, &["State"]);
    let mut command = Command::new(calltap());
    command.args(["top", "-p", &resident.pid.to_string(), "--interval", "50ms"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("calltap");
    let mut first = [0; 2];
    child.stdout.take().expect("piped").read_exact(&mut first).expect("a block");
    assert_eq!((first, end_of(child).success()), (*b"# ", true));
    whole(resident, &before);
}

#[test]
fn top_ends_with_process_and_shows_last_interval() {
    let (_program, resident) = paced();
    let path = resident.directory.join("top");
    let mut command = Command::new(calltap());
    command.args(["top", "-p", &resident.pid.to_string(), "--interval", "1000s"]);
    command.stdout(File::create(&path).expect("a file for the output")).stderr(Stdio::null());
    let child = command.spawn().expect("calltap");
    resident.await_recorder();
    await_sleeps(resident.pid, 20);
    let directory = resident.directory.clone();
    assert!(resident.end().0.success());
    assert!(end_of(child).success());
    let text = fs::read_to_string(directory.join("top")).expect("the output");
    let blocks = blocks(&text);
    assert_eq!(blocks.len(), 1, "{text}");
    assert!(of(&blocks[0], "nap").calls > 0.0, "{text}");
}

#[test]
fn top_keeps_rows_of_functions_disabled_by_limit() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let before = State::at_rest(resident.pid, &["State"]);
    // A program that was not scheduled in the first intervals is limited in a later one.
    for (limit, state, runs) in [("1%", "off(limit)", false), ("none", "on", true)] {
        let flags = ["--interval", "300ms", "--count", "4", "--max-overhead", limit];
        let is_so = |run: &Run| {
            let blocks = blocks(&run.stdout);
            let work = of(blocks.last().expect("four blocks"), "work");
            // An interval in which the function was disabled or enabled is marked as partial.
            let mut off = blocks.iter().map(|block| of(block, "work")).filter(|work| work.state != "on");
            assert!(off.all(|work| work.is_partial), "{}", run.stdout);
            work.state == state && (work.calls > 0.0) == runs
        };
        let run = top_until(&resident, &flags, is_so);
        assert_eq!(limit != "none", run.stderr.contains("disabled by --max-overhead"), "{}", run.stderr);
    }
    whole(resident, &before);
}

#[test]
fn nothing_is_written_to_disk() {
    let (_program, resident) = paced();
    let empty = resident.directory.join("empty");
    fs::create_dir(&empty).expect("a directory");
    let mut command = Command::new(calltap());
    command.args(["top", "-p", &resident.pid.to_string(), "--interval", "100ms", "--count", "2"]);
    command.current_dir(&empty);
    let run = calltap_e2e::run(command, b"");
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(fs::read_dir(&empty).expect("the directory").count(), 0);
    assert!(resident.end().0.success());
}

/// Starts `calltap top` on a terminal.
fn watched(resident: &Resident) -> Terminal {
    let pid = resident.pid.to_string();
    Terminal::start(&["top", "-p", &pid, "--interval", "100ms", "--max-overhead", "none"])
}

#[test]
fn key_disables_and_enables_function_of_running_process() {
    let (_program, resident) = paced();
    let before = State::at_rest(resident.pid, &["State"]);
    let mut terminal = watched(&resident);
    terminal.wait_for("leaf");
    assert!(terminal.is_raw());
    let all = jumps(resident.pid);
    // Sorted by name, the second row is `leaf`. Only changed characters are drawn: an `o` stays.
    terminal.press("f\x1b[B\x1b[B ");
    terminal.wait_for("ff(user)");
    wait_until("its site to go off", || jumps(resident.pid) == all - 1);
    terminal.press(" ");
    wait_until("its site to go on again", || jumps(resident.pid) == all);
    terminal.press("q");
    terminal.wait_for_leave();
    let Terminal { controller: _controller, terminal, child, .. } = terminal;
    assert!(end_of(child).success());
    let modes = tcgetattr(&terminal).expect("its modes").local_modes;
    assert!(modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO));
    whole(resident, &before);
}

#[test]
fn the_terminal_is_given_back_after_ctrl_c_a_signal_and_the_end_of_the_process() {
    for how in ["ctrl-c", "signal", "end"] {
        let (_program, resident) = paced();
        let mut terminal = watched(&resident);
        terminal.wait_for("leaf");
        let mut resident = Some(resident);
        match how {
            "ctrl-c" => terminal.press("\x03"),
            "signal" => signal(&terminal.child, libc::SIGTERM),
            _ => assert!(resident.take().is_none_or(|resident| resident.end().0.success())),
        }
        terminal.wait_for_leave();
        wait_until(how, || !terminal.is_raw());
        assert!(end_of(terminal.child).success(), "{how}");
        if let Some(resident) = resident {
            assert_eq!(changed_text(resident.pid), [""; 0], "{how}");
            assert!(resident.end().0.success(), "{how}");
        }
    }
}

#[test]
fn live_commands_detach_when_their_terminal_is_closed() {
    for command in [&["top"][..], &["tui"], &["watch", "leaf"], &["count", "leaf"]] {
        let (_program, resident) = paced();
        let pid = resident.pid.to_string();
        let terminal = Terminal::whole(&[command, &["-p", &pid]].concat(), &[("TERM", "xterm")]);
        terminal.wait_for("leaf");
        assert_ne!(changed_text(resident.pid), [""; 0]);
        let child = terminal.close();
        // The kernel sends this signal if the terminal is that of the session.
        kill(child.id(), libc::SIGHUP);
        let status = end_of(child);
        assert_eq!(status.signal(), None, "{command:?}: {status}");
        assert_eq!(changed_text(resident.pid), [""; 0], "{command:?}");
        assert!(resident.end().0.success(), "{command:?}");
    }
}

#[test]
fn top_reports_tracing_cost_of_every_interval() {
    let (_program, resident) = paced();
    let before = State::at_rest(resident.pid, &["State"]);
    let headings = |run: &Run| -> Vec<String> {
        run.stdout.lines().filter(|line| line.starts_with("# ")).map(str::to_owned).collect()
    };
    let cost = |heading: &String| {
        let share = heading.split_once("tracing costs ")?.1.split_once(" %")?.0;
        share.parse::<f64>().ok()
    };
    let has_costs = |run: &Run| headings(run).iter().filter_map(cost).count() >= 10;
    let run =
        top_until(&resident, &["--interval", "200ms", "--count", "12", "--max-overhead", "50%"], has_costs);
    let headings = headings(&run);
    let mut costs: Vec<f64> = headings.iter().filter_map(cost).collect();
    costs.sort_by(f64::total_cmp);
    // 22,000 events a second cost about 2 % of a program that does little else.
    assert!(costs.len() >= 10 && costs[0] > 0.0, "{headings:#?}");
    // The busiest moments of the machine are left out.
    assert!(costs[costs.len() * 3 / 4] < costs[costs.len() / 4] * 2.5, "{headings:#?}");
    whole(resident, &before);
}

#[test]
fn several_processes_have_a_block_each_or_one_table() {
    let (program, first) = paced();
    let second = Resident::start(&program, &[]);
    let before = [&first, &second].map(|resident| State::at_rest(resident.pid, &["State"]));
    let list = format!("{},{}", first.pid, second.pid);
    let run = calltap_run(&["top", "-p", &list, "-F", "leaf", "--count", "2", "--interval", "200ms"]);
    assert!(run.status.success(), "{}", run.stderr);
    for pid in [first.pid, second.pid] {
        let headings =
            run.stdout.lines().filter(|line| line.starts_with("# ") && line.contains(&format!("({pid}): ")));
        assert_eq!(headings.count(), 2, "{}", run.stdout);
        assert!(run.stderr.contains(&format!("-{pid}: 1 function on, in ")), "{}", run.stderr);
    }
    assert_eq!(blocks(&run.stdout).len(), 4, "{}", run.stdout);
    let flags = ["top", "-p", &list, "-F", "leaf", "--interval", "100ms", "--max-overhead", "none"];
    let mut terminal = Terminal::start(&flags);
    terminal.wait_for("leaf");
    // Both had begun when the table was first drawn; ten intervals later each has calls.
    thread::sleep(Duration::from_secs(1));
    let on = || [first.pid, second.pid].map(jumps);
    let all = on();
    // A function is switched in both processes, or only in the displayed one.
    terminal.press("f\x1b[B ");
    wait_until("both to go off", || on() == all.map(|jumps| jumps - 1));
    terminal.press(" ");
    wait_until("both to go on", || on() == all);
    terminal.press("] ");
    wait_until("the first to go off", || on() == [all[0] - 1, all[1]]);
    terminal.press("q");
    terminal.wait_for_leave();
    assert!(end_of(terminal.child).success());
    let [first_before, second_before] = before;
    whole(first, &first_before);
    whole(second, &second_before);
}

#[test]
fn a_process_that_ends_is_no_end_of_the_others() {
    let (program, first) = paced();
    let second = Resident::start(&program, &[]);
    let list = format!("{},{}", first.pid, second.pid);
    let path = program.directory().join("out");
    let mut command = Command::new(calltap());
    command.args(["top", "-p", &list, "--interval", "50ms"]);
    let file = File::create(&path).expect("a file for the output");
    let child = command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()).spawn().expect("calltap");
    let of = |pid: u32| fs::read_to_string(&path).unwrap_or_default().matches(&format!(" ({pid}): ")).count();
    wait_until("blocks of both", || of(first.pid) > 0 && of(second.pid) > 0);
    let pid = second.pid;
    assert!(first.end().0.success());
    let seen = of(pid);
    wait_until("more blocks of the other", || of(pid) > seen + 2);
    assert!(second.end().0.success());
    assert!(end_of(child).success(), "all have ended");
}
