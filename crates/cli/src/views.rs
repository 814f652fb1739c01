//! `report`, `replay`, `graph`, `info`, `export`: views of a trace.
//!
//! The trace is opened, its defects are told, and the part that the flags select is passed to the
//! view or exporter, which writes to a file, a pager or standard output.

use crate::answers::lookup::in_files;
use crate::command_line::arguments::Arguments;
use crate::command_line::part;
use crate::command_line::view_flags::{list, must_match, table_format};
use crate::ending::is_broken_pipe;
use crate::input;
use crate::stat;
use crate::terminal::output::{self, Lines, Output};
use crate::terminal::progress::Progress;
use crate::view::source;
use anyhow::{Result, anyhow, bail};
use calltap_analysis::paths::By;
use calltap_analysis::{
    Part, Source, Totals, Word, goroutines, graph, info, left_out, replay, report, units,
};
use calltap_export::{self as export, Format};
use calltap_trace::{Meta, SiteId};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Forms in which a trace is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Report,
    /// `report --by goroutine`.
    Goroutines,
    Replay,
    Graph,
    Info,
    /// `export --to otlp`: the calls of some functions, as spans.
    Spans,
    /// `export --to parquet`, into a directory.
    Dataset,
    Export,
}

impl Form {
    fn of(command: &str, arguments: &Arguments) -> Form {
        match (command, arguments.text("to").as_deref()) {
            ("report", _) if arguments.text("by").is_some() => Form::Goroutines,
            ("report", _) => Form::Report,
            ("replay", _) => Form::Replay,
            ("graph", _) => Form::Graph,
            ("info", _) => Form::Info,
            (_, Some("otlp")) => Form::Spans,
            (_, Some("parquet")) => Form::Dataset,
            _ => Form::Export,
        }
    }

    /// Whether `-F` limits the calls that are read. Tables and spans are of its functions, with the
    /// times that they have in the whole.
    fn leaves_out_functions(self) -> bool {
        matches!(self, Form::Replay | Form::Dataset | Form::Export)
    }

    /// Whether a function's waits in the Go runtime are added to the states of its threads. The
    /// list of goroutines derives them by itself.
    fn adds_waits(self) -> bool {
        matches!(self, Form::Report | Form::Graph)
    }

    /// Whether its first lines say what the trace lacks.
    fn has_head(self, arguments: &Arguments) -> bool {
        let is_text = matches!(arguments.format().as_deref(), None | Some("text"));
        match self {
            Form::Info => true,
            Form::Report | Form::Goroutines | Form::Replay | Form::Graph => is_text,
            Form::Spans | Form::Dataset | Form::Export => false,
        }
    }
}

/// Opens the trace, tells its defects, and shows it by the command `name`.
pub fn run(name: &str, arguments: &Arguments) -> Result<()> {
    if name == "report" && arguments.is_set("profile") {
        return stat::run(arguments);
    }
    if arguments.words("pid").pop().is_some() {
        bail!(
            "-p needs 'report --profile'; other commands for a running process: 'calltap top -p PID', 'calltap record -p PID'"
        );
    }
    let path = arguments.shown().unwrap_or_default();
    let reader = input::open(&path).map_err(|error| anyhow!("{error}{}", instead_of_file(name, &path)))?;
    let form = Form::of(name, arguments);
    // In a call graph, `--depth` limits the table instead of the calls.
    let depth_is_of_calls = form != Form::Graph;
    let scheduled = goroutines::Scheduled::new(&reader);
    let whole: &dyn Source = if form.adds_waits() { &scheduled } else { &reader };
    let part =
        Part::new(whole, part::which(&reader, arguments, depth_is_of_calls, form.leaves_out_functions())?);
    let source: &dyn Source = &part;
    let shown = show(form, source, arguments);
    // A refused command line has its line alone. A reader that has closed its end has read a part.
    if !form.has_head(arguments) && shown.as_ref().err().is_none_or(is_broken_pipe) {
        say_part(source);
        warn_of_loss(source.meta());
        warn_of_left_out(source);
    }
    shown
}

fn show(form: Form, source: &dyn Source, arguments: &Arguments) -> Result<()> {
    if form == Form::Dataset {
        return dataset(source, arguments);
    }
    if matches!(form, Form::Export | Form::Spans) {
        refuse_terminal(arguments)?;
    }
    let mut out = Output::create(arguments)?;
    let mut progress = Progress::new(source.event_count());
    let view = View { source, arguments, linker_names: arguments.is_set("linker-names") };
    match form {
        Form::Report => view.report(&mut out, &mut progress)?,
        Form::Goroutines => view.goroutines(&mut out, &mut progress)?,
        Form::Replay => view.replay(&mut out, &mut progress)?,
        Form::Graph => view.graph(&mut out, &mut progress)?,
        Form::Info => view.info(&mut out)?,
        Form::Spans | Form::Dataset | Form::Export => view.export(&mut out, &mut progress)?,
    }
    progress.finish();
    out.finish()
}

