//! `calltap record`: records a program or a process into a trace file.
//!
//! The command line is checked and becomes [`Options`]; the session records; then the outcome is
//! told, and decides the exit status.

mod kernel;

use crate::command_line::arguments::{Arguments, is_standard};
use crate::command_line::keep;
use crate::command_line::mistakes;
use crate::command_line::processes;
use crate::command_line::select;
use crate::command_line::values;
use crate::terminal::named_pipe;
use crate::terminal::progress;
use crate::terminal::started;
use crate::terminal::trace_path;
use crate::terminal::units::bytes;
use crate::{ended_session, ending, many, repeat::Runs, session_commands};
use anyhow::{Result, bail};
use calltap_analysis::units;
use calltap_selection::{Ftraced, ParsedSelection};
use calltap_session::{
    Clock, Discovery, KeptCalls, KernelOptions, Options, Outcome, PlanOptions, Reports, RingOptions, Subject,
    Totals,
};
use calltap_trace::TracerKind;
use kernel::Kernel;
use std::process::ExitCode;

/// Exit status with --fail-on-loss if events were lost.
const LOST: u8 = 3;

/// Refuses an unknown option, which the parser would take for the program.
fn refuse_option(command: &[std::ffi::OsString]) -> Result<()> {
    let word = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if !word.starts_with('-') {
        return Ok(());
    }
    let said = mistakes::no_option(&word, "record");
    bail!("{said} ('calltap help record' lists them; a program of this name is ./{word})")
}

/// Whether no overhead limit is wanted.
fn keeps_all(arguments: &Arguments) -> bool {
    arguments.text("max-overhead").as_deref() == Some("none")
}

/// Returns the program or the process to record.
fn subject(arguments: &Arguments) -> Result<Subject> {
    let (command, pid) = (arguments.words("operand"), crate::command_line::processes::one(arguments)?);
    match (command.is_empty(), pid) {
        (false, None) if arguments.text("duration").is_some() => {
            let program = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            bail!("--duration needs '-p PID': {program} is a program to start, and is recorded until it ends")
        }
        (false, None) if arguments.is_given("max-overhead") && !keeps_all(arguments) => {
            bail!("--max-overhead needs '-p PID': in a program that calltap starts, no function is disabled")
        }
        (false, None) => Ok(Subject::Program(command)),
        (true, Some(pid)) => {
            if arguments.is_given("max-wait") {
                bail!("--max-wait needs '-- PROGRAM': threads of an attached process never wait")
            }
            processes::tell_of_children(pid, arguments);
            Ok(Subject::Process {
                pid,
                max_overhead: values::share_of(arguments, "max-overhead")?,
                duration: values::time_of(arguments, "duration")?,
            })
        }
        (true, None) => bail!("nothing to record: name '-- PROGRAM' or '-p PID'"),
        (false, Some(_)) => {
            let word = arguments.words("operand").first().map(|word| word.to_string_lossy().into_owned());
            bail!(
                "{}: a program to run, and '-p PID', exclude each other: name one of them",
                word.unwrap_or_default()
            )
        }
    }
}

/// Records a program, whose exit status becomes calltap's, or a process.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    refuse_option(&arguments.words("operand"))?;
    if let pids @ [_, _, ..] = &processes::all(arguments)?[..] {
        if arguments.path("output").is_some_and(|path| is_standard(&path)) {
            bail!("-o -: the traces of several processes need a file each: -o NAME writes NAME.PID");
        }
        return many::run(pids, Some(&arguments.path("output").unwrap_or_default()), None);
    }
    let runs = Runs::of(arguments)?;
    let mut options = options(arguments, runs.as_ref())?;
    let kernel = Kernel::of(arguments, &options)?;
    options.kernel.functions = kernel.as_ref().map(Kernel::functions);
    let _reader = named_pipe::with_reader(&options.output)?;
    let recorded = calltap_session::record(&options);
    progress::clear();
    let mut outcome = match recorded {
        Ok(outcome) => outcome,
        Err(error) => return Ok(many::refused(&error)),
    };
    let is_missing = kernel.is_some_and(|kernel| kernel.finish(&mut outcome));
    let is_lost = is_missing | tell(&options, &outcome, arguments.is_set("quiet"));
    let code = end_as(&outcome, is_lost && arguments.is_set("fail-on-loss"));
    Ok(runs.map_or(code, |runs| runs.go_on(code)))
}

