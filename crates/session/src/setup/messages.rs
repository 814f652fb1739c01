//! Messages for the user: of long waits, and of problems of the agents.

use calltap_abi::PROCESS_MAX;
use calltap_abi::plan::Trouble;
use calltap_collect::collector::Totals;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::target::Target;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long work takes before the user is told.
const MESSAGE_DELAY: Duration = Duration::from_secs(2);

/// Returns the message about a program that waits until its traceable functions are known.
pub(crate) fn waiting(name: &str) -> String {
    format!("{name} is held until calltap has decoded its functions")
}

/// Runs `work`, and reports `text` to the user if it takes long.
pub(crate) fn tell_if_long<T>(tell: fn(&str), text: String, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waiting.recv_timeout(MESSAGE_DELAY) == Err(RecvTimeoutError::Timeout) {
                tell(&text);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Returns a note about processes that a program has left behind.
pub(crate) fn going_on(left: &[Target]) -> Option<String> {
    let living: Vec<&Target> = left.iter().filter(|target| target.lives()).collect();
    let Target { name, pid, .. } = living.first()?;
    let who = match living.len() {
        1 => format!("{name}-{pid} goes on, and is"),
        count => format!("{count} processes ({name}-{pid}, ...) go on, and are"),
    };
    Some(format!(
        "{who} no longer recorded: record --follow records until all have ended; 'calltap detach -p {pid}' removes \
         calltap's code"
    ))
}

/// Returns notes about problems of the agents, for the user.
pub(crate) fn trouble(shared: &Shared, program: &str, totals: Totals) -> Vec<String> {
    let mut notes = Vec::new();
    let unmapped = shared.control().unmapped.load(Relaxed);
    if unmapped > 0 {
        let those = if unmapped == 1 { "a process".to_owned() } else { format!("{unmapped} processes") };
        notes.push(format!("{program}: {those} ran untraced: {}", Reason::AgentNoMemory));
    } else if totals.processes == 0 {
        notes.push(format!("{program}: the program ran untraced: the dynamic linker did not load the agent"));
    }
    if totals.processes as usize >= PROCESS_MAX {
        notes.push(format!("calltap records at most {PROCESS_MAX} processes: later ones were not recorded"));
    }
    let all = (0..totals.processes).filter_map(|index| shared.process(index));
    let bits = all.fold(0, |bits, process| bits | process.trouble.load(Relaxed));
    let mut add = |trouble: Trouble, text: &str| {
        if bits & trouble as u32 != 0 {
            notes.push(text.to_owned());
        }
    };
    add(
        Trouble::NoShadowStack,
        "there was no memory for the shadow stacks of some stacks: calls on them are counted as lost",
    );
    add(Trouble::NoAnswer, "the recorder did not answer in time: some modules were not traced");
    notes.extend(shared.python_trouble());
    notes.extend(shared.check().err().map(|error| error.to_string()));
    notes
}
