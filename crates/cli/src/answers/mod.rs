//! `calltap count`, `latency`, `slower`, `stacks`, `watch`, `futures`: questions about some
//! functions, answered live or from a trace file.
//!
//! The command line becomes a [`Kind`], which has the selection to trace. A session or a trace file
//! passes records and events to a listener, which holds the answer so far. Meanwhile a thread of
//! its own prints new lines, or draws the answer. The answer is written at the end.

mod feed;
pub mod lookup;
mod printer;
mod question;
mod question_subject;
mod read;
mod window;

use crate::command_line::arguments::Arguments;
use crate::command_line::part;
use crate::command_line::select;
use crate::command_line::table::MAX_WAIT;
use crate::command_line::values;
use crate::command_line::view_flags;
use crate::input;
use crate::terminal::output::{self, Output};
use crate::terminal::progress;
use crate::terminal::started;
use crate::{ended_session, ending, many, session_commands};
use anyhow::{Context, Result, bail};
use calltap_analysis::answers::{Listener, QueryContext, Question};
use calltap_analysis::{Names, Word, demangle, disabled, left_out, units};
use calltap_selection::ParsedSelection;
use calltap_session::{
    KernelOptions, Options, PlanOptions, RingOptions, SessionOutcome, Subject, Watch, watch,
};
use feed::Feed;
use printer::Printer;
use question::{Answer, Kind};
pub use question_subject::{QuestionSubject, take_trace};
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use window::Window;

/// Interval between two looks for new lines.
const STREAM: Duration = Duration::from_millis(100);
/// Interval between two drawings of the screen.
const REDRAW: Duration = Duration::from_secs(1);

/// Answers the question that the command line asks. The exit status is that of a started program.
pub fn run(name: &str, arguments: &Arguments) -> Result<ExitCode> {
    let mut words = arguments.words("operand");
    let subject = QuestionSubject::new(arguments, &mut words, arguments.words("program"))?;
    let kind = Kind::new(name, arguments, words, matches!(subject, QuestionSubject::File(_)))?;
    let globs = kind.asked().map(|word| Word::listed(word)).collect();
    let linker_names = arguments.is_set("linker-names");
    if !matches!(subject, QuestionSubject::Process(_)) && arguments.text("duration").is_some() {
        bail!("--duration needs '-p PID': a program that calltap starts is watched until it ends");
    }
    let subject = match subject {
        QuestionSubject::File(path) => {
            let known = known_of(
                arguments,
                QueryContext::new(globs, linker_names, Some(lookup::in_files(String::new()))),
            );
            return of_file(Listener::new(known, kind.ask(false)), &kind, &path, arguments);
        }
        QuestionSubject::Program(command) => Subject::Program(command),
        QuestionSubject::Process(pid) => Subject::Process {
            pid,
            max_overhead: match kind.sums() {
                true => None,
                false => values::share_of(arguments, "max-overhead")?,
            },
            duration: values::time_of(arguments, "duration")?,
        },
    };
    let starts = matches!(subject, Subject::Program(_));
    let root =
        if let Subject::Process { pid, .. } = subject { format!("/proc/{pid}/root") } else { String::new() };
    let known = known_of(arguments, QueryContext::new(globs, linker_names, Some(lookup::in_files(root))));
    let mut words = kind.words(arguments);
    select::add_futures(&mut words, &subject)?;
    let selection = ParsedSelection::about(&words, arguments.is_set("later"), &kind.required())?;
    let rings = RingOptions {
        buffer_size: values::buffer_size(arguments)?,
        wait: values::time(MAX_WAIT)?,
        ..RingOptions::default()
    };
    let plan = PlanOptions::new(selection, values::patch_mode(arguments, starts)?);
    let options = Options {
        rings,
        kernel: KernelOptions {
            sched: kind.tells_waits() && !arguments.is_set("no-sched"),
            ..KernelOptions::default()
        },
        reports: started::REPORTS,
        ..Options::new(subject, plan)
    };
    of_process(Listener::new(known, kind.ask(true)), &kind, &options, arguments)
}

/// Applies the user's choice of names and times.
fn known_of(arguments: &Arguments, mut known: QueryContext) -> QueryContext {
    if output::is_short(arguments) {
        known.shorten_names();
    }
    known.wall = (arguments.text("time").as_deref() == Some("wall")).then_some(part::wall);
    known
}

