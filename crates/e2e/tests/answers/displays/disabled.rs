//! Functions that the overhead limit disabled, on the page: one line, which unfolds.

use super::view::{browser, drive};
use calltap_e2e::{GCC, Resident, Run, calltap_run, compile, run_timeout};
use std::time::Duration;

#[test]
fn in_a_browser_disabled_functions_are_one_line_that_unfolds() {
    let Some(browser) = browser() else { return };
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let [trace, page] =
        ["disabled.data", "page.html"].map(|name| program.directory().join(name).display().to_string());
    let pid = resident.pid.to_string();
    let record = ["record", "-p", &pid, "--duration", "1", "--max-overhead", "0.01%", "-o", &trace];
    // A program that was not scheduled meanwhile is not limited.
    let is_limited = |_: &usize| {
        let run = calltap_run(&record);
        assert!(run.status.success(), "{}", run.stderr);
        calltap_run(&["report", &trace]).stdout.contains("disabled by --max-overhead")
    };
    (0..20).find(is_limited).expect("it costs more than nothing");
    assert!(resident.end().0.success());
    let saved = calltap_run(&["view", &trace, "--save", &page]);
    assert!(saved.status.success(), "{}", saved.stderr);
    let mut command = drive(&format!("file://{page}"), browser, "disabled");
    command.env("TMPDIR", program.directory());
    let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
    assert!(status.success(), "{stdout}{stderr}");
}
