//! Start-up, and the memory that the agent adds to the program: 20,000 functions, of which one is
//! called.

use super::Bench;
use super::expect::at_most;
use super::measure::{self, median};
use super::subjects::Subject;
use super::workloads;
use crate::programs::{Build, Variant, compile};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const FUNCTIONS: usize = 20_000;
const MAIN: &str = r#"
#include <stdio.h>
int main(int argc, char **argv) {
    char line[4096];
    FILE *maps = argc > 1 ? fopen("/proc/self/smaps", "r") : NULL, *copy = maps ? fopen(argv[1], "w") : NULL;
    while (copy && fgets(line, sizeof line, maps))
        fputs(line, copy);
    return 0;
}
"#;

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let source = bench.place.join("many.c");
    let mut code = String::from(MAIN);
    for index in 0..FUNCTIONS {
        writeln!(code, "int f{index}(int x) {{ return x + {index}; }}")?;
    }
    if fs::read_to_string(&source).ok().as_ref() != Some(&code) {
        fs::write(&source, code)?;
    }
    let [bare, nop, pg] =
        [Variant::Bare, Variant::Nop, Variant::Pg].map(|way| compile(&source, Build::gcc(way), &["-O1"]));
    let workload = workloads::single("many", [bare?, nop?, pg?]);
    let graph = Subject::Calltap("function_graph", &[]);
    let mut subjects = vec![Subject::Bare, graph];
    if bench.uftrace {
        subjects.push(Subject::Uftrace);
    }
    let mut all: Vec<Vec<measure::Cost>> = Vec::new();
    for _ in 0..2 * bench.rounds + 1 {
        all.push(
            subjects.iter().map(|subject| Ok(subject.run(bench, &workload)?.cost)).collect::<Result<_>>()?,
        );
    }
    let mut text = format!(
        "### Start-up and memory, {FUNCTIONS} functions\n\n\
         | tracer | added on the wall, ms | added processor time, ms |\n|---|--:|--:|\n"
    );
    for (index, subject) in subjects.iter().enumerate().skip(1) {
        let of = |what: fn(&measure::Cost) -> f64| {
            median(all.iter().map(|run| (what(&run[index]) - what(&run[0])) / 1e6).collect())
        };
        let wall = of(|cost| cost.wall);
        let wall = if *subject == graph { at_most(wall, 20.0, 1) } else { format!("{wall:.1}") };
        writeln!(text, "| {} | {wall} | {:.1} |", subject.name(), of(|cost| cost.cpu))?;
    }
    let file = bench.place.join("smaps");
    measure::run(Command::new(&workload.nop).arg(&file))?;
    let before = Maps::read(&file)?;
    let mut record = Command::new(&bench.calltap);
    record.args(["record", "--quiet", "-o"]).arg(graph.data(bench)).arg("--").arg(&workload.nop).arg(&file);
    measure::run(&mut record)?;
    let after = Maps::read(&file)?;
    writeln!(text, "\n| in the program | alone | traced | added |\n|---|--:|--:|--:|")?;
    let added = at_most(after.count - before.count, 20.0, 0);
    writeln!(text, "| mappings | {} | {} | {added} |", before.count, after.count)?;
    let mega = |kilo: f64| kilo / 1024.0;
    let added = at_most(mega(after.resident - before.resident), 2.0, 2);
    writeln!(
        text,
        "| resident, rings aside, MB | {:.2} | {:.2} | {added} |",
        mega(before.resident),
        mega(after.resident)
    )?;
    writeln!(text, "| rings, resident, MB | | {:.2} | |", mega(after.rings))?;
    text += &recorder_memory(bench, graph)?;
    Ok(text)
}

/// Measures the recorder with many short threads, whose records must not add up.
fn recorder_memory(bench: &Bench, graph: Subject) -> Result<String> {
    let threads = workloads::ours("threads.c", "threads", &["10000", "2000000", "4"].map(str::to_owned))?;
    let mut record = Command::new(&bench.calltap);
    record.args(["record", "--quiet", "-o"]).arg(graph.data(bench));
    record.arg("--").arg(&threads.nop).args(&threads.arguments);
    let resident = at_most(measure::peak(&mut record)? / 1024.0, 60.0, 1);
    Ok(format!(
        "\n| in the recorder, at most | MB |\n|---|--:|\n\
         | resident, of 10,000 threads of 199 calls each, 4 at a time | {resident} |\n"
    ))
}

/// The sums of `/proc/PID/smaps`.
struct Maps {
    count: f64,
    resident: f64,
    rings: f64,
}

impl Maps {
    fn read(path: &PathBuf) -> Result<Maps> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let (mut maps, mut ring) = (Maps { count: 0.0, resident: 0.0, rings: 0.0 }, false);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if line.starts_with(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c)) {
                maps.count += 1.0;
                ring =
                    words.last().is_some_and(|path| path.contains("/calltap-") && path.ends_with("/control"));
            } else if let ["Rss:", size, _] = words[..] {
                let size: f64 = size.parse()?;
                *(if ring { &mut maps.rings } else { &mut maps.resident }) += size;
            }
        }
        Ok(maps)
    }
}
