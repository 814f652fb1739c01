//! Functions of Go that do not check their stack.

use super::{noted, traced};
use calltap_e2e::*;

#[test]
fn calls_of_leaves_nest_as_each_goroutine_noted() {
    for go in Go::all() {
        let program = go.compile("leaves.go", &[]);
        for processors in ["1", "4"] {
            let recording = record_leaves(&program, processors, &["-F", "main.leaf*"]);
            let (expected, got) = (noted(&recording.run.stdout), traced(&recording.export("csv")));
            let wrong = expected.iter().find(|(goroutine, calls)| got.get(goroutine) != Some(calls));
            assert_eq!(wrong, None, "{}: of {} goroutines", recording.what, got.len());
            assert_eq!(got.len(), expected.len(), "{}", recording.what);
        }
        // Everything, the runtime's own leaves included.
        let recording = record_leaves(&program, "4", &[]);
        let atomics = recording.run.stdout.lines().find_map(|line| line.strip_prefix("atomic "));
        let rows = recording.rows();
        let calls = rows.iter().find(|row| row["function"] == "main.leafAtomic").map(|row| &row["calls"]);
        let counted = atomics.and_then(|count| count.parse::<u64>().ok());
        assert_eq!(calls.and_then(|calls| calls.as_u64()), counted, "{}", recording.what);
    }
}

fn record_leaves(program: &Program, processors: &str, filter: &[&str]) -> Recording {
    let expect = Expect { arguments: &[processors, "100"], uncounted: true, ..Expect::default() };
    let recording = record(program, filter, &expect);
    assert!(recording.run.status.success(), "{}: {}", recording.what, recording.run.stderr);
    assert_eq!(recording.info()["calls"]["lost"], 0, "{}", recording.what);
    recording
}

// Threads run leaves all the time while jumps are written and taken back.
#[test]
fn leaves_run_on_while_calltap_attaches_and_detaches() {
    for go in Go::all() {
        let program = go.compile("resident.go", &[]);
        let mut resident = Resident::start(&program, &["stay"]);
        for _ in 0..8 {
            let has_some = |resident: &Resident| resident.sound().0 > 0;
            let run = resident.attach_until(&["-F", "main.leaf*"], has_some);
            assert!(run.status.success() && resident.runs(), "{}: {}", program.name, run.stderr);
            assert_eq!(changed_text(resident.pid), [""; 0], "{}", program.name);
        }
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{}: {status} {output}{errors}", program.name);
    }
}