/// Returns the options of the session.
fn options(arguments: &Arguments, runs: Option<&Runs>) -> Result<Options> {
    let (mut words, discovery) = (select::words(arguments)?, values::discovery(arguments));
    words.ftraced = (discovery == Discovery::FirstCall).then(Ftraced::default);
    let subject = subject(arguments)?;
    select::add_futures(&mut words, &subject)?;
    let (slow, flight) = (keep::slow(arguments)?, keep::flight(arguments, &subject)?);
    let subtree = keep::subtree(arguments)?;
    let about = keep::functions(slow.as_ref(), subtree.as_ref(), flight.as_ref());
    // With Python functions the names may be theirs: of C only the functions that -F names are
    // traced.
    if words.python.is_empty() {
        calltap_selection::add(&mut words, &about);
    }
    calltap_selection::add_valued(&mut words)?;
    let later = arguments.is_set("later") || arguments.is_set("follow");
    let selection =
        ParsedSelection::about(&words, later, &about)?.timing(&keep::timed(slow.as_ref(), flight.as_ref()));
    let clock = match arguments.text("clock").as_deref() {
        Some("sparse") => Clock::Sparse,
        Some("coarse") => Clock::Coarse,
        Some("counter") => Clock::Counter,
        _ => Clock::Tsc,
    };
    check(arguments, &selection, clock, !about.is_empty() || subtree.is_some())?;
    let [wakings, system_calls, incidents] = events(arguments)?;
    let output = output(arguments, &subject)?;
    let rings = RingOptions {
        buffer_size: values::buffer_size(arguments)?,
        overwrite: arguments.is_set("overwrite"),
        wait: values::time_of(arguments, "max-wait")?.unwrap_or_default(),
    };
    Ok(Options {
        subject,
        output: runs.map_or(output.clone(), |runs| runs.file(&output)),
        clock,
        plan: PlanOptions {
            selection,
            patch_mode: values::patch_mode(arguments, !arguments.words("operand").is_empty())?,
            discovery,
            follow: arguments.is_set("follow"),
        },
        rings,
        kept: KeptCalls { slow, subtree, flight },
        kernel: KernelOptions {
            sched: !arguments.is_set("no-sched"),
            wakings,
            system_calls,
            incidents,
            functions: None,
        },
        reports: if arguments.is_set("quiet") { Reports::default() } else { started::REPORTS },
    })
}

/// Returns the path of the trace file.
fn output(arguments: &Arguments, subject: &Subject) -> Result<std::path::PathBuf> {
    let is_standard = arguments.names_standard_output();
    if is_standard && matches!(subject, Subject::Program(_)) {
        bail!("-o -: the program itself writes to standard output: name a file, or attach with -p PID");
    }
    trace_path::of(arguments)
}

/// The words of `--events`.
const EVENTS: [&str; 3] = ["sched", "syscalls", "faults"];

/// Returns which of the words `--events` has.
fn events(arguments: &Arguments) -> Result<[bool; 3]> {
    let text = arguments.text("events").unwrap_or_default();
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if arguments.is_given("events") && words.is_empty() {
        bail!("--events: '{text}' is none of sched, syscalls, faults");
    }
    if let Some(word) = words.iter().find(|word| !EVENTS.contains(word)) {
        bail!("--events: '{word}' is none of sched, syscalls, faults");
    }
    for flag in ["slow", "snapshot-on"] {
        if !words.is_empty() && !arguments.texts(flag).is_empty() {
            bail!(
                "--events and --{flag} exclude each other: --{flag} does not keep the calls that explain a wait"
            );
        }
    }
    if arguments.is_set("no-sched") && words.contains(&"sched") {
        bail!(
            "--no-sched and '--events sched' exclude each other: a wakeup ends a wait, which --no-sched does not record"
        );
    }
    Ok(EVENTS.map(|word| words.contains(&word)))
}

