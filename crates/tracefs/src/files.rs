//! Contents of the files that are read as a whole.

use crate::clocks::CLOCKS;
use crate::control::{Model, TRACE, Which};
use crate::instance::{Instance, wants};
use crate::nodes::{FILES, File, Kind};
use crate::options::OPTIONS;
use crate::ring::Ring;
use crate::tokens::waiting;
use crate::tracefs::Tracefs;
use calltap_ringbuffer::formats;
use calltap_selection::{Selection, TracerSelection};
use std::fmt::Write;

/// Number of threads whose names are kept, the kernel's default.
const CMDLINES: u64 = 6552;

/// Lines of the README behind a file, where scripts look for what the file accepts.
const MORE: &[(&str, &str)] = &[(
    "set_ftrace_filter",
    "\
\t     accepts: func_full_name or glob-matching-pattern\n\
\t     triggers: FUNCTION:TRIGGER[:COUNT], TRIGGER: traceon traceoff snapshot stacktrace dump cpudump\n",
)];

/// Returns the README: the files with their descriptions.
fn readme() -> String {
    let mut text = String::from("calltap: ftrace's directory for one process\n\n");
    for File { name, about, .. } in FILES.iter().filter(|file| !file.about.is_empty()) {
        let _ = writeln!(text, "  {name}\t- {about}");
        MORE.iter().filter(|(file, _)| file == name).for_each(|(_, more)| text += more);
    }
    text + "  instances\t- mkdir makes another tracer with its own buffer\n"
}

fn lines<T: std::fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().fold(String::new(), |mut text, one| {
        let _ = writeln!(text, "{one}");
        text
    })
}

/// Returns a set's contents, with the words that wait for their libraries.
fn set_of(mut model: Model<'_>, which: Which) -> String {
    let words = model.set_mut(which).clone();
    let waiting: Vec<&String> = waiting(&words).collect();
    let kind = if which == Which::Filter { Kind::Filter } else { Kind::Notrace };
    // A notrace set whose words all wait disables no function yet, and its text says so.
    if which == Which::Notrace && waiting.len() == words.len() {
        model.set_mut(which).clear();
    }
    model.contents(kind) + &lines(waiting)
}

