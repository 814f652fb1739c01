//! `cargo xtask`: the developer's commands.

use anyhow::{Result, bail};
use std::process::ExitCode;
use xtask::{
    bench, book, chaos, ci, coverage, demo, dist, fuzz, fuzz_targets, landing, package, picture, programs,
    server, suites, test, watched,
};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo                      record a real program (lua) and show what calltap makes of it; results in target/demo/
  test [--long]             build calltap, run all tests, count what was skipped (CALLTAP_NO_SKIP=1: a skip is a failure);
                            --long: and those that take long
  ci                        all that has to pass before a change lands: format, lints, fuzzing, chaos, tests; with the time of each step
  book                      make a book of the documents, in target/book/html (needs mdbook)
  dist                      build calltap to give to others, in target/dist: one static file, a tarball and (with cargo-deb) a Debian package
  package                   make the crates as a registry has them, and check that calltap builds of them elsewhere
  picture                   make the README's animated picture, docs/demo.svg, of a real run (CALLTAP_BIN: of this calltap)
  programs [NAME...]        fetch and build the real programs for tests and benchmarks (lua, sqlite3; on request ripgrep, nginx)
                            into target/programs/
  bench [--quick] [--write] [PART...]
                            measure calltap beside uftrace and the bare programs; --write: into docs/explanation/performance.md; PART: only what has this
                            word in its name (call, off, mcount, reading, start-up, switching, patch-modes)
  bench [--quick] [ROW...] --compare BINARY
                            which rows of the cost of a call have changed beyond noise beside another calltap, in interleaved pairs; ROW: only rows with
                            this word in their names (fib, leaf, lua, sqlite3; function_graph, overwrite, function, sparse, counter, profile)
  coverage [--write] [FILE...] | --used [--write] [NAME...]
                            how much of programs and libraries can be traced as they are: as distributions ship them, or in these files; --write:
                            into docs/reference/coverage.md; --used: programs of the suite `everyday` run alone and with all functions of all their
                            files traced, children's too: outcomes are compared, functions and calls counted
  suites [NAME...]          unmodified programs run their own tests, alone and traced; outcomes are compared (bash, coreutils, everyday, git, lua, nginx, postgres,
                            python3.11, redis, ripgrep, sqlite3); installs nothing, says what it needs
  fuzz [--seconds N] [--seed S]
                            run every fuzz target on changed seeds, so many seconds each (30)
  fuzz-programs [--seconds N] [--seed S]
                            generated programs, alone and traced: same output and end; calls, callers and depths compared with a debugger's; one that
                            fails is made smaller and printed with how to build and run it (CALLTAP_BIN: this calltap, else it is built)
  landing [--seconds N] [--seed S] | --levels [--seed S] | --installed [NAME...]
                            where jumps of generated programs, or of the distribution's as the suite `everyday` uses them, land under callgrind, against
                            what is known of their code: none may land on what a site overwrites; --levels: generated programs in C and C++, each
                            by gcc and clang at every level of optimization
  chaos [--seconds N] [--seed S] [--round R]
                            programs that check their own work are attached to, switched and left at random, and calltap is killed meanwhile;
                            --round: only this round of the seed
  server [--quick]          load nginx (with wrk) while calltap attaches, records, switches and detaches; every answer is compared
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let Some((command, rest)) = words.split_first() else { bail!("no command named\n\n{USAGE}") };
    match *command {
        "demo" => {
            flags(rest, &[])?;
            demo::run()
        }
        "test" => {
            flags(rest, &["--long"])?;
            test::run(rest.contains(&"--long"))
        }
        // cargo runs test binaries through this command, for `test`.
        "watched" => watched::run(rest),
        "book" => {
            flags(rest, &[])?;
            book::run()
        }
        "dist" => {
            flags(rest, &[])?;
            dist::run()
        }
        "package" => {
            flags(rest, &[])?;
            package::run()
        }
        "picture" => {
            flags(rest, &[])?;
            picture::run()
        }
        "ci" => {
            flags(rest, &[])?;
            ci::run()
        }
        "programs" => programs::command(rest),
        "bench" => bench::command(rest),
        "coverage" => {
            let (given, files): (Vec<&str>, Vec<&str>) = rest.iter().partition(|word| word.starts_with('-'));
            flags(&given, &["--write", "--used"])?;
            let run = if given.contains(&"--used") { coverage::run_used } else { coverage::run };
            run(&files, given.contains(&"--write"))
        }
        "fuzz" => fuzz_targets::run(rest),
        "fuzz-programs" => fuzz::run(number(rest, "--seconds", 60)?, number(rest, "--seed", 1)?),
        "landing" => landing::run(&match rest.split_first() {
            Some((&"--installed", names)) => landing::Programs::Installed(names),
            Some((&"--levels", rest)) => landing::Programs::Levels { seed: number(rest, "--seed", 1)? },
            _ => landing::Programs::Generated {
                seconds: number(rest, "--seconds", 60)?,
                seed: number(rest, "--seed", 1)?,
            },
        }),
        "chaos" => chaos::run(chaos_options(rest)?),
        "suites" => suites::run(rest),
        "server" => {
            flags(rest, &["--quick"])?;
            server::run(rest.contains(&"--quick"))
        }
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("no command '{other}'\n\n{USAGE}"),
    }
}

/// Returns the value of a numeric option.
fn number(words: &[&str], name: &str, default: u64) -> Result<u64> {
    let known = ["--seconds", "--seed"];
    let mut found = default;
    for pair in words.chunks(2) {
        let &[option, value] = pair else { bail!("{} has no value\n\n{USAGE}", pair[0]) };
        flags(&[option], &known)?;
        let value = value.parse().map_err(|_| anyhow::anyhow!("{option} {value}: no number\n\n{USAGE}"))?;
        if option == name {
            found = value;
        }
    }
    Ok(found)
}

fn chaos_options(words: &[&str]) -> Result<chaos::Options> {
    let mut options = chaos::Options { seconds: 60, seed: 1, round: None };
    for pair in words.chunks(2) {
        let [name, value] = pair else { bail!("'{}' needs a number\n\n{USAGE}", pair[0]) };
        let Ok(number) = value.parse() else { bail!("'{name}' needs a number, not '{value}'\n\n{USAGE}") };
        match *name {
            "--seconds" => options.seconds = number,
            "--seed" => options.seed = number,
            "--round" => options.round = Some(number),
            other => bail!("unknown argument '{other}'\n\n{USAGE}"),
        }
    }
    Ok(options)
}

fn flags(given: &[&str], known: &[&str]) -> Result<()> {
    match given.iter().find(|flag| !known.contains(flag)) {
        Some(flag) => bail!("unknown argument '{flag}'\n\n{USAGE}"),
        None => Ok(()),
    }
}
