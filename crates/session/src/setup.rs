//! Setup of every session: shared memory, a clock, the kernel's events, and a planner that answers
//! the agents.

pub(crate) mod clocks;
pub(crate) mod kernel_events;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod serve;

use calltap_abi::Clock;
use calltap_process::clock;
use calltap_selection::ParsedSelection;
use calltap_trace::Session;
use clocks::NoTsc;
use std::{env, fs};

/// Returns the session record of the trace.
pub(crate) fn session(
    selection: &ParsedSelection,
    command: Vec<String>,
    clock: Clock,
    no_tsc: Option<&NoTsc>,
) -> Session {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Session {
        calltap: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        host: line("/proc/sys/kernel/hostname"),
        kernel: format!("{} {}", line("/proc/sys/kernel/osrelease"), env::consts::ARCH),
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        start_realtime_ns: clock::realtime_ns(),
        start_monotonic_ns: clock::monotonic_ns(),
        clock: clock::kind(clock),
        clock_note: no_tsc.map(NoTsc::to_string),
        tracers: selection.tracers.clone(),
        conditions: selection.words.conditions.clone(),
    }
}
