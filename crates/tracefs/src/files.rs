//! What small files read as, and what writing a value to them does.

use crate::clocks::{CLOCKS, Clock};
use crate::errors::Wrong;
use crate::instance::{Instance, STACK_TRACE, Snapshot, wants};
use crate::nodes::{CONTROL, Kind};
use crate::options::OPTIONS;
use crate::ring::Ring;
use crate::tokens::waiting;
use crate::tracefs::Tracefs;
use calltap_control::{File, Model, Open, TRACE, Which, parse_number};
use calltap_ringbuffer::formats;
use calltap_selection::{Selection, TracerSelection};
use rustix::io::Errno;
use std::fmt::Write;

/// Threads whose names are kept, as the kernel's default.
const CMDLINES: u64 = 6552;

const README: &str = "\
calltap: ftrace's directory for one process\n\
\n\
  available_filter_functions - functions that can be traced\n\
  set_ftrace_filter\t- only these are traced: names, globs, numbers of lines, FUNCTION:mod:LIBRARY\n\
\t     accepts: func_full_name or glob-matching-pattern\n\
\t     triggers: FUNCTION:TRIGGER[:COUNT], TRIGGER: traceon traceoff snapshot stacktrace dump cpudump\n\
  set_ftrace_notrace\t- these are not\n\
  set_ftrace_pid\t- only these threads\n\
  set_graph_function\t- function_graph: only beneath these\n\
  current_tracer\t- function, function_graph or nop\n\
  function_tracers\t- the tracers; * marks the one that the filters are of\n\
  function_profile_enabled - sums up calls and times, read trace_stat/function0\n\
  trace\t\t\t- what was recorded; '>' clears it\n\
  trace_pipe\t\t- the same as it comes, taken out\n\
  tracing_on\t\t- 0: nothing is recorded\n\
  stack_tracer_enabled\t- 1: stack_trace shows the deepest stack\n\
  stack_trace_filter\t- it looks when one of these is called\n\
  stack_max_size\t- bytes of the deepest stack; '0' begins anew\n\
  instances\t\t- mkdir makes another tracer with its own buffer\n";

fn lines<T: std::fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().fold(String::new(), |mut text, one| {
        let _ = writeln!(text, "{one}");
        text
    })
}

/// A set of a model, and what waits for its library.
fn set_of(mut model: Model<'_>, which: Which) -> String {
    let words = model.set_mut(which).clone();
    let waiting: Vec<&String> = waiting(&words).collect();
    let name = if which == Which::Filter { "set_ftrace_filter" } else { "set_ftrace_notrace" };
    // A notrace set in which all waits disables nothing yet, and says so.
    if which == Which::Notrace && waiting.len() == words.len() {
        model.set_mut(which).clear();
    }
    File::named(name).map(|file| model.read(file)).unwrap_or_default() + &lines(waiting)
}

