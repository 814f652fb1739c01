//! `calltap diff`: compares two sides, each of one recording or several.

use crate::command_line::arguments::Arguments;
use crate::command_line::values;
use crate::command_line::view_flags;
use crate::input;
use crate::terminal::output::{self, Output};
use crate::terminal::progress::Progress;
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::diff::{Outcome, evidence::MIN_RECORDINGS};
use calltap_analysis::{Glob, Source, Word, diff};
use calltap_trace::TraceReader;
use std::path::Path;
use std::process::ExitCode;

/// Exit status where a condition of failure is met.
const FAILED: u8 = 3;
/// Exit status where the recordings are too few to test a condition, and no condition is met.
const NOT_ENOUGH_EVIDENCE: u8 = 4;

/// Compares the two sides. The exit status says which conditions are met.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let paths = sides(arguments)?;
    let options = options(arguments)?;
    let open_all =
        |paths: &Vec<String>| paths.iter().map(|path| input::open(path.as_ref())).collect::<Result<Vec<_>>>();
    let readers = [open_all(&paths[0])?, open_all(&paths[1])?];
    for word in arguments.names("function") {
        // A function may be new, or gone.
        let matched = readers.iter().flatten().map(|reader| view_flags::must_match(reader.meta(), &word));
        matched.reduce(|before, one| before.or(one)).unwrap_or(Ok(()))?;
    }
    let sources = [0, 1].map(|side: usize| {
        let named = paths[side].iter().zip(&readers[side]);
        named.map(|(path, reader)| (path.as_str(), reader as &dyn Source)).collect::<Vec<_>>()
    });
    let mut progress = Progress::new(readers.iter().flatten().map(TraceReader::event_count).sum());
    let mut out = Output::create(arguments)?;
    let diff = diff::collect([&sources[0], &sources[1]], &options, Some(&mut |done| progress.set(done)))?;
    progress.finish();
    let json = arguments.is_set("json") || arguments.text("format").as_deref() == Some("json");
    if json {
        diff.write_json(&mut out)?
    } else {
        diff.write_text(&mut out)?
    }
    out.finish()?;
    Ok(conclude(&diff.outcomes))
}

/// Tells the outcome of the conditions, and returns the exit status for it.
fn conclude(outcomes: &[Outcome]) -> ExitCode {
    let mut said: Vec<String> = Vec::new();
    said.extend(outcomes.iter().flat_map(Outcome::sentences));
    let failed = !said.is_empty();
    said.extend(outcomes.iter().filter_map(Outcome::doubt));
    let doubtful = said.len();
    said.extend(outcomes.iter().filter_map(Outcome::lack));
    let lacking = said.len() > doubtful;
    if outcomes.iter().any(Outcome::has_too_few_recordings) {
        said.push(format!(
            "type 'calltap record --repeat {MIN_RECORDINGS} -o A -- PROGRAM', the same with -o B for the other program, and 'calltap diff \"A.*\" \"B.*\" ...'"
        ));
    }
    said.iter().for_each(|sentence| tell!("calltap: {sentence}"));
    match (failed, lacking) {
        (true, _) => ExitCode::from(FAILED),
        (false, true) => ExitCode::from(NOT_ENOUGH_EVIDENCE),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Returns the files of A and B: two operands, or those in front of `--` and those behind it; each
/// may be a glob.
fn sides(arguments: &Arguments) -> Result<[Vec<String>; 2]> {
    let (first, behind) = (arguments.texts("operand"), arguments.texts("more"));
    let [a, b] = match (&first[..], &behind[..]) {
        ([a, b], []) => [vec![a.clone()], vec![b.clone()]],
        (_, []) => bail!(
            "diff compares two traces, or several with several: calltap diff A B, calltap diff 'A.*' 'B.*', calltap diff A.1 A.2 -- B.1 B.2"
        ),
        _ => [first, behind],
    };
    let expand = |operands: Vec<String>| -> Result<Vec<String>> {
        let found: Vec<Vec<String>> = operands.iter().map(|operand| files(operand)).collect::<Result<_>>()?;
        Ok(found.concat())
    };
    Ok([expand(a)?, expand(b)?])
}

/// Returns a file, or all files whose names a glob matches, in the order of their numbers.
fn files(operand: &str) -> Result<Vec<String>> {
    let path = Path::new(operand);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.exists() || !name.contains(['*', '?', '[']) {
        return Ok(vec![operand.to_owned()]);
    }
    let glob = Glob::new(&name);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    let entries = directory.read_dir().with_context(|| directory.display().to_string())?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut matching: Vec<String> = names.filter(|name| glob.matches(name)).collect();
    if matching.is_empty() {
        bail!("{operand}: no file has such a name");
    }
    matching.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    Ok(matching
        .into_iter()
        .map(|name| parent.map_or(name.clone(), |parent| parent.join(&name).display().to_string()))
        .collect())
}

fn options(arguments: &Arguments) -> Result<diff::Options> {
    let conditions = arguments.texts("fail-if");
    let conditions =
        conditions.iter().map(|text| text.parse().map_err(|error| anyhow!("--fail-if: {error}")));
    let options = diff::Options {
        by_path: arguments.is_set("paths"),
        columns: view_flags::list(arguments, "columns")?,
        sort: arguments.text("sort").unwrap_or_default().parse().map_err(anyhow::Error::msg)?,
        all: arguments.is_set("all"),
        filter: arguments.names("function").iter().map(|word| Word::listed(word)).collect(),
        limit: arguments.number("limit")?,
        min_change: values::share_of(arguments, "min-change")?.unwrap_or(0.0),
        conditions: conditions.collect::<Result<_>>()?,
        linker_names: arguments.is_set("linker-names"),
        short_names: output::is_short(arguments),
        width: output::line_width(arguments),
        ..diff::Options::default()
    };
    let by_function = |measure: &&diff::Measure| options.by_path && !measure.is_by_path();
    if let Some(measure) = options.columns.iter().chain([&options.sort]).find(by_function) {
        bail!("--paths: {} is not kept by call path, only by function", measure.name());
    }
    Ok(options)
}