fn of_process(
    listener: Listener<Answer>,
    kind: &Kind,
    options: &Options,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let file = arguments.path("output").filter(|_| kind.streams());
    let printer = Printer::new(file.as_deref())?;
    let out = if kind.streams() { None } else { Output::create_file(arguments)? };
    let attaches = matches!(options.subject, Subject::Process { .. });
    // A program that calltap has started writes to the same terminal, so the answer is not drawn
    // there.
    let draws = attaches
        && !kind.streams()
        && !kind.json
        && stdout().is_terminal()
        && arguments.path("output").is_none();
    let mut window = Window::default();
    let mut feed = Feed::new(listener, &printer, draws, attaches.then(|| window.beginning()));
    let (mut seen, sums) = (Instant::now(), feed.sums());
    let watched = watch(
        options,
        Watch {
            consumer: &mut feed,
            interval: if kind.streams() { STREAM } else { REDRAW },
            settled: true,
            over: &|| printer.is_over(),
            meanwhile: &mut |controls| {
                if attaches {
                    window.note_enabled(kind, || controls.sums());
                }
                if kind.sums() && draws && seen.elapsed() >= REDRAW {
                    seen = Instant::now();
                    sums.set(controls.sums());
                }
            },
            mailbox: None,
            due: None,
        },
    );
    let mut listener = feed.finish();
    if let Some([first, last]) = window.readings() {
        let ns = last.at - first.at;
        listener.question.rates(&listener.known, [&first.rows, &last.rows], ns);
    }
    let outcome = match watched {
        Ok(outcome) => outcome,
        Err(error) => return Ok(many::refused(&error)),
    };
    let disabled = outcome.disabled_by_limit.iter().map(|(name, _)| demangle(name)).collect();
    let missing = listener.known.left_out();
    if kind.streams() {
        let mut last = Vec::new();
        answer(&mut listener, kind, (disabled, missing), &mut last)?;
        printer.finish(String::from_utf8_lossy(&last).into_owned());
    } else {
        drop(printer);
        let mut out = out.map_or_else(|| Output::create(arguments), Ok)?;
        answer(&mut listener, kind, (disabled, missing), &mut out)?;
        out.finish()?;
    }
    say(&outcome, &listener.known);
    let left = ExitCode::from(u8::from(!outcome.whole));
    Ok(outcome.status.map_or(left, ending::end_as))
}

fn of_file(
    mut listener: Listener<Answer>,
    kind: &Kind,
    path: &Path,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let reader = input::open(path)?;
    kind.asked().try_for_each(|glob| view_flags::must_match(reader.meta(), glob))?;
    kind.check(reader.meta()).with_context(|| path.display().to_string())?;
    let mut progress = progress::Progress::new(calltap_analysis::Source::event_count(&reader));
    let (mut out, mut written) = (Output::create(arguments)?, Ok(()));
    let totals = listener.read(&reader, Some(&mut |done| progress.set(done)), &mut |question| {
        written = out.write_all(question.take().as_bytes());
        written.is_err() || question.is_full()
    });
    written?;
    progress.finish();
    if let Some(damage) = totals.first_damage {
        tell!(
            "calltap: {} parts of the file are unreadable and left out; the first: {damage}",
            totals.damaged
        );
    }
    if listener.known.lost > 0 {
        tell!("calltap: {} lost: the answer is not complete", units::counted(listener.known.lost, "event"));
    }
    // Without a heading, notes on standard error take its place.
    let has_heading = kind.json || !kind.bare();
    let missing = if has_heading { left_out::by_rules(&reader) } else { left_out::sentences(&reader) };
    listener.question.sums(&listener.known, &reader.meta().profile);
    let names = Names::new(reader.meta(), false);
    let disabled = disabled::functions(reader.meta(), &names);
    answer(&mut listener, kind, (disabled, missing), &mut out)?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the answer at the end. `disabled`: the functions that the overhead limit disabled
/// meanwhile. `missing`: sentences about calls that the trace lacks.
fn answer(
    listener: &mut Listener<Answer>,
    kind: &Kind,
    (mut disabled, missing): (Vec<String>, Vec<String>),
    out: &mut dyn Write,
) -> Result<()> {
    listener.known.disabled = disabled.iter().cloned().collect();
    // The sentence names the first ones.
    disabled.sort_by_key(|name| !listener.known.asks_about(name));
    out.write_all(listener.question.take().as_bytes())?;
    let unmatched = listener.known.unmatched();
    let without_ends = listener.known.entries_only.sentence(&listener.known).filter(|_| !kind.sums());
    if kind.json {
        let mut object = listener.json(kind.name);
        object[disabled::KEY] = disabled.into();
        object[left_out::KEY] = missing.into();
        object["unmatched"] = unmatched.into();
        object["entries_only"] = listener.known.entries_only.calls().into();
        // With one object per line, as in a stream, this object is a line too.
        let text = if kind.streams() { object.to_string() } else { serde_json::to_string_pretty(&object)? };
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let unmatched = (!unmatched.is_empty())
        .then(|| format!("no function that was traced or called matches {}", unmatched.join(", ")));
    let notes = missing.iter().chain(&unmatched).chain(&without_ends);
    if kind.bare() {
        notes.for_each(|line| tell!("calltap: {line}"));
        return Ok(());
    }
    let disabled = disabled::sentence(disabled, Some(listener.known.traced()));
    for line in disabled.iter().chain(notes) {
        writeln!(out, "# {line}")?;
    }
    out.write_all(listener.question.text(&listener.known).as_bytes())?;
    Ok(())
}

/// Tells the notes of the session, and why the answer is incomplete, if it is.
fn say(outcome: &SessionOutcome, known: &QueryContext) {
    let mut notes = ended_session::lines(outcome, &|name| known.asks_about(name));
    let lost = outcome.totals.lost_entries + outcome.totals.lost_exits;
    if lost > 0 {
        notes.push(format!("{} lost: the answer is not complete", units::counted(lost, "event")));
    }
    notes.extend(outcome.failed.as_ref().map(ToString::to_string));
    session_commands::say(&notes);
}
