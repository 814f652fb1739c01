//! What `report` says about recordings.

mod common;
use calltap_analysis::report::{Format, Options, write};
use calltap_analysis::MemorySource;
use common::{output, recording, same};

fn report(source: &MemorySource, options: &Options, format: Format) -> String {
    output(|out| write(source, options, format, out, None))
}

#[track_caller]
fn check(events: &str, expected: &str) {
    same(&report(&recording(events), &Options::default(), Format::Text), expected);
}

#[test]
fn total_self_and_spread() {
    check(
        "main: E main @0; E f @10; X f @30; E f @40; X f @80; X main @100",
        "
        ",
    );
}
