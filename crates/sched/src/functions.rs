//! Functions of the kernel that the threads of a process run, recorded by the kernel's own tracers
//! in an instance of tracefs.
//!
//! Pages are returned as the kernel has written them. Their times are the processor's time stamp
//! counter, like those of the program's calls.

use crate::instance::Instance;
use crate::tracefs::Tracefs;
use crate::wakings::is_first_namespace;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::{error, fmt};

/// Kilobytes of a processor's buffer: enough for a hundred thousand calls.
const BUFFER: u32 = 16 << 10;
/// The kernel's name for the clock that is the processor's time stamp counter.
pub const CLOCK: &str = "x86-tsc";
/// Events of the two tracers. The last exists in kernels that also record return addresses.
const EVENTS: [&str; 4] = ["function", "funcgraph_entry", "funcgraph_exit", "fgraph_retaddr_entry"];

/// A tracer of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracer {
    /// Records entries and returns. Available in instances since Linux 6.11.
    FunctionGraph,
    /// Records entries.
    Function,
}

impl Tracer {
    /// Returns the kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FunctionGraph => "function_graph",
            Self::Function => "function",
        }
    }
}

/// Why functions of the kernel are not recorded.
#[derive(Debug)]
pub enum NoFunctions {
    /// Only root may access tracefs.
    Forbidden,
    /// There is no tracefs, and none could be mounted.
    NoTracefs(io::Error),
    /// The kernel has no function tracer.
    NoTracer,
    /// The kernel has a function tracer, but does not let functions be chosen.
    NoFilter(io::Error),
    /// No traceable function of the kernel matches this glob.
    NoMatch(String),
    /// The kernel cannot stamp events with the processor's counter.
    NoClock(io::Error),
    /// The program's calls are stamped by another clock.
    OtherClock,
    /// calltap runs in another than the first pid namespace, whose ids the kernel uses.
    Namespace,
    /// Another operation failed.
    Other(&'static str, io::Error),
}

impl fmt::Display for NoFunctions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("cannot record functions of the kernel: ")?;
        match self {
            Self::Forbidden => out.write_str("tracefs needs root; run calltap as root"),
            Self::NoTracefs(error) => write!(
                out,
                "tracefs is not mounted and cannot be: {error}; 'mount -t tracefs nodev /sys/kernel/tracing' mounts it where the kernel has it (CONFIG_TRACING)"
            ),
            Self::NoTracer => out.write_str(
                "this kernel has no function tracer; one built with CONFIG_FUNCTION_GRAPH_TRACER has",
            ),
            Self::NoFilter(error) => write!(
                out,
                "this kernel does not let functions be chosen (set_ftrace_filter: {error}); one built with CONFIG_DYNAMIC_FTRACE, and not locked down, does"
            ),
            Self::NoMatch(glob) => write!(
                out,
                "'{glob}' matches none that can be traced; available_filter_functions in tracefs lists them"
            ),
            Self::NoClock(error) => write!(
                out,
                "this kernel has no trace clock {CLOCK} ({error}); calls of the program could not be compared with its times"
            ),
            Self::OtherClock => out.write_str(
                "they are stamped by the processor's counter, and the calls of the program by another clock; the clock source of the kernel has to be tsc (boot with clocksource=tsc)",
            ),
            Self::Namespace => out.write_str(
                "calltap runs in a pid namespace, and the kernel knows threads by their ids in the first one; run calltap outside of the container",
            ),
            Self::Other(file, error) => write!(out, "{file} in the instance of tracefs: {error}"),
        }
    }
}

impl error::Error for NoFunctions {}

impl NoFunctions {
    fn of_tracefs(error: io::Error) -> NoFunctions {
        match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) => NoFunctions::Forbidden,
            _ => NoFunctions::NoTracefs(error),
        }
    }

    fn of_filter(glob: &str, error: io::Error) -> NoFunctions {
        match Errno::from_io_error(&error) {
            Some(Errno::INVAL) => NoFunctions::NoMatch(glob.to_owned()),
            _ => NoFunctions::NoFilter(error),
        }
    }
}

/// A recording of kernel functions, which ends when it is dropped.
pub struct Functions {
    /// Buffers by processor, once something is recorded. They are closed before the instance is
    /// removed: the kernel refuses that otherwise.
    buffers: Vec<(u32, File)>,
    page: Vec<u8>,
    globs: String,
    tracer: Tracer,
    instance: Instance,
    header_page: String,
    formats: Vec<String>,
}

