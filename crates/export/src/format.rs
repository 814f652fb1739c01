//! The formats, by name.

use crate::options::Options;
use crate::{
    callgrind, chrome, csv, firefox, flamegraph, folded, otlp, perfetto, pprof, speedscope, trace_dat,
};
use calltap_analysis::{Error, Progress, Source, Totals};
use std::io::Write;

/// A format of another program.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Name on the command line.
    pub name: &'static str,
    /// Whether a terminal cannot show it.
    pub is_binary: bool,
    /// Writes a trace.
    pub write: Writer,
}

/// A function that writes a trace.
pub type Writer = fn(&dyn Source, &Options, &mut dyn Write, Progress<'_>) -> Result<Totals, Error>;

/// All formats; the first is the default.
pub const FORMATS: [Format; 11] = [
    Format { name: "perfetto", is_binary: true, write: perfetto },
    Format { name: "chrome", is_binary: false, write: chrome },
    Format { name: "flamegraph", is_binary: false, write: flamegraph },
    Format { name: "folded", is_binary: false, write: folded },
    Format { name: "csv", is_binary: false, write: csv },
    Format { name: "speedscope", is_binary: false, write: speedscope },
    Format { name: "pprof", is_binary: true, write: pprof },
    Format { name: "callgrind", is_binary: false, write: callgrind },
    Format { name: "firefox", is_binary: false, write: firefox },
    Format { name: "trace-cmd", is_binary: true, write: trace_dat },
    Format { name: "otlp", is_binary: false, write: otlp },
];

impl Format {
    /// Returns the format of this name.
    pub fn of_name(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|format| format.name == name)
    }
}
