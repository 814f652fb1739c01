//! Kernel events of a process's threads.
//!
//! Unprivileged users may record context switches, page faults and moves to other processors, if
//! `kernel.perf_event_paranoid` is at most 2. Wakings, system calls, signals, and functions of the
//! kernel that the threads run take more privileges.
//!
//! All except the functions of the kernel are a [`Stream`] of perf events or, for wakings where
//! that is allowed, of an instance of tracefs. An event of a thread is inherited by the threads and
//! processes that it starts; the events of a processor share a ring. Once a stream is open, only
//! its rings have to be read often enough.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod events;
mod execs;
mod functions;
mod guard;
mod incidents;
mod instance;
mod names;
mod order;
mod perf;
mod records;
mod refused;
mod rings;
mod stream;
mod switches;
mod thread_event;
mod thread_names;
mod tracefs;
mod tracepoints;
mod wakings;

pub use execs::Execs;
pub use functions::{CLOCK, Functions, NoFunctions, Tracer};
pub use incidents::{Incidents, incidents};
pub use names::Names;
pub use order::{Change, Timed};
pub use refused::{Cause, Refused, Subject};
pub use stream::{SETTLE, Stream};
pub use switches::{Sched, switches};
pub use thread_event::{ThreadEvent, ThreadEventKind};
pub use tracepoints::system_calls;
pub use wakings::{Wakings, remove_left, wakings};

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::Edge;
    use calltap_trace::RunState;
    use calltap_trace::Switch;
    use std::io;
    use std::io::{Read, Write};
    use std::time::Duration;

    /// A thread of this process that starts after the watch sleeps five times: it is seen to block
    /// for that long, and to run in between. Its name is known after its end.
    #[test]
    fn sleeps_of_an_inherited_thread_and_its_name_are_seen() {
        let mut sched = match switches(std::process::id(), false) {
            Ok(sched) => sched,
            Err(refused) => {
                // The test harness does not capture this, unlike printed text.
                let _ = writeln!(io::stderr(), "SKIPPED: {refused}");
                return;
            }
        };
        let sleep = || {
            (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
            rustix::thread::gettid().as_raw_nonzero().get() as u32
        };
        let sleeper = std::thread::Builder::new().name("sleeper".to_owned()).spawn(sleep).unwrap();
        let tid = sleeper.join().unwrap();
        let (mut slept, mut since, mut state) = (0, 0, RunState::Unknown);
        let mut see = |change: Change<Switch>| match change {
            Change::Of(of, switch) if of == tid => {
                if state == RunState::Blocked {
                    slept += switch.at - since;
                }
                assert_ne!(state, switch.to, "a thread that goes on as it was");
                (since, state) = (switch.at, switch.to);
            }
            _ => {}
        };
        sched.stream.read(&mut see);
        sched.stream.rest_of(tid, &mut see);
        assert!(!sched.stream.take_threads().contains(&tid) && sched.stream.lost() == 0);
        assert_eq!(sched.name_of(tid).as_deref(), Some("sleeper"));
        assert!(slept >= 100_000_000, "{slept} ns");
    }

    /// A shell executes a program in a child, and then in its own process.
    #[test]
    fn the_first_of_two_executed_programs_is_named() {
        let mut execs = match Execs::of(std::process::id()) {
            Ok(execs) => execs,
            Err(cause) => {
                let _ = writeln!(io::stderr(), "SKIPPED: {cause:?}");
                return;
            }
        };
        assert_eq!(execs.first(), None);
        // The event belongs to the threads that exist now and to those that they start.
        let thread = std::thread::spawn(|| {
            let shell = std::process::Command::new("sh").args(["-c", "sleep 0; exec true"]).status();
            assert!(shell.unwrap().success());
        });
        thread.join().unwrap();
        assert_eq!(execs.first().as_deref(), Some("sh"));
    }

    /// A reader waits for its writer: the waking names the writer, and the system calls are the
    /// reader's own.
    #[test]
    fn a_reader_is_woken_by_its_writer() {
        let own = std::process::id();
        let (wakings, calls) = (wakings(own), system_calls(own, false));
        let (Wakings { stream: mut wakings, .. }, mut calls) = match (wakings, calls) {
            (Ok(wakings), Ok(calls)) => (wakings, calls),
            (Err(refused), _) | (_, Err(refused)) => {
                // The test harness does not capture this, unlike printed text.
                let _ = writeln!(io::stderr(), "SKIPPED: {refused}");
                return;
            }
        };
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let (reader, writer) = io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(own()).unwrap();
            let mut byte = [0];
            (&reader).read_exact(&mut byte).unwrap();
            own()
        });
        // On a busy machine, the reader may wait for a processor instead of its writer.
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::sleep(Duration::from_millis(5));
        }
        (&writer).write_all(&[1]).unwrap();
        let tid = thread.join().unwrap();
        std::thread::sleep(SETTLE);
        let (mut woken, mut seen) = (Vec::new(), Vec::new());
        wakings.read(&mut |change| match change {
            Change::Of(of, waking) if of == tid => woken.push(waking),
            _ => {}
        });
        calls.read(&mut |change| match change {
            Change::Of(of, call) if of == tid => seen.push((call.number, call.edge)),
            _ => {}
        });
        assert!(woken.iter().any(|waking| waking.tid == own() && !waking.interrupt), "{woken:?}");
        let read = libc::SYS_read as u32;
        assert!(seen.contains(&(read, Edge::Exit(1))), "{seen:?}");
        assert!(seen.iter().any(|(number, edge)| *number == read && matches!(edge, Edge::Enter(_))));
    }
}