impl Functions {
    /// Chooses the functions whose names match one of `globs`. Nothing is recorded before
    /// [`Self::watch`].
    pub fn choose(globs: &[String]) -> Result<Functions, NoFunctions> {
        if !is_first_namespace() {
            return Err(NoFunctions::Namespace);
        }
        let tracefs = Tracefs::open().map_err(NoFunctions::of_tracefs)?;
        let clocks = tracefs.read("trace_clock").map_err(NoFunctions::of_tracefs)?;
        if !clocks.split_whitespace().any(|clock| clock.trim_matches(['[', ']']) == CLOCK) {
            return Err(NoFunctions::NoClock(io::ErrorKind::Unsupported.into()));
        }
        let formats = EVENTS.map(|event| tracefs.read(&format!("events/ftrace/{event}/format")));
        let formats: Vec<String> = formats.into_iter().flatten().collect();
        let header_page = tracefs.read("events/header_page").map_err(NoFunctions::of_tracefs)?;
        let instance = Instance::create(&tracefs, CLOCK, BUFFER).map_err(NoFunctions::of_tracefs)?;
        let other = |file| move |error| NoFunctions::Other(file, error);
        let tracers = instance.read("available_tracers").map_err(other("available_tracers"))?;
        let tracers: Vec<&str> = tracers.split_whitespace().collect();
        let usable = [Tracer::FunctionGraph, Tracer::Function];
        let tracer = usable.into_iter().find(|tracer| tracers.contains(&tracer.name()));
        let tracer = tracer.ok_or(NoFunctions::NoTracer)?;
        for glob in globs {
            // The kernel looks a name up once it is complete.
            let written = instance.write("set_ftrace_filter", &format!("{glob}\n"));
            written.map_err(|error| NoFunctions::of_filter(glob, error))?;
        }
        // The kernel does not report an error at the end of a write, and without a filter, it
        // records all functions.
        let chosen = instance.read("set_ftrace_filter").map_err(NoFunctions::NoFilter)?;
        if chosen.lines().all(|line| line.starts_with('#')) {
            return Err(NoFunctions::NoMatch(globs.join(",")));
        }
        let page = vec![0; rustix::param::page_size()];
        let globs = globs.join(",");
        Ok(Functions { buffers: Vec::new(), page, globs, tracer, instance, header_page, formats })
    }

    /// Starts recording functions of a process's threads, and of the threads and processes that
    /// these start.
    pub fn watch(&mut self, pid: u32) -> Result<(), NoFunctions> {
        let other = |file| move |error| NoFunctions::Other(file, error);
        let listed = self.instance.list_threads(pid, "options/function-fork", "set_ftrace_pid");
        // Without a thread in the list, the kernel would record the whole machine.
        if listed.map_err(other("set_ftrace_pid"))?.is_empty() {
            return Err(NoFunctions::Other("set_ftrace_pid", Errno::SRCH.into()));
        }
        let switched = self.instance.write("current_tracer", self.tracer.name());
        switched.map_err(other("current_tracer"))?;
        // The kernel does not switch tracers while a buffer is open.
        self.buffers = self.instance.buffers().map_err(other("per_cpu"))?;
        Ok(())
    }

    /// Whether functions are or were recorded.
    pub fn is_watching(&self) -> bool {
        !self.buffers.is_empty()
    }

    /// Stops recording. The recorded pages can still be read.
    pub fn stop(&self) -> io::Result<()> {
        self.instance.write("tracing_on", "0")
    }

    /// Passes each page of the buffers to `take`, with its processor. All have the length of the
    /// first.
    pub fn read(&mut self, take: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        for (cpu, buffer) in &mut self.buffers {
            // An empty buffer has no page.
            while let Ok(length @ 1..) = buffer.read(&mut self.page) {
                self.page[length..].fill(0);
                take(*cpu, &self.page)?;
            }
        }
        Ok(())
    }

    /// Returns the globs of the functions, separated by commas.
    pub fn globs(&self) -> &str {
        &self.globs
    }

    /// Returns the tracer in use.
    pub fn tracer(&self) -> Tracer {
        self.tracer
    }

    /// Returns the kernel's description of the page layout.
    pub fn header_page(&self) -> &str {
        &self.header_page
    }

    /// Returns the kernel's descriptions of the events' layouts.
    pub fn formats(&self) -> &[String] {
        &self.formats
    }

    /// Returns the size of a page, bytes.
    pub fn page_size(&self) -> usize {
        self.page.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_one_line_with_advice() {
        let of = |errno: Errno| NoFunctions::of_filter("vfs_x*", errno.into());
        assert!(of(Errno::INVAL).to_string().contains("'vfs_x*' matches none"));
        assert!(of(Errno::NODEV).to_string().contains("CONFIG_DYNAMIC_FTRACE"));
        assert!(NoFunctions::of_tracefs(Errno::PERM.into()).to_string().ends_with("run calltap as root"));
        let refused = NoFunctions::of_tracefs(Errno::NODEV.into()).to_string();
        assert!(refused.contains("mount -t tracefs") && !refused.contains('\n'), "{refused}");
    }

    /// Runs fully only if the kernel lets this user choose functions; the end-to-end tests bring
    /// kernels that do.
    #[test]
    fn functions_of_own_threads_are_recorded_or_refused() {
        let missing = Functions::choose(&["calltap_has_no_such_function*".to_owned()]).err();
        let chosen = Functions::choose(&["vfs_read".to_owned(), "vfs_write".to_owned()]);
        let mut functions = match chosen {
            Ok(functions) => functions,
            Err(refused) => {
                let is_unknown = matches!(refused, NoFunctions::NoMatch(_) | NoFunctions::Other(..));
                return assert!(!is_unknown, "{refused}");
            }
        };
        assert!(matches!(missing, Some(NoFunctions::NoMatch(_))), "{missing:?}");
        functions.watch(std::process::id()).unwrap();
        let _ = std::fs::read("/proc/self/stat").unwrap();
        functions.stop().unwrap();
        let mut pages = 0;
        let mut see = |_, page: &[u8]| {
            pages += usize::from(page.iter().any(|byte| *byte != 0));
            Ok(())
        };
        functions.read(&mut see).unwrap();
        assert!(pages > 0);
    }
}
