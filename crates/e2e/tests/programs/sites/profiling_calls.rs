//! Programs compiled with -pg: the calls at functions' entries are no longer made.

use calltap_e2e::{BUILDS, Expect, compile, record, run};
use std::process::Command;

#[test]
fn no_call_of_profiling_function_remains() {
    for (build, more) in
        [(&BUILDS[1], &[][..]), (&BUILDS[1], &["-no-pie"]), (&BUILDS[2], &[]), (&BUILDS[2], &["-static"])]
    {
        let program = compile(build, &["own_mcount.c"], more);
        let mut command = Command::new(&program.path);
        command.current_dir(program.directory());
        let alone = run(command, b"");
        assert!(alone.stdout.contains("profiled 2001\n"), "{}: {}", build.name, alone.stdout);
        for flags in [&["-F", "wanted"][..], &["--tracer", "profile"]] {
            let recording = record(&program, flags, &Expect::default());
            assert!(
                recording.run.stdout.contains("profiled 0\n"),
                "{}: {}",
                build.name,
                recording.run.stdout
            );
            recording.counts_agree(&Expect::default());
        }
    }
}