impl Tracefs {
    fn model(&self, instance: &Instance) -> Model<'_> {
        Model { words: instance.words.clone(), functions: self.symbols.functions(), profile: &self.profile }
    }

    fn set_text(&self, instance: &Instance, which: Which) -> String {
        let mut model = self.model(instance);
        if !self.separate {
            model.words.tracers.retain(|tracer| tracer.name == TRACE);
        }
        set_of(model, which)
    }

    fn stack_filter_text(&self) -> String {
        let (name, filter) = (TRACE.to_owned(), self.stack_tracer.filter.clone());
        let tracers = vec![TracerSelection { name, kind: None, filter, notrace: Vec::new() }];
        let words = Selection { tracers, ..Selection::default() };
        set_of(Model { words, functions: self.symbols.functions(), profile: &[] }, Which::Filter)
    }

    /// Returns the contents of a file that is read as a whole.
    pub(crate) fn text(&self, instance: &Instance, kind: Kind, arg: u16) -> String {
        match kind {
            Kind::Available
            | Kind::Info
            | Kind::Failures
            | Kind::AvailableTracers
            | Kind::FunctionTracers
            | Kind::ProfileEnabled
            | Kind::Ftraced => self.model(instance).contents(kind),
            Kind::AvailableAddresses => {
                let model = self.model(instance);
                lines(model.functions.iter().map(|f| format!("{:016x} {}", f.address, model.name(f))))
            }
            Kind::Filter => {
                let triggers = instance.triggers.all().iter().map(|trigger| trigger.line());
                self.set_text(instance, Which::Filter) + &triggers.collect::<String>()
            }
            Kind::Notrace => self.set_text(instance, Which::Notrace),
            Kind::EnabledFunctions | Kind::TouchedFunctions => self.users(kind == Kind::TouchedFunctions),
            Kind::Stat if arg == 0 => self.model(instance).contents(kind),
            Kind::Stat => crate::control::table(&[]),
            Kind::Clock => {
                let there = CLOCKS.iter().enumerate().filter(|(_, (_, clock))| clock.exists(self.clock));
                let names = there.map(|(n, (name, _))| match n == instance.clock {
                    true => format!("[{name}]"),
                    false => (*name).to_owned(),
                });
                names.collect::<Vec<String>>().join(" ") + "\n"
            }
            Kind::TimestampMode => "[delta] absolute\n".into(),
            Kind::SavedCmdlines => {
                lines(self.symbols.threads().iter().map(|(tid, comm)| format!("{tid} {comm}")))
            }
            Kind::SavedCmdlinesSize => number(CMDLINES),
            Kind::SavedTgids => {
                let groups = self
                    .symbols
                    .threads()
                    .into_iter()
                    .filter_map(|(tid, _)| Some((tid, self.symbols.group(tid)?)));
                lines(groups.map(|(tid, group)| format!("{tid} {group}")))
            }
            Kind::Readme => readme(),
            Kind::HeaderPage => formats::HEADER_PAGE.into(),
            Kind::HeaderEvent => formats::HEADER_EVENT.into(),
            Kind::EventFormat => {
                formats::EVENTS.get(usize::from(arg)).map_or_else(String::new, |(_, text)| (*text).into())
            }
            Kind::EventId => number(formats::EVENTS.get(usize::from(arg)).map_or(0, id)),
            Kind::Kallsyms => self.symbols.kallsyms(),
            Kind::StackTrace => self.stack_tracer.text(&self.symbols),
            Kind::StackMaxSize => number(self.stack_tracer.max),
            Kind::StackTraceFilter => self.stack_filter_text(),
            Kind::StackTracerEnabled => number(self.stack_tracer.is_on.into()),
            Kind::EventsEnable => "0\n".into(),
            _ => own_text(instance, kind, arg),
        }
    }

    /// Lists the functions that have users now, or ever had: `name (2)` and the tracers.
    fn users(&self, ever: bool) -> String {
        let all: Vec<_> = self.instances.iter().map(Instance::users).collect();
        let measured = self.stack_tracer.sets();
        let Some(top) = self.instances.first() else { return String::new() };
        let (model, mut text) = (self.model(top), String::new());
        for function in self.symbols.functions() {
            let count: usize = all.iter().map(|users| users(function)).sum();
            let count = count + usize::from(measured.as_ref().is_some_and(|sets| wants(sets, function)));
            let shown = if ever { function.known || count > 0 } else { count > 0 && !function.failed };
            if shown {
                let _ = writeln!(text, "{} ({count})", model.name(function));
            }
        }
        text
    }
}

fn number(n: u64) -> String {
    format!("{n}\n")
}

/// Returns the contents of a file that depend on one instance alone.
fn own_text(instance: &Instance, kind: Kind, arg: u16) -> String {
    match kind {
        Kind::CurrentTracer => format!("{}\n", instance.tracer_name()),
        Kind::TracingOn => number(instance.is_on.into()),
        Kind::GraphFunction | Kind::GraphNotrace => {
            let which = usize::from(kind == Kind::GraphNotrace);
            let none = ["#### all functions enabled ####\n", "#### no functions disabled ####\n"][which];
            let set = &instance.graph[which];
            if set.is_empty() { none.into() } else { lines(set) }
        }
        Kind::MaxGraphDepth => number(instance.max_depth.into()),
        Kind::Pid | Kind::NotracePid => {
            let set = &instance.pids[usize::from(kind == Kind::NotracePid)];
            if set.is_empty() { "no pid\n".into() } else { lines(set) }
        }
        Kind::Stats if arg > 1 => Ring::new(0).stats(instance.now(), instance.clock().in_ns()),
        Kind::Stats => instance.ring.stats(instance.now(), instance.clock().in_ns()),
        Kind::BufferKb => instance.kb(false),
        Kind::BufferTotalKb => instance.kb(true),
        Kind::SubbufKb => number(instance.subbuf_kb),
        Kind::Percent => number(instance.percent),
        Kind::Threshold => number(instance.threshold_us),
        Kind::MaxLatency => number(0),
        Kind::Cpumask => format!("{:x}\n", instance.mask),
        Kind::Options => instance.options.list(instance.tracer_name(), instance.is_top()),
        Kind::Option => {
            let option = OPTIONS.get(usize::from(arg));
            number(option.is_some_and(|option| instance.options.is_on(option.name)).into())
        }
        Kind::Dump => instance.dumped.clone(),
        Kind::ErrorLog => instance.errors.text(),
        _ => String::new(),
    }
}

/// Returns an event's id from its format.
fn id((_, text): &formats::Event) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("ID: "));
    line.and_then(|id| id.parse().ok()).unwrap_or(0)
}
