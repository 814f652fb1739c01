//! Programs that forbid themselves to read the time stamp counter while they are traced.

use calltap_e2e::*;

/// Difference of the kernel's clock and the computed counter over one call, nanoseconds.
const ERROR: u64 = 1_000;

fn builds() -> [&'static Build; 3] {
    [GCC, &BARE[0], &BARE[1]]
}

/// Records the program from before its first thread to its end: the times of all calls must lie
/// between those that the program measured inside and around them.
fn times_agree(program: &Program, flags: &[&str]) {
    let mut resident = Resident::start(program, &["40"]);
    let mut calltap = resident.attach_beside(&[flags, &["--no-sched"]].concat());
    resident.await_recorder();
    resident.tell();
    let line = resident.wait_for("naps ");
    let [calls, inside, outside] =
        line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>()[..]
    else {
        panic!("{line:?}")
    };
    succeeds(&mut calltap);
    resident.sound();
    let rows = resident.view("report");
    let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "nap"));
    let row = row.unwrap_or_else(|| panic!("{flags:?}: {rows}"));
    let total = row["total_ns"].as_u64().unwrap_or_default();
    assert_eq!(row["calls"].as_u64(), Some(calls), "{flags:?}: {row}");
    let (least, most) = (inside - calls * ERROR, outside + calls * ERROR);
    assert!((least..=most).contains(&total), "{flags:?}: {total} not in {least}..{most}");
    let (status, _, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{flags:?}: {status} {errors}");
}

#[test]
fn calls_of_threads_that_may_no_longer_read_the_counter_have_right_times() {
    for build in builds() {
        times_agree(&compile(build, &["forbids_counter.c"], &["-pthread"]), &[]);
    }
}

#[test]
fn calls_of_threads_that_may_no_longer_read_the_counter_are_counted_by_all_tracers() {
    let program = compile(&BARE[0], &["forbids_counter.c"], &["-pthread"]);
    for flags in [&["--tracer", "function"][..], &["--clock", "sparse"], &["-A", "nap@arg1"]] {
        let mut resident = Resident::start(&program, &["20"]);
        let mut calltap = resident.attach_beside(&[flags, &["-F", "nap", "-F", "*prctl"]].concat());
        resident.await_recorder();
        resident.tell();
        let line = resident.wait_for("naps ");
        succeeds(&mut calltap);
        let (entered, lost) = resident.sound();
        assert_eq!(lost, 0, "{flags:?}");
        let calls: u64 = line.split(' ').next().and_then(|calls| calls.parse().ok()).expect("a number");
        assert!((calls..=calls + 3).contains(&entered), "{flags:?}: {entered} of {calls}");
        let (status, _, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{flags:?}: {status} {errors}");
    }
}

#[test]
fn programs_that_forbid_the_counter_run_on_while_functions_are_switched() {
    // Of a function prctl of the program's own, only entries are recorded.
    for (build, own) in builds().into_iter().flat_map(|build| [(build, "-O2"), (build, "-DOWN_PRCTL")]) {
        let program = compile(build, &["forbids_counter.c"], &["-pthread", own]);
        let mut resident = Resident::start(&program, &["4000"]);
        resident.tell();
        let mut attached = 0;
        while resident.runs() && attached < 10 {
            let pid = resident.pid.to_string();
            let attach = calltap_run(&["attach", "-p", &pid]);
            for state in ["off", "on", "off", "on"] {
                calltap_run(&["set", "-p", &pid, &format!("--{state}")]);
            }
            let detach = calltap_run(&["detach", "-p", &pid]);
            attached += usize::from(attach.status.success() && detach.status.success());
        }
        let (status, _, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{}: {status} {errors}", program.name);
        assert!(attached > 0, "{}: never attached", program.name);
    }
}
