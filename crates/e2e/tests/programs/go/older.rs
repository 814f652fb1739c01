//! Programs by toolchains that are no longer to be had: a bundler of JavaScript, as its authors
//! built it. `CALLTAP_ESBUILD` names a directory with npm's package for each version of Go, by that
//! version; .ci/run provides them.

use calltap_e2e::*;
use std::fmt::Write;
use std::path::PathBuf;

/// Modules of the bundled program. The bundler parses each in a goroutine of its own, and one more
/// of its own making.
const MODULES: usize = 40;

#[test]
fn a_program_by_an_older_go_has_its_goroutines_calls_and_durations() {
    let programs = bundlers();
    for program in &programs {
        let arguments = ["--bundle", "--log-level=error", "m1.ts"];
        let expect = Expect { arguments: &arguments, uncounted: true, ..Expect::default() };
        let parse = "github.com/evanw/esbuild/internal/js_parser.Parse";
        let recording = check(program, &[vec!["-F", parse], vec![]], &expect);
        assert_eq!(recording.info()["calls"]["lost"], 0, "{}", recording.what);
        let rows = recording.rows_by_thread();
        let parses: Vec<_> = rows.iter().filter(|row| row["function"] == parse).collect();
        assert_eq!(parses.len(), MODULES + 1, "{}", recording.what);
        for row in parses {
            assert_eq!((&row["thread"], &row["calls"]), (&"goroutine".into(), &1.into()), "{}", program.name);
            assert!(row["total_ns"].as_u64().is_some_and(|ns| ns > 0), "{}: {row}", program.name);
        }
    }
}

/// Returns the bundlers, each with modules beside it.
fn bundlers() -> Vec<Program> {
    let directory = std::env::var_os("CALLTAP_ESBUILD").map(PathBuf::from);
    let entries = directory.and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten();
    let all: Vec<Program> = entries
        .map(|entry| {
            let entry = entry.expect("a directory");
            let version = entry.file_name().to_string_lossy().into_owned();
            let program =
                Program::copied(&entry.path().join("bin/esbuild"), &format!("esbuild by {version}"));
            for n in 1..=MODULES {
                let mut text = format!("export function f{n}(a: number): number {{ return a + {n}; }}\n");
                if n < MODULES {
                    let next = n + 1;
                    write!(text, "import {{ f{next} }} from './m{next}';\nconsole.log(f{next}({n}));\n")
                        .expect("memory");
                }
                std::fs::write(program.directory().join(format!("m{n}.ts")), text).expect("a module");
            }
            program
        })
        .collect();
    if all.is_empty() {
        skipped("no programs by older Go here (CALLTAP_ESBUILD)");
    }
    all
}
