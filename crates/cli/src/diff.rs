//! `calltap diff`: two traces, compared.

use crate::arguments::Arguments;
use crate::output::Output;
use crate::progress::Progress;
use crate::{values, views};
use anyhow::{Result, anyhow, bail};
use calltap_analysis::{Glob, Source, diff};
use calltap_trace::TraceReader;
use std::process::ExitCode;

/// Of a comparison of which a condition holds.
const FAILED: u8 = 3;

/// Compares them, and says by its exit code what became of the conditions.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let paths = arguments.texts("operand");
    let [a, b] = &paths[..] else { bail!("diff compares two traces: calltap diff A B") };
    let options = options(arguments)?;
    let readers = [open(a)?, open(b)?];
    let sources: [(&str, &dyn Source); 2] = [(a, &readers[0]), (b, &readers[1])];
    let mut progress = Progress::new(readers.iter().map(TraceReader::event_count).sum());
    let mut out = Output::create(arguments)?;
    let diff = diff::collect(sources, &options, Some(&mut |done| progress.set(done)))?;
    progress.finish();
    let json = arguments.is_set("json") || arguments.text("format").as_deref() == Some("json");
    if json {
        diff.write_json(&mut out)?
    } else {
        diff.write_text(&mut out)?
    }
    out.finish()?;
    let failed: Vec<String> = diff.outcomes.iter().flat_map(|outcome| outcome.sentences()).collect();
    failed.iter().for_each(|sentence| eprintln!("calltap: {sentence}"));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn open(path: &str) -> Result<TraceReader> {
    let reader = TraceReader::open(path.as_ref())?;
    for complaint in reader.complaints() {
        eprintln!("calltap: {path}: {complaint}");
    }
    Ok(reader)
}

fn options(arguments: &Arguments) -> Result<diff::Options> {
    let conditions = arguments.texts("fail-if");
    let conditions =
        conditions.iter().map(|text| text.parse().map_err(|error| anyhow!("--fail-if: {error}")));
    let options = diff::Options {
        by_path: arguments.is_set("paths"),
        columns: views::list(arguments, "columns")?,
        sort: arguments.text("sort").unwrap_or_default().parse().map_err(anyhow::Error::msg)?,
        all: arguments.is_set("all"),
        filter: arguments.texts("function").iter().map(|glob| Glob::new(glob)).collect(),
        limit: arguments.number("limit")?,
        min_change: values::share(&arguments.text("min-change").unwrap_or_default())?.unwrap_or(0.0),
        conditions: conditions.collect::<Result<_>>()?,
        linker_names: arguments.is_set("linker-names"),
        ..diff::Options::default()
    };
    let by_function = |measure: &&diff::Measure| options.by_path && !measure.is_by_path();
    if let Some(measure) = options.columns.iter().chain([&options.sort]).find(by_function) {
        bail!("--paths: {} is not kept by call path, only by function", measure.name());
    }
    Ok(options)
}
