//! The question of a command line: its kind, its functions, and the selection that has to be traced
//! to answer it.

use super::read::{self, Read};
use crate::command_line::arguments::Arguments;
use crate::command_line::select;
use crate::command_line::values;
use crate::command_line::view_flags;
use crate::terminal::output;
use anyhow::{Context, Result, bail};
use calltap_analysis::answers::{
    Buckets, By, Count, CountBy, EndedCall, Entered, Form, Futures, Histogram, Latency, Lines, QueryContext,
    Question, Spans, Stacks, Widths,
};
use calltap_analysis::{Glob, Word};
use calltap_selection::Selection;
use calltap_trace::{Meta, Profile, TracerKind};
use serde_json::Value;
use std::ffi::OsString;

/// Default number of slowest spans that are listed.
const SLOWEST: usize = 10;

/// A question, as the command line asks it.
pub struct Kind {
    /// Name of the command.
    pub name: &'static str,
    /// Globs of the functions that are asked about; empty for every function.
    pub functions: Vec<String>,
    /// Globs of the Python functions that are traced; a glob with a leading `!` excludes.
    python: Vec<String>,
    /// Whether the answer is JSON.
    pub json: bool,
    query: Query,
    limit: Option<usize>,
    /// Characters of a line of a table on a terminal.
    width: Option<usize>,
    /// Globs of the types of futures.
    types: Vec<String>,
    /// Whether calls that do not satisfy a condition are left out.
    is_conditional: bool,
    /// Bytes of the stack that callers are unwound from; `None` if they are not unwound.
    stack_bytes: Option<u64>,
    /// The values of calls that are read.
    read: Read,
    /// Whether lines are in the order of time, as they go to a file or come from one.
    sorted: bool,
}

#[derive(Clone, Copy)]
enum Query {
    Count,
    CountBy(By),
    Histogram(Widths, By),
    Span(Buckets),
    Latency(Buckets, By),
    Slower(u64),
    Stacks,
    Watch,
    /// Whether each future is listed.
    Futures(bool),
}

/// Refuses questions that cannot be answered about Python functions.
fn check_python(python: &[String], query: Query, arguments: &Arguments) -> Result<()> {
    let reads = ["arguments", "results", "if"].iter().any(|flag| arguments.is_given(flag));
    let values = matches!(query, Query::Histogram(..) | Query::CountBy(By::Value) | Query::Span(_));
    if !python.is_empty() && (reads || values) {
        bail!(
            "--python excludes values in a question: 'record --python GLOB -A FUNCTION@NAME' reads arguments of Python functions"
        );
    }
    if !python.is_empty() && arguments.is_set("callers") {
        bail!(
            "--python and --callers exclude each other: calltap unwinds callers in C; 'record --python' records those in Python"
        );
    }
    Ok(())
}

/// Returns the bytes of the stack that callers are unwound from; `None` if they are not unwound.
fn stack_bytes(
    query: Query,
    functions: &[String],
    python: &[String],
    arguments: &Arguments,
) -> Result<Option<u64>> {
    let size = || values::size_of(arguments, "stack-size").map(|size| Some(size.unwrap_or_default()));
    match query {
        // With every function asked about, or with filters that name the callers, the callers are
        // traced and need no unwinding.
        Query::Stacks if functions.is_empty() || !arguments.texts("filter").is_empty() => Ok(None),
        // Callers of Python functions are not found by unwinding the interpreter's frames.
        _ if !python.is_empty() => Ok(None),
        Query::Stacks => size(),
        Query::Watch if arguments.is_set("callers") => size(),
        _ => Ok(None),
    }
}

