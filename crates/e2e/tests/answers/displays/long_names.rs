//! Long names of C++ on the page: short in tables, in full where they are asked for.

use super::view::{browser, drive};
use calltap_e2e::{BARE, Run, calltap_run, compile, have, run_timeout, skipped};
use std::time::Duration;

#[test]
fn in_a_browser_long_names_are_short() {
    let Some(browser) = browser() else { return };
    if !have("g++") {
        return skipped("g++");
    }
    let program = compile(&BARE[0], &["long_names.cpp"], &[]);
    let [trace, page] =
        ["t", "page.html"].map(|name| program.directory().join(name).to_string_lossy().into_owned());
    let path = program.path.to_string_lossy().into_owned();
    let recorded = calltap_run(&["record", "-q", "-F", "store::*,main", "-o", &trace, "--", &path]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let saved = calltap_run(&["view", &trace, "--save", &page]);
    assert!(saved.status.success(), "{}", saved.stderr);
    let mut command = drive(&format!("file://{page}"), browser, "names");
    command.env("TMPDIR", program.directory());
    let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
    assert!(status.success(), "{stdout}{stderr}");
}
