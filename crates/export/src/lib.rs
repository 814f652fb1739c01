//! Exports of a trace to the formats of other programs: Perfetto, Chrome, Firefox, Speedscope,
//! pprof, callgrind, OpenTelemetry, trace-cmd, CSV, folded stacks and flame graphs.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod callgrind;
mod chrome;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod format;
mod labels;
mod options;
mod otlp;
mod perfetto;
mod pprof;
mod proto;
mod speedscope;
mod svg;
mod trace_dat;

pub use self::flamegraph::flamegraph;
pub use callgrind::callgrind;
pub use chrome::chrome;
pub use csv::csv;
pub use firefox::firefox;
pub use folded::folded;
pub use format::{FORMATS, Format, Writer};
pub use options::{Options, Version};
pub use otlp::otlp;
pub use perfetto::perfetto;
pub use pprof::pprof;
pub use speedscope::speedscope;
pub use trace_dat::trace_dat;