/// Returns a hint for a word that is no file, and may be a format or a function.
fn instead_of_file(command: &str, path: &Path) -> String {
    let word = path.to_string_lossy();
    if word == "-" || path.exists() || word.contains(['/', '.']) {
        return String::new();
    }
    match command {
        "export" => format!("; FILE is a trace, and --to {word} a format"),
        "replay" => format!("; FILE is a trace, and --graph {word} names a function"),
        _ => format!("; FILE is a trace, and -F {word} names a function"),
    }
}

/// Refuses to write a binary format to a terminal.
fn refuse_terminal(arguments: &Arguments) -> Result<()> {
    let format = arguments.text("to").unwrap_or_default();
    let is_stdout = arguments.output_file().is_none();
    let is_binary = Format::of_name(&format).is_some_and(|format| format.is_binary);
    if is_binary && is_stdout && std::io::stdout().is_terminal() {
        bail!(
            "--to {format} is binary and not written to a terminal: name a file with -o FILE, or pipe it into a program"
        );
    }
    Ok(())
}

struct View<'a> {
    source: &'a dyn Source,
    arguments: &'a Arguments,
    linker_names: bool,
}

impl View<'_> {
    /// Shows the goroutines instead of functions.
    fn goroutines(&self, out: &mut dyn Write, progress: &mut Progress) -> Result<()> {
        let given = ["sort", "columns", "function", "by-thread", "lines"]
            .into_iter()
            .find(|name| self.arguments.is_given(name));
        if let Some(name) = given {
            bail!("report --by goroutine: --{name} is about functions, of which this list has none");
        }
        let options = goroutines::Options {
            limit: self.arguments.number("limit")?,
            linker_names: self.linker_names,
            width: output::line_width(self.arguments),
            lookup: Some(in_files(String::new())),
        };
        let format = table_format(self.arguments);
        goroutines::write(self.source, options, format, out, Some(&mut |done| progress.set(done)))?;
        Ok(())
    }

    fn report(&self, out: &mut dyn Write, progress: &mut Progress) -> Result<()> {
        let globs = self.arguments.names("function");
        for glob in &globs {
            must_match(self.source.meta(), glob)?;
        }
        let sort = self.arguments.text("sort").unwrap_or_default();
        let options = report::Options {
            sort: sort.parse().map_err(anyhow::Error::msg)?,
            columns: list(self.arguments, "columns")?,
            filter: globs.iter().map(|word| Word::listed(word)).collect(),
            by_thread: self.arguments.is_set("by-thread"),
            limit: self.arguments.number("limit")?,
            linker_names: self.linker_names,
            short_names: output::is_short(self.arguments),
            colour: output::is_coloured(self.arguments),
            width: output::line_width(self.arguments),
            source_line: self.arguments.is_set("lines").then_some(source_line),
            ..report::Options::default()
        };
        let format = table_format(self.arguments);
        report::write(self.source, &options, format, out, Some(&mut |done| progress.set(done)))?;
        Ok(())
    }

    fn replay(&self, out: &mut dyn Write, progress: &mut Progress) -> Result<()> {
        let options = replay::Options {
            threads: calltap_analysis::threads_with_events(self.source),
            linker_names: self.linker_names,
            short_names: output::is_short(self.arguments),
            colour: output::is_coloured(self.arguments),
            width: output::line_width(self.arguments),
            no_sched: self.arguments.is_set("no-sched"),
            within_calls: part::chooses_calls(self.arguments),
            time: part::stamp(self.source, self.arguments)?,
            source_line: self.arguments.is_set("lines").then_some(source_line),
            layout: match self.arguments.format().as_deref() {
                Some("json") => replay::Layout::Json,
                _ => replay::Layout::Auto,
            },
            ..replay::Options::default()
        };
        let mut lines = Lines::new(out, self.arguments.number("limit")?);
        let result = replay::write(self.source, &options, &mut lines, Some(&mut |done| progress.set(done)));
        if lines.is_full() {
            return Ok(());
        }
        result?;
        Ok(())
    }

    /// Returns the number of levels of a table; 0 is all.
    fn levels(&self) -> Result<u32> {
        match self.arguments.number("depth")? {
            Some(0) => bail!("--depth: no call is 0 levels deep; 1 is the outermost calls"),
            levels => Ok(levels.unwrap_or(0)),
        }
    }

    fn graph(&self, out: &mut dyn Write, progress: &mut Progress) -> Result<()> {
        let words = self.arguments.names("function");
        words.iter().try_for_each(|word| must_match(self.source.meta(), word))?;
        let options = graph::Options {
            functions: words.iter().map(|word| Word::listed(word)).collect(),
            depth: self.levels()?,
            json: self.arguments.format().as_deref() == Some("json"),
            min_percent: min_percent(self.arguments)?,
            linker_names: self.linker_names,
            short_names: output::is_short(self.arguments),
            colour: output::is_coloured(self.arguments),
            width: output::line_width(self.arguments),
            ..graph::Options::default()
        };
        graph::write(self.source, &options, out, Some(&mut |done| progress.set(done)))?;
        Ok(())
    }

    fn info(&self, out: &mut dyn Write) -> Result<()> {
        let json = self.arguments.format().as_deref() == Some("json");
        let options = info::Options { json, ..info::Options::default() };
        info::write(self.source, &options, out)?;
        Ok(())
    }

    fn export(&self, out: &mut dyn Write, progress: &mut Progress) -> Result<()> {
        let version = match self.arguments.text("format-version").as_deref() {
            Some("7") => export::Version::V7,
            _ => export::Version::V6,
        };
        let format = self.arguments.text("to");
        let globs = self.arguments.names("function");
        match (format.as_deref() == Some("otlp"), globs.is_empty()) {
            (true, true) => bail!("--to otlp needs -F, which names the functions that become spans"),
            (true, false) if !self.source.has_time() => {
                bail!("--to otlp needs times, and the trace has none (--clock counter)")
            }
            (false, _) if self.arguments.text("trace-id").is_some() => {
                bail!("--trace-id needs '--to otlp': it joins spans")
            }
            _ => {}
        }
        globs.iter().try_for_each(|glob| must_match(self.source.meta(), glob))?;
        let by = self.by(format.as_deref())?;
        let options = export::Options {
            by,
            linker_names: self.linker_names,
            version,
            functions: globs.iter().map(|word| Word::listed(word)).collect(),
            trace_id: self.arguments.text("trace-id"),
            ..export::Options::default()
        };
        let name = format.as_deref().unwrap_or_default();
        let Format { write, .. } =
            Format::of_name(name).ok_or_else(|| anyhow!("--to: no format '{name}'"))?;
        warn(&write(self.source, &options, out, Some(&mut |done| progress.set(done)))?);
        Ok(())
    }

    /// Returns the kind of time that flame graphs show.
    fn by(&self, format: Option<&str>) -> Result<By> {
        let by: By = self.arguments.text("by").unwrap_or_default().parse().map_err(anyhow::Error::msg)?;
        if by == By::Wall {
            return Ok(by);
        }
        if !matches!(format, Some("flamegraph" | "folded")) {
            bail!("--by needs '--to flamegraph' or '--to folded': it chooses their time");
        }
        if !self.source.has_switches() {
            bail!("--by {}: the trace does not say when threads ran (docs/guides/waits.md)", by.name());
        }
        Ok(by)
    }
}

