//! Runs the generated programs that once failed, in every mode.

use xtask::{fuzz, shell};

#[test]
fn programs_that_once_failed_do_the_same_traced() {
    let calltap = shell::calltap().expect("a calltap");
    let count = fuzz::run_regressions(&calltap).expect("the same output, end and calls as alone");
    assert!(count > 0, "no programs are kept");
}