/// Refuses options that cannot be combined. `timed`: an option needs the durations of calls.
fn check(arguments: &Arguments, selection: &ParsedSelection, clock: Clock, timed: bool) -> Result<()> {
    let words = &selection.words;
    let has = |kind| selection.tracers.iter().any(|tracer| tracer.kind == kind);
    if words.int3 && arguments.is_set("follow") {
        bail!(
            "--allow-int3 and --follow exclude each other: calltap ptraces the processes that it follows, and would receive the SIGTRAP of each breakpoint"
        );
    }
    if timed && !has(TracerKind::FunctionGraph) {
        let flags = ["slow", "snapshot-on", "graph", "callers", "depth", "on"];
        let is_given = |flag: &&str| !arguments.words(flag).is_empty();
        let flag = flags.into_iter().find(is_given).unwrap_or("graph");
        bail!("--{flag} needs calls and returns: add '--tracer function_graph'");
    }
    let reads = !words.arguments.is_empty() || !words.results.is_empty();
    if reads && !has(TracerKind::Function) && !has(TracerKind::FunctionGraph) {
        bail!(
            "-A and -R need recorded calls, and '--tracer profile' has their sums alone: add '--tracer function_graph'"
        );
    }
    if words.futures && has(TracerKind::Profile) {
        bail!("--async and '--tracer profile' exclude each other: both keep a call's data in the same word");
    }
    if words.futures && !has(TracerKind::FunctionGraph) {
        bail!("--async needs the ends of polls: add '--tracer function_graph'");
    }
    if matches!(clock, Clock::Sparse | Clock::Coarse) && arguments.is_given("events") {
        bail!(
            "--events needs '--clock tsc': other clocks cannot tell in which call a thread made a system call"
        );
    }
    if clock == Clock::Sparse && (words.futures || reads) {
        bail!("'--clock sparse' excludes --async, -A and -R: its events have no room for values");
    }
    if !words.python.is_empty() && !has(TracerKind::FunctionGraph) {
        bail!("--python needs calls and returns: add '--tracer function_graph'");
    }
    if !words.python.is_empty() && clock == Clock::Sparse {
        bail!(
            "--python and '--clock sparse' exclude each other: the events have no room for the values that identify Python functions"
        );
    }
    if arguments.is_set("fail-on-loss") && arguments.is_set("overwrite") {
        bail!(
            "--fail-on-loss and --overwrite exclude each other: --overwrite loses the oldest events on purpose"
        );
    }
    Ok(())
}

/// Tells the outcome. Returns whether events were lost.
fn tell(options: &Options, outcome: &Outcome, quiet: bool) -> bool {
    let of = processes::of_many();
    // If something remains in the process, the reason is told in spite of --quiet: the exit status
    // cannot say it.
    if !quiet {
        session_commands::say(&ended_session::lines(&outcome.session, &|_| false));
        tell_summary(&options.plan.selection, &options.kept, outcome, &of);
    } else if !outcome.session.whole {
        session_commands::say(&outcome.session.notes);
    }
    if let Some(error) = &outcome.session.failed {
        tell!("calltap: {of}the trace is not complete: {error}");
    }
    // With --overwrite, loss is intended; a recording that failed has already told why the rest is
    // missing.
    let counts = !options.rings.overwrite && outcome.session.failed.is_none();
    let lost = loss(&outcome.session.totals, &options.subject).filter(|_| counts);
    let of_kernel = loss_of_kernel(&outcome.session.totals);
    for text in lost.iter().chain(&of_kernel) {
        tell!("calltap: {of}{text}");
    }
    lost.is_some() || of_kernel.is_some()
}

/// Returns a sentence about lost records of system calls, wakeups and incidents.
fn loss_of_kernel(totals: &Totals) -> Option<String> {
    let lost = units::counted(totals.lost_of_kernel, "record");
    (totals.lost_of_kernel > 0)
        .then(|| format!("LOST {lost} of the kernel: system calls and wakeups are missing; see waits.md"))
}

