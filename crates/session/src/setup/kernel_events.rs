//! The kernel's events of a process that are recorded beside its calls.

use crate::options::KernelOptions;
use crate::setup::messages;
use calltap_abi::Clock;
use calltap_collect::waits::kernel::Tracepoints;
use calltap_sched::{Functions, NoFunctions, Refused, Sched};
use std::sync::{Mutex, PoisonError, Weak};

/// Sources of kernel events that are recorded, and notes for the user.
pub(crate) struct KernelEvents {
    /// When threads run and wait; None if not requested.
    pub sched: Option<Result<Sched, Refused>>,
    /// Wakings of threads, and their system calls.
    pub tracepoints: Tracepoints,
    /// Globs of the recorded functions of the kernel.
    pub functions: Option<String>,
    /// Why requested events are missing.
    pub notes: Vec<String>,
}

/// Begins to record a process's kernel events, with those of its children if `follow`. With a clock
/// without time, they would say nothing, so none are recorded.
pub(crate) fn record(
    options: &KernelOptions,
    follow: bool,
    tell: fn(&str),
    clock: Clock,
    pid: u32,
) -> KernelEvents {
    // On a busy machine, the kernel takes tens of milliseconds for each event of each thread.
    let text = format!("waiting until the kernel records the events of all threads of process {pid}");
    messages::tell_if_long(tell, text, || begin(options, follow, clock, pid))
}

fn begin(options: &KernelOptions, follow: bool, clock: Clock, pid: u32) -> KernelEvents {
    let has_time = clock != Clock::Counter;
    let sched = (options.sched && has_time).then(|| calltap_sched::switches(pid, follow));
    let tracepoints = Tracepoints {
        wakings: (options.wakings && has_time).then(|| calltap_sched::wakings(pid)),
        system_calls: (options.system_calls && has_time).then(|| calltap_sched::system_calls(pid, follow)),
        incidents: (options.incidents && has_time).then(|| calltap_sched::incidents(pid, follow)),
    };
    let refused = [
        sched.as_ref().and_then(|sched| sched.as_ref().err()),
        tracepoints.wakings.as_ref().and_then(|wakings| wakings.as_ref().err()),
        tracepoints.system_calls.as_ref().and_then(|calls| calls.as_ref().err()),
        tracepoints.incidents.as_ref().and_then(|incidents| match incidents {
            Ok(incidents) => incidents.signals.as_ref(),
            Err(refused) => Some(refused),
        }),
    ];
    let refused = refused.into_iter().flatten().filter(|refused| !refused.is_gone());
    let mut notes: Vec<String> = refused.map(ToString::to_string).collect();
    let functions = watch_functions(options.functions.as_ref(), clock, pid).unwrap_or_else(|refused| {
        notes.push(refused.to_string());
        None
    });
    KernelEvents { sched, tracepoints, functions, notes }
}

/// Begins to record functions of the kernel that a process's threads run. Returns their globs, if
/// some were requested.
fn watch_functions(
    functions: Option<&Weak<Mutex<Functions>>>,
    clock: Clock,
    pid: u32,
) -> Result<Option<String>, NoFunctions> {
    let Some(functions) = functions.and_then(Weak::upgrade) else { return Ok(None) };
    if clock != Clock::Tsc {
        return Err(NoFunctions::OtherClock);
    }
    let mut functions = functions.lock().unwrap_or_else(PoisonError::into_inner);
    functions.watch(pid)?;
    Ok(Some(functions.globs().to_owned()))
}
