//! `calltap why`, `calltap locks`: the waits of slow calls and futures, and their wakers.
//!
//! A program or a process is first recorded into a temporary trace, with context switches, wakings
//! and system calls. The question is then answered from that trace, or from the one that the user
//! names.

use crate::answers::{QuestionSubject, take_trace};
use crate::command_line::arguments::Arguments;
use crate::command_line::keep;
use crate::command_line::select;
use crate::command_line::table::MAX_WAIT;
use crate::command_line::values;
use crate::command_line::view_flags;
use crate::input;
use crate::terminal::output::Output;
use crate::terminal::progress;
use crate::terminal::started;
use crate::{ended_session, ending, many, scratch, session_commands};
use anyhow::{Context, Result, bail};
use calltap_analysis::why::{self, Rule, Why};
use calltap_selection::{ParsedSelection, Selection};
use calltap_session::{KernelOptions, Options, Outcome, PlanOptions, RingOptions, Subject};
use calltap_trace::{ClockKind, TraceReader, TracerKind};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The question of the command line.
enum Question {
    Why(Why),
    Futures(Why),
    Locks { linker_names: bool, limit: Option<usize>, json: bool },
}

impl Question {
    fn new(name: &str, arguments: &Arguments, words: &[OsString]) -> Result<Question> {
        let (limit, json) = (arguments.number("limit")?, arguments.is_set("json"));
        let linker_names = arguments.is_set("linker-names");
        if name == "locks" {
            return Ok(Question::Locks { linker_names, limit, json });
        }
        let rule = |word: &OsString| {
            let rule = keep::rule("why", &word.to_string_lossy())?;
            Ok(Rule { function: rule.function, ns: rule.ns })
        };
        if words.is_empty() {
            bail!("no calls named: 'calltap why handle>10ms'");
        }
        let rules = words.iter().map(rule).collect::<Result<Vec<Rule>>>()?;
        let why = Why { rules, limit, summary: arguments.is_set("summary"), json, linker_names };
        match arguments.is_set("async") {
            true if why.summary => bail!("--async and --summary exclude each other"),
            true => Ok(Question::Futures(why)),
            false => Ok(Question::Why(why)),
        }
    }

    /// Returns the functions that have to be traced.
    fn functions(&self) -> Vec<String> {
        match self {
            Question::Why(why) => why.rules.iter().map(|rule| rule.function.clone()).collect(),
            Question::Futures(_) | Question::Locks { .. } => Vec::new(),
        }
    }

    fn answer(&self, reader: &TraceReader) -> Result<String> {
        Ok(match self {
            Question::Why(question) => why::why(reader, question)?,
            Question::Futures(question) => why::why_futures(reader, question)?,
            Question::Locks { linker_names, limit, json } => {
                why::locks(reader, *linker_names, *limit, *json)?
            }
        })
    }
}

/// Answers the question. The exit status is that of a started program.
pub fn run(name: &str, arguments: &Arguments) -> Result<ExitCode> {
    let (mut words, mut command) = (arguments.words("operand"), arguments.words("program"));
    if name == "locks" {
        // A single word may name a trace; otherwise it begins a program's command line.
        let is_trace = words.len() == 1 && take_trace(&mut words.clone()).is_some();
        if let [trace, another, ..] = &words[..]
            && TraceReader::is_trace(Path::new(trace))
        {
            bail!("{}: locks reads one trace: {}", another.display(), trace.display());
        }
        if !is_trace {
            command = std::mem::take(&mut words);
        }
    }
    let subject = QuestionSubject::new(arguments, &mut words, command)?;
    let question = Question::new(name, arguments, &words)?;
    if !matches!(subject, QuestionSubject::Process(_)) && arguments.text("duration").is_some() {
        bail!("--duration needs '-p PID': a program that calltap starts is watched until it ends");
    }
    let subject = match subject {
        QuestionSubject::File(path) => {
            of_file(&question, &path, None, arguments)?;
            return Ok(ExitCode::SUCCESS);
        }
        QuestionSubject::Program(command) => Subject::Program(command),
        QuestionSubject::Process(pid) => Subject::Process {
            pid,
            max_overhead: values::share_of(arguments, "max-overhead")?,
            duration: values::time_of(arguments, "duration")?,
        },
    };
    let out = Output::create_file(arguments)?;
    let directory = scratch::directory(&std::env::temp_dir(), "calltap-why.")?;
    let recording = directory.path().join("calltap.data");
    let options = options(subject, &question, recording, arguments)?;
    let recorded = calltap_session::record(&options);
    progress::clear();
    let outcome = match recorded {
        Ok(outcome) => outcome,
        Err(error) => return Ok(many::refused(&error)),
    };
    say(&outcome);
    of_file(&question, &options.output, out, arguments)?;
    let left = ExitCode::from(u8::from(!outcome.session.whole || outcome.session.failed.is_some()));
    Ok(outcome.session.status.map_or(left, ending::end_as))
}