/// Returns the source line of a function, with the path as seen from the working directory.
fn source_line(meta: &Meta, site: SiteId) -> Option<String> {
    let found = source::of(meta, site)?;
    let path = Path::new(&found.file);
    let here = std::env::current_dir().ok();
    let path = here.and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path);
    Some(format!("{}:{}", path.display(), found.line))
}

/// Parses `--min-percent`, 0 to 100.
fn min_percent(arguments: &Arguments) -> Result<f64> {
    let least = arguments.number("min-percent")?.unwrap_or(0.0);
    if !(0.0..=100.0).contains(&least) {
        bail!("--min-percent: '{least}' is no share: 0 to 100");
    }
    Ok(least)
}

/// Prints which part of a trace is shown, for outputs without a line for it.
fn say_part(source: &dyn Source) {
    if let Some(part) = source.part() {
        tell!("calltap: a part of the trace: {part}; calls that its bounds cut have no durations");
    }
}

/// Tells that events were lost, for outputs without a line for it.
fn warn_of_loss(meta: &Meta) {
    let lost: u64 = meta.loss.iter().map(|loss| loss.lost_entries.saturating_add(loss.lost_exits)).sum();
    if lost > 0 {
        tell!("calltap: {} lost: the output is not complete", units::counted(lost, "event"));
    }
}

/// Prints which calls the recording left out, for outputs without a line for it.
fn warn_of_left_out(source: &dyn Source) {
    for sentence in left_out::sentences(source) {
        tell!("calltap: {sentence}");
    }
}

fn warn(totals: &Totals) {
    if let Some(first) = &totals.first_damage {
        tell!(
            "calltap: parts of the file are unreadable and left out: {}; the first: {first}",
            totals.damaged
        );
    }
}

/// Exports into a directory of Parquet files.
fn dataset(source: &dyn Source, arguments: &Arguments) -> Result<()> {
    let Some(directory) = arguments.output_file() else {
        bail!("--to parquet writes into a directory: name it with -o");
    };
    let mut progress = Progress::new(source.event_count());
    let written = calltap_dataset::export(source, &directory, Some(&mut |done| progress.set(done)))?;
    progress.finish();
    warn(&written.totals);
    let (rows, files) =
        (units::counted(written.rows, "row"), units::counted(written.files.len() as u64, "file"));
    tell!("calltap: {rows} in {files} in {}", directory.display());
    Ok(())
}