fn tell_summary(selection: &ParsedSelection, kept: &KeptCalls, outcome: &Outcome, of: &str) {
    let output = trace_path::name(&outcome.file);
    tell!("calltap: {of}{}", summary(outcome, kept, &output));
    let profiles = selection.tracers.iter().any(|tracer| tracer.kind == TracerKind::Profile);
    let python = &selection.words.python;
    let wants_python = python.iter().any(|glob| !glob.starts_with('!'));
    if let Some(library) = &outcome.session.code_is_in {
        tell!("calltap: {}", started::code_is_in(library));
    } else if outcome.session.python == 0 && wants_python {
        tell!("calltap: {of}no Python function that was called matches '{}'", python.join(","));
    } else if outcome.session.totals.events == 0
        && outcome.session.sites > 0
        && outcome.session.stops.is_some()
        && !outcome.session.ended
        && !profiles
    {
        tell!(
            "calltap: {of}none of these functions was called meanwhile: the process waited, or ran other code, as in a library: -F 'LIBRARY:*' traces one"
        );
    }
    if profiles && outcome.snapshots.is_none() {
        tell!("calltap: the trace also has sums by function: 'calltap report --profile -i {output}'");
    }
    if selection.words.futures && outcome.snapshots.is_none() {
        tell!("calltap: the trace has the polled futures: 'calltap futures -i {output}'");
    }
}

/// Returns a sentence such as `LOST 815,269 calls and 40 returns: ...`, with the flags that may
/// help. A process that was attached to does not wait for buffers.
fn loss(totals: &Totals, subject: &Subject) -> Option<String> {
    let (calls, returns) = (totals.lost_entries, totals.lost_exits);
    if calls > 0 && calls == totals.without_room && returns == 0 {
        let calls = units::counted(calls, "call");
        return Some(format!(
            "LOST {calls} of Go functions: their goroutines' stacks had no room for a hook"
        ));
    }
    let flags = match subject {
        Subject::Program(_) => "--buffer-size and --max-wait",
        Subject::Process { .. } => "--buffer-size",
    };
    (calls > 0 || returns > 0).then(|| {
        format!(
            "LOST {} and {}: the trace is not complete; see {flags}",
            units::counted(calls, "call"),
            units::counted(returns, "return"),
        )
    })
}

/// Returns a sentence such as `1,234,567 events from 8 threads, 0 lost, 1.2 MB in ./calltap.data`.
fn summary(outcome: &Outcome, rules: &KeptCalls, output: &str) -> String {
    let totals = outcome.session.totals;
    let lost = totals.lost_entries + totals.lost_exits;
    let processes = match totals.processes.saturating_sub(totals.executed) {
        0 | 1 => String::new(),
        n => format!(" of {n} processes"),
    };
    let kept = match outcome.dropped {
        0 => units::counted(totals.events, "event"),
        dropped => {
            let kept = totals.events.saturating_sub(dropped);
            let which = match (&rules.slow, &rules.subtree) {
                (Some(_), _) => "of slow calls".to_owned(),
                (None, Some(subtree)) => subtree.describe(),
                // The rule was set by `calltap set` while the recording ran.
                (None, None) => "of calls that were to be kept".to_owned(),
            };
            format!("{} {} (of {} in all)", units::counted(kept, "event"), which, units::count(totals.events))
        }
    };
    let files = match outcome.snapshots.as_deref() {
        None => format!("{} in {output}", bytes(outcome.file_size)),
        Some([]) => "no snapshot: no trigger occurred".to_owned(),
        Some(files) => {
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            format!("the last of them, {}, in {}", bytes(outcome.file_size), names.join(", "))
        }
    };
    format!(
        "{kept} from {}{processes}, {} lost, {files}",
        units::counted(u64::from(totals.threads), "thread"),
        units::count(lost),
    )
}

/// Returns the program's exit status, unless the program succeeded and the recording failed, or has
/// `lost` events that it must not lose.
fn end_as(outcome: &Outcome, lost: bool) -> ExitCode {
    let failed = outcome.session.failed.is_some() || lost;
    match outcome.session.status {
        Some(status) if !status.success() || !failed => ending::end_as(status),
        _ if lost => ExitCode::from(LOST),
        _ => ExitCode::from(u8::from(outcome.session.failed.is_some() || !outcome.session.whole)),
    }
}