fn options(subject: Subject, question: &Question, output: PathBuf, arguments: &Arguments) -> Result<Options> {
    let starts = matches!(subject, Subject::Program(_));
    let mut words = Selection {
        tracers: calltap_selection::tracers(&[TracerKind::FunctionGraph]),
        filter: arguments.names("filter"),
        notrace: arguments.names("notrace"),
        int3: arguments.is_set("allow-int3"),
        futures: matches!(question, Question::Futures(_)),
        ..Selection::default()
    };
    let python = select::python(arguments)?;
    select::add_futures(&mut words, &subject)?;
    // With Python functions the names may be theirs: of C only the functions that -F names are
    // traced.
    let about = if python.is_empty() { question.functions() } else { Vec::new() };
    if python.is_empty() {
        calltap_selection::add_go_waits(&mut words);
    }
    calltap_selection::add(&mut words, &about);
    calltap_selection::add_python(&mut words, &python);
    let selection = ParsedSelection::about(&words, arguments.is_set("later"), &about)?.timing(&about);
    let rings = RingOptions {
        buffer_size: values::buffer_size(arguments)?,
        wait: values::time(MAX_WAIT)?,
        ..RingOptions::default()
    };
    let plan = PlanOptions::new(selection, values::patch_mode(arguments, starts)?);
    let of_kernel = !matches!(question, Question::Futures(_));
    Ok(Options {
        output,
        rings,
        kernel: KernelOptions {
            sched: of_kernel,
            wakings: of_kernel,
            system_calls: of_kernel,
            ..KernelOptions::default()
        },
        reports: started::REPORTS,
        ..Options::new(subject, plan)
    })
}

/// Answers the question of a trace, into `out` if it is open already.
fn of_file(question: &Question, path: &Path, out: Option<Output>, arguments: &Arguments) -> Result<()> {
    let reader = input::open(path)?;
    let counts = reader.meta().session.as_ref().is_some_and(|session| session.clock == ClockKind::Counter);
    if counts {
        let why = "the trace was recorded with '--clock counter': it has no durations";
        return Err(anyhow::Error::msg(why)).context(path.display().to_string());
    }
    if let Question::Why(_) = question {
        view_flags::must_have_returns(reader.meta()).with_context(|| path.display().to_string())?;
    }
    if let Question::Futures(why) = question {
        view_flags::must_have_futures(reader.meta())?;
        let mut functions = why.rules.iter().map(|rule| rule.function.as_str());
        functions.try_for_each(|name| view_flags::must_be_future(reader.meta(), name))?;
    }
    question.functions().iter().try_for_each(|glob| view_flags::must_match(reader.meta(), glob))?;
    let mut out = out.map_or_else(|| Output::create(arguments), Ok)?;
    out.write_all(question.answer(&reader)?.as_bytes())?;
    out.finish()
}

/// Tells the notes of the session, and why the answer is incomplete, if it is.
fn say(outcome: &Outcome) {
    let mut notes = ended_session::lines(&outcome.session, &|_| false);
    notes.extend(outcome.session.failed.as_ref().map(|error| format!("the answer is not complete: {error}")));
    session_commands::say(&notes);
}