impl Tracefs {
    fn model(&self, instance: &Instance) -> Model<'_> {
        Model { words: instance.words.clone(), functions: self.symbols.functions(), profile: &self.profile }
    }

    fn control(&self, instance: &Instance, name: &str) -> String {
        File::named(name).map(|file| self.model(instance).read(file)).unwrap_or_default()
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

    /// What a file reads as that is read as a whole.
    pub(crate) fn text(&self, instance: &Instance, kind: Kind, arg: u16) -> String {
        let number = |n: u64| format!("{n}\n");
        match kind {
            Kind::Control(n) => self.control(instance, CONTROL[usize::from(n)]),
            Kind::CurrentTracer => format!("{}\n", instance.tracer_name()),
            Kind::AvailableTracers => "function_graph function nop\n".into(),
            Kind::AvailableAddresses => {
                let model = self.model(instance);
                lines(model.functions.iter().map(|f| format!("{:016x} {}", f.address, model.name(f))))
            }
            Kind::TracingOn => number(instance.is_on.into()),
            Kind::Filter => {
                let triggers = instance.triggers.all().iter().map(|trigger| trigger.line());
                self.set_text(instance, Which::Filter) + &triggers.collect::<String>()
            }
            Kind::Notrace => self.set_text(instance, Which::Notrace),
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
            Kind::EnabledFunctions | Kind::TouchedFunctions => self.users(kind == Kind::TouchedFunctions),
            Kind::FunctionTracers => self.control(instance, "function_tracers"),
            Kind::ProfileEnabled => self.control(instance, "function_profile_enabled"),
            Kind::Stat if arg == 0 => self.control(instance, "trace_stat/function0"),
            Kind::Stat => calltap_control::table(&[]),
            Kind::Stats if arg > 1 => Ring::new(0).stats(instance.now(), instance.clock().in_ns()),
            Kind::Stats => instance.ring.stats(instance.now(), instance.clock().in_ns()),
            Kind::BufferKb => instance.kb(false),
            Kind::BufferTotalKb => instance.kb(true),
            Kind::SubbufKb => number(instance.subbuf_kb),
            Kind::Percent => number(instance.percent),
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
            Kind::Threshold => number(instance.threshold_us),
            Kind::MaxLatency => number(0),
            Kind::Cpumask => format!("{:x}\n", instance.mask),
            Kind::Options => instance.options.list(instance.tracer_name(), instance.is_top()),
            Kind::Option => {
                let option = OPTIONS.get(usize::from(arg));
                number(option.is_some_and(|option| instance.options.is_on(option.name)).into())
            }
            Kind::Readme => README.into(),
            Kind::HeaderPage => formats::HEADER_PAGE.into(),
            Kind::HeaderEvent => formats::HEADER_EVENT.into(),
            Kind::EventFormat => {
                formats::EVENTS.get(usize::from(arg)).map_or_else(String::new, |(_, text)| (*text).into())
            }
            Kind::EventId => number(formats::EVENTS.get(usize::from(arg)).map_or(0, id)),
            Kind::Kallsyms => self.symbols.kallsyms(),
            Kind::Dump => instance.dumped.clone(),
            Kind::StackTrace => self.stack_tracer.text(&self.symbols),
            Kind::StackMaxSize => number(self.stack_tracer.max),
            Kind::StackTraceFilter => self.stack_filter_text(),
            Kind::StackTracerEnabled => number(self.stack_tracer.is_on.into()),
            Kind::ErrorLog => instance.errors.text(),
            Kind::EventsEnable => "0\n".into(),
            Kind::Ftraced => self.control(instance, "ftraced_enabled"),
            _ => String::new(),
        }
    }

    /// `name (2)` and the tracers it leads to: functions that have users now, or ever had.
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

    /// A value was written to a file of an instance.
    pub(crate) fn write_value(&mut self, id: u32, kind: Kind, arg: u16, text: &str) -> Result<(), Wrong> {
        let Tracefs { instances, symbols, profile, effects, separate, processors, .. } = self;
        let (recorded, stack_tracer) = (&self.clock, &mut self.stack_tracer);
        let Some(instance) = instances.iter_mut().find(|instance| instance.id == id) else {
            return Err(Errno::NODEV.into());
        };
        let busy = instance.piped || instance.raw_pipes > 0;
        let number = || parse_number(text).map_err(Wrong::from);
        let within = |most: u64| {
            number().and_then(|n| {
                if n > most { Err(Wrong::argument(format!("more than {most}"))) } else { Ok(n) }
            })
        };
        let mut control = |instance: &mut Instance, name: &str| -> Result<(), Wrong> {
            let words = instance.words.clone();
            let mut model = Model { words, functions: symbols.functions(), profile };
            let effect = model.write(File::named(name)?, text, Open::Truncate)?;
            let profiled = instance.profiles();
            instance.words = model.words;
            effects.resets_profile |= effect.resets_profile;
            effects.ends_profile |= profiled && !instance.profiles();
            effects.selects = true;
            Ok(())
        };
        match kind {
            Kind::CurrentTracer => {
                if text.trim() == instance.tracer_name() {
                    return Ok(());
                }
                if busy && ["function", "function_graph", "nop"].contains(&text.trim()) {
                    let why = "trace_pipe is open".into();
                    return Err(Wrong { errno: Errno::BUSY, why, at: 0 });
                }
                control(instance, "current_tracer")?;
                if !*separate {
                    instance.share_sets();
                }
                instance.expand();
                instance.clear();
            }
            Kind::FunctionTracers => return control(instance, "function_tracers"),
            Kind::ProfileEnabled => {
                control(instance, "function_profile_enabled")?;
                if !*separate {
                    instance.share_sets();
                }
                return Ok(());
            }
            Kind::TracingOn => instance.is_on = number()? != 0,
            Kind::MaxGraphDepth => instance.max_depth = number()? as u32,
            Kind::Threshold => instance.threshold_us = number()?,
            Kind::MaxLatency => drop(number()?),
            Kind::Percent => instance.percent = within(100)?,
            Kind::BufferKb => match number()? {
                0 => return Err(Wrong::argument("a buffer has at least 1 kB")),
                kb => instance.set_kb(kb),
            },
            Kind::SubbufKb => {
                let kb = number()?.div_ceil(4).max(1).next_power_of_two() * 4;
                if kb > 512 {
                    return Err(Wrong::argument("more than 512"));
                }
                instance.subbuf_kb = kb;
                instance.clear();
            }
            Kind::Clock => {
                let mut known = CLOCKS.iter();
                let named = |(name, clock): &(&str, Clock)| *name == text.trim() && clock.exists(*recorded);
                let none = || Wrong::argument(format!("no clock '{}' (see trace_clock)", text.trim()));
                instance.set_clock(known.position(named).ok_or_else(none)?);
            }
            Kind::SavedCmdlinesSize => {
                if within(1_000_000_000)? == 0 {
                    return Err(Errno::INVAL.into());
                }
            }
            Kind::Cpumask => instance.mask = cpumask(text, *processors)?,
            Kind::Snapshot => match number()? {
                0 if arg > 0 => {
                    return Err(Wrong::argument("the snapshot is freed of all processors together"));
                }
                0 => instance.snapshot = Snapshot::Freed,
                1 => instance.take_snapshot(),
                _ => {
                    if let Snapshot::Allocated(ring) = &mut instance.snapshot {
                        ring.clear();
                    }
                }
            },
            Kind::Options => {
                let (tracer, is_top) = (instance.tracer_name(), instance.is_top());
                let before = instance.options.has(STACK_TRACE);
                if text.len() >= 64 || !instance.options.change(text.trim(), tracer, is_top) {
                    return Err(Wrong::argument("no such option here (see trace_options)"));
                }
                effects.selects |= instance.options.has(STACK_TRACE) != before;
            }
            Kind::Option => {
                let option = OPTIONS.get(usize::from(arg)).ok_or(Errno::INVAL)?;
                let on = within(1)? == 1;
                // A tracer's own options are the same in all instances.
                let shared = option.tracer.is_some();
                let all = instances.iter_mut().filter(|instance| shared || instance.id == id);
                effects.selects |= option.name == "func_stack_trace";
                for instance in all {
                    if !instance.options.set(option.name, on) {
                        return Err(Wrong::argument("the tracer refuses this"));
                    }
                }
            }
            Kind::StackMaxSize => stack_tracer.max = number()?,
            Kind::StackTracerEnabled => {
                let on = number()? != 0;
                effects.selects |= std::mem::replace(&mut stack_tracer.is_on, on) != on;
            }
            Kind::Ftraced => return control(instance, "ftraced_enabled"),
            // There are no events but the tracers' own.
            Kind::SetEvent if !text.trim().is_empty() => {
                return Err(Wrong::argument("a process has no events but calls"));
            }
            Kind::EventsEnable => drop(number()?),
            Kind::SetEvent | Kind::ErrorLog => {}
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(())
    }
}

/// The number of an event, as its format says it.
fn id((_, text): &formats::Event) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("ID: "));
    line.and_then(|id| id.parse().ok()).unwrap_or(0)
}

/// Hexadecimal groups.
fn cpumask(text: &str, processors: usize) -> Result<u64, Errno> {
    let digits: String = text.trim_end().split(',').collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Errno::INVAL);
    }
    let mask = u64::from_str_radix(digits.trim_start_matches('0'), 16)
        .or_else(|_| if digits.bytes().all(|byte| byte == b'0') { Ok(0) } else { Err(Errno::OVERFLOW) })?;
    if processors < 64 && mask >> processors != 0 { Err(Errno::OVERFLOW) } else { Ok(mask) }
}