impl Kind {
    /// Parses a command's flags and operands. `of_file`: the question is answered from a trace.
    pub fn new(name: &str, arguments: &Arguments, words: Vec<OsString>, of_file: bool) -> Result<Kind> {
        let mut functions: Vec<String> =
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let python = select::python(arguments)?;
        if functions.is_empty() && python.is_empty() && !matches!(name, "futures" | "stacks" | "slower") {
            bail!("no function named: 'calltap {name} FUNCTION'");
        }
        let (name, query) = match name {
            "count" => (
                "count",
                if arguments.text("by").is_some() { Query::CountBy(by(arguments)) } else { Query::Count },
            ),
            "histogram" => ("histogram", Query::Histogram(read::widths(arguments)?, by(arguments))),
            "span" => ("span", Query::Span(buckets(arguments)?)),
            "latency" => ("latency", Query::Latency(buckets(arguments)?, by(arguments))),
            "slower" => {
                let time = (!functions.is_empty()).then(|| functions.remove(0));
                let usage = "'calltap slower 1ms [FUNCTION...]'";
                let time = time.with_context(|| format!("no time named: {usage}"))?;
                let time =
                    values::time(&time).with_context(|| format!("slower begins with a time, {usage}"))?;
                ("slower", Query::Slower(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
            }
            "stacks" => ("stacks", Query::Stacks),
            "futures" => ("futures", Query::Futures(arguments.is_set("each"))),
            _ => ("watch", Query::Watch),
        };
        check_python(&python, query, arguments)?;
        let mut read = match query {
            Query::Span(_) => Read::sides(&functions.join(" "))?,
            Query::Histogram(..) | Query::CountBy(By::Value) => Read::values(&functions)?,
            _ => Read::default(),
        };
        let mut functions: Vec<String> = match &read.functions[..] {
            [] => functions.iter().flat_map(|list| calltap_analysis::split_list(list)).collect(),
            read => read.to_vec(),
        };
        if matches!(query, Query::Watch) && arguments.is_set("results") {
            read.take_results(&mut functions);
            if functions.is_empty() {
                bail!("watch: no function is named: 'watch FUNCTION -R retval/x64'");
            }
        }
        if functions.iter().any(String::is_empty) {
            bail!("the name of a function is empty");
        }
        if let Some(items) = arguments.texts("arguments").iter().find(|items| items.contains('@')) {
            bail!(
                "-A '{items}': values belong to the watched functions, and are named without them: '-A arg1/s'"
            );
        }
        let (types, functions) =
            if name == "futures" { (functions, Vec::new()) } else { (Vec::new(), functions) };
        let (json, limit) = (arguments.is_set("json"), arguments.number("limit")?);
        let stack_bytes = stack_bytes(query, &functions, &python, arguments)?;
        Ok(Kind {
            name,
            functions,
            python,
            json,
            query,
            limit,
            width: output::line_width(arguments),
            types,
            is_conditional: !arguments.texts("if").is_empty(),
            stack_bytes,
            read,
            sorted: output::is_file(arguments) || of_file,
        })
    }

    /// Returns the globs of the functions that are asked about, of C or of Python; none if every
    /// traced function is.
    pub fn asked(&self) -> impl Iterator<Item = &String> {
        let is_glob = |glob: &&String| !glob.starts_with('!');
        let python = self.python.iter().filter(is_glob).filter(|_| self.functions.is_empty());
        self.functions.iter().chain(python)
    }

    /// Returns the globs that must match functions. With Python functions a glob may match those
    /// only, which are known when they are called.
    pub fn required(&self) -> Vec<String> {
        self.included().cloned().collect()
    }

    /// Returns the words that do not exclude functions.
    fn included(&self) -> impl Iterator<Item = &String> {
        self.functions.iter().filter(|word| !word.starts_with('!'))
    }

    /// Returns an empty answer. `live`: intermediate results are shown.
    pub fn ask(&self, live: bool) -> Answer {
        let limit = self.limit.map(|limit| limit as u64);
        let form = |version| if self.json { Form::Json(version) } else { Form::Text };
        match self.query {
            Query::Count => Answer::Count(Count::new(self.limit).conditional(self.is_conditional)),
            Query::CountBy(by) => {
                let count = CountBy::new(by, self.limit, self.read.items.clone());
                Answer::CountBy(count.fitting(self.width))
            }
            Query::Histogram(widths, by) => {
                Answer::Histogram(Histogram::new(widths, by, self.read.items.clone()))
            }
            Query::Span(buckets) => {
                let sides = self.read.sides.clone();
                Answer::Spans(Box::new(Spans::new(sides, buckets, self.limit.unwrap_or(SLOWEST))))
            }
            Query::Latency(buckets, by) => Answer::Latency(Latency::new(buckets, by)),
            Query::Slower(ns) => self.lines(Lines::new(form("calltap_slower_call"), Some(ns), limit)),
            Query::Stacks => Answer::Stacks(Stacks::new(self.limit)),
            Query::Watch => self.lines(Lines::new(form("calltap_watch_call"), None, limit)),
            Query::Futures(each) => {
                let types = self.types.iter().map(|glob| Glob::new(glob)).collect();
                let lines = each.then(|| form("calltap_future"));
                Answer::Futures(Box::new(Futures::new(types, self.limit, lines, live).fitting(self.width)))
            }
        }
    }

    fn lines(&self, lines: Lines) -> Answer {
        Answer::Lines(if self.sorted { lines.sorted() } else { lines })
    }

    /// Whether the answer is a stream of lines instead of a table at the end.
    pub fn streams(&self) -> bool {
        matches!(self.query, Query::Slower(_) | Query::Watch | Query::Futures(true))
    }

    /// Whether the lines are the whole answer, without a heading or notes.
    pub fn bare(&self) -> bool {
        matches!(self.query, Query::Watch)
    }

    /// Whether the answer says for how long a call's thread waited.
    pub fn tells_waits(&self) -> bool {
        matches!(self.query, Query::Slower(_) | Query::Watch | Query::Latency(..))
    }

    /// Whether the program itself sums up the answer, by the profile tracer.
    pub fn sums(&self) -> bool {
        // Calls of Python functions are counted by their events.
        matches!(self.query, Query::Count) && self.python.is_empty()
    }

    /// Returns the selection to trace for this question.
    pub fn words(&self, arguments: &Arguments) -> Selection {
        let tracers = match self.query {
            Query::Count if self.sums() => vec![TracerKind::Profile],
            // An entry event carries the return address, which names a caller that is not traced.
            Query::Slower(_)
            | Query::Watch
            | Query::Latency(_, By::Caller)
            | Query::CountBy(By::Caller)
            | Query::Histogram(_, By::Caller) => {
                vec![TracerKind::Function, TracerKind::FunctionGraph]
            }
            Query::Stacks
            | Query::Count
            | Query::Futures(_)
            | Query::Latency(..)
            | Query::CountBy(_)
            | Query::Histogram(..)
            | Query::Span(_) => {
                vec![TracerKind::FunctionGraph]
            }
        };
        let (tracers, filter) = (calltap_selection::tracers(&tracers), arguments.names("filter"));
        let mut words =
            Selection { tracers, filter, notrace: arguments.names("notrace"), ..Selection::default() };
        words.conditions = arguments.texts("if");
        words.futures = matches!(self.query, Query::Futures(_));
        words.int3 = arguments.is_set("allow-int3");
        if let Query::Watch = self.query {
            let all = |items: &str| if items == "all" { String::new() } else { format!("@{items}") };
            let rule = |items: &String| {
                self.included().map(|glob| format!("{glob}{}", all(items))).collect::<Vec<_>>()
            };
            words.arguments = arguments.texts("arguments").iter().flat_map(rule).collect();
            if arguments.is_set("results") && self.read.results.is_empty() {
                words.results = self.required();
            }
        }
        words.arguments.extend(self.read.arguments.iter().cloned());
        words.results.extend(self.read.results.iter().cloned());
        if let Some(bytes) = self.stack_bytes {
            let mut functions = self.required();
            if functions.is_empty() {
                functions.push("*".to_owned());
            }
            words.arguments.extend(functions.iter().map(|glob| format!("{glob}@$callers/{bytes}")));
        }
        match self.query {
            // Globs are of Python functions, and a filter would apply them to functions in C. A
            // name may be one of either.
            _ if !self.python.is_empty() => {
                let is_name = |glob: &&String| Word::new(glob).is_exact();
                words.filter.extend(self.included().filter(is_name).cloned());
            }
            // Every function that may be a caller is traced.
            Query::Stacks if self.stack_bytes.is_none() => {
                calltap_selection::add(&mut words, &self.functions)
            }
            _ => words.filter.clone_from(&self.functions),
        }
        calltap_selection::add_python(&mut words, &self.python);
        words
    }

    /// Checks that a trace has the tracers and values that an answer needs.
    pub fn check(&self, meta: &Meta) -> Result<()> {
        if !self.sums() {
            view_flags::must_have_returns(meta)?;
        }
        if matches!(self.query, Query::Futures(_)) {
            view_flags::must_have_futures(meta)?;
        }
        self.read.check(meta)?;
        let timeless =
            meta.session.as_ref().is_some_and(|session| session.clock == calltap_trace::ClockKind::Counter);
        if timeless
            && matches!(
                self.query,
                Query::Latency(..) | Query::Slower(_) | Query::Futures(_) | Query::Span(_)
            )
        {
            bail!("the trace was recorded with '--clock counter': it has no durations");
        }
        Ok(())
    }
}

fn buckets(arguments: &Arguments) -> Result<Buckets> {
    let Some(text) = arguments.text("linear") else { return Ok(Buckets::Log2) };
    let width = values::time_of(arguments, "linear")?.unwrap_or_default();
    match u64::try_from(width.as_nanos()) {
        Ok(width) if width > 0 => Ok(Buckets::Linear(width)),
        _ => bail!("--linear: '{text}' is not a width, as in 100us"),
    }
}

fn by(arguments: &Arguments) -> By {
    match arguments.text("by").as_deref() {
        Some("thread" | "goroutine") => By::Thread,
        Some("caller") => By::Caller,
        Some("value") => By::Value,
        _ => By::Function,
    }
}

/// The answer so far, by the kind of question.
pub enum Answer {
    /// See [`Count`].
    Count(Count),
    /// See [`CountBy`].
    CountBy(CountBy),
    /// See [`Histogram`].
    Histogram(Histogram),
    /// See [`Spans`].
    Spans(Box<Spans>),
    /// See [`Latency`].
    Latency(Latency),
    /// See [`Stacks`].
    Stacks(Stacks),
    /// See [`Lines`].
    Lines(Lines),
    /// See [`Futures`].
    Futures(Box<Futures>),
}

impl Answer {
    /// Takes the sums of the program's profile tracer.
    pub fn sums(&mut self, known: &QueryContext, rows: &[Profile]) {
        if let Answer::Count(count) = self {
            count.sums(known, rows);
        }
    }

    /// Takes two readings of these sums, and the nanoseconds between them.
    pub fn rates(&mut self, known: &QueryContext, readings: [&[Profile]; 2], ns: u64) {
        if let Answer::Count(count) = self {
            count.rates(known, readings, ns);
        }
    }

    /// Returns the lines that were not taken yet.
    pub fn take(&mut self) -> String {
        match self {
            Answer::Lines(lines) => lines.take(),
            Answer::Futures(futures) => futures.take(),
            _ => String::new(),
        }
    }

    /// Whether the limit of lines is reached.
    pub fn is_full(&self) -> bool {
        matches!(self, Answer::Lines(lines) if lines.is_full())
    }

    fn question(&self) -> &dyn Question {
        match self {
            Answer::Count(count) => count,
            Answer::CountBy(count) => count,
            Answer::Histogram(histogram) => histogram,
            Answer::Spans(spans) => &**spans,
            Answer::Latency(latency) => latency,
            Answer::Stacks(stacks) => stacks,
            Answer::Lines(lines) => lines,
            Answer::Futures(futures) => &**futures,
        }
    }

    fn question_mut(&mut self) -> &mut dyn Question {
        match self {
            Answer::Count(count) => count,
            Answer::CountBy(count) => count,
            Answer::Histogram(histogram) => histogram,
            Answer::Spans(spans) => &mut **spans,
            Answer::Latency(latency) => latency,
            Answer::Stacks(stacks) => stacks,
            Answer::Lines(lines) => lines,
            Answer::Futures(futures) => &mut **futures,
        }
    }
}

impl Question for Answer {
    fn enter(&mut self, function: u32) {
        self.question_mut().enter(function);
    }

    fn entered(&mut self, known: &mut QueryContext, entered: &Entered<'_>) {
        self.question_mut().entered(known, entered);
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.question_mut().lost(from, to);
    }

    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        self.question_mut().ended(known, ended);
    }

    fn is_about(&self, value: &str) -> bool {
        self.question().is_about(value)
    }

    fn marked(&mut self, known: &mut QueryContext, call: &EndedCall<'_>) -> bool {
        self.question_mut().marked(known, call)
    }

    fn finish(&mut self, known: &QueryContext) {
        self.question_mut().finish(known);
    }

    fn text(&self, known: &QueryContext) -> String {
        self.question().text(known)
    }

    fn json(&self, known: &QueryContext) -> Value {
        self.question().json(known)
    }
}
