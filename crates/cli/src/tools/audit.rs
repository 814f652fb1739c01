//! `calltap tools audit`: checks a log of code changes.

use crate::command_line::arguments::Arguments;
use crate::terminal::output::Output;
use anyhow::{Context, Result, bail};
use calltap_analysis::units;
use calltap_patch::Audit;
use calltap_patch::log::Entry;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};

/// Number of faults that are listed.
const SHOWN: usize = 20;

/// Checks a log.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = arguments.path("operand").unwrap_or_default();
    let name = path.display().to_string();
    let file = File::open(&path).with_context(|| name.clone())?;
    let mut audit = Audit::default();
    let mut lines = 0;
    let mut lines_of_file = BufReader::new(file).lines().peekable();
    while let Some(line) = lines_of_file.next() {
        let line = match line {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                bail!("{name}: not a log of code changes, as --patch-log writes it")
            }
            line => line.with_context(|| name.clone())?,
        };
        lines += 1;
        match line.parse::<Entry>() {
            Ok(entry) => audit.add(entry),
            // The writer was killed, so the last line may be incomplete.
            Err(_) if lines_of_file.peek().is_none() && lines > 1 => {}
            Err(_) => bail!("{name}: line {lines} is not an entry of a log of code changes"),
        }
    }
    let audit = audit.finish();
    let mut out = Output::create(arguments)?;
    for (line, what) in audit.faults.iter().take(SHOWN) {
        writeln!(out, "line {line}: {what}")?;
    }
    let count = |n: usize| units::count(n as u64);
    writeln!(
        out,
        "batches  {}, {} cut short",
        count(audit.batches + audit.cut_short),
        count(audit.cut_short)
    )?;
    writeln!(out, "changes  {}, {} refused", count(audit.changes), count(audit.refused))?;
    writeln!(out, "writes   {}", count(audit.writes))?;
    writeln!(out, "syncs    {}", count(audit.syncs))?;
    writeln!(out, "faults   {}", count(audit.faults.len()))?;
    out.finish()?;
    match audit.faults.len() {
        0 => Ok(()),
        1 => bail!("{name}: the logged changes break a rule once"),
        n => bail!("{name}: the logged changes break rules {n} times"),
    }
}
