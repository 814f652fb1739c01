//! Requests to the controller of a session. One controller has a session at a time: it holds the
//! lock. Other commands leave a request in the session directory and find the answer there.

use crate::error::Error;
use crate::plan::directory::{Directory, RequestChannel};
use crate::settings::status::Status;
use calltap_abi::silence::Silence;
use calltap_collect::kept::keeping::Subtree;
use calltap_process::Reason;
use calltap_process::target::Target;
use calltap_selection::Listed;
use calltap_selection::Profiled;
use calltap_selection::Selection;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Changes what is traced.
    Set {
        /// Parts of the selection to replace.
        given: Selection,
        /// Changes of which calls are kept.
        #[serde(default)]
        kept: KeepRules,
        /// Whether functions are enabled at all.
        on: Option<bool>,
        /// Whether globs may match nothing.
        later: bool,
    },
    /// Asks for the session's status.
    Status,
    /// Asks for the profile tracer's sums.
    Profile,
    /// Asks for the selection, and the functions that it names.
    Selection,
    /// Replaces the selection.
    Select(Selection),
    /// Resets the profile tracer's sums.
    ResetProfile,
    /// Detaches.
    Detach,
}

/// Changes of which calls are kept, kind by kind; an empty word clears a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeepRules {
    /// Functions whose calls are kept with their callees.
    pub roots: Option<Vec<String>>,
    /// Functions whose calls are kept with their callers.
    pub targets: Option<Vec<String>>,
    /// Number of levels; 0 for all.
    pub depth: Option<usize>,
}

impl KeepRules {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        *self == KeepRules::default()
    }

    /// Applies the changes.
    pub(crate) fn instead_of(self, before: &Subtree) -> Subtree {
        let words = |given: Option<Vec<String>>, before: &Vec<String>| match given {
            Some(words) => words.into_iter().filter(|word| !word.is_empty()).collect(),
            None => before.clone(),
        };
        Subtree {
            roots: words(self.roots, &before.roots),
            targets: words(self.targets, &before.targets),
            depth: self.depth.map_or(before.depth, |levels| (levels > 0).then_some(levels)),
            triggers: before.triggers.clone(),
        }
    }
}

/// The controller's answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The selection was changed.
    Set {
        /// Functions that were enabled.
        on: u32,
        /// Functions that were disabled.
        off: u32,
        /// Nanoseconds for which all threads were stopped.
        stopped_ns: u64,
        /// Nanoseconds from the first write to code until the last.
        written_ns: u64,
        /// Notes for the user.
        notes: Vec<String>,
    },
    /// The session's status.
    Status(Status),
    /// The profile tracer's sums.
    Profile(Vec<Profiled>),
    /// The selection, and the functions that it names.
    Selection(Selection, Vec<Listed>),
    /// The controller detaches.
    Detaching,
    /// The request was refused, for this reason.
    Refused(String),
}

/// Requests of a view in the same process as the controller, without files or polling.
#[derive(Debug, Default)]
pub struct Mailbox {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Request, Sender<Answer>)>,
    closed: bool,
}

impl Mailbox {
    /// Sends a request and waits for the answer. None if the controller has ended.
    pub fn ask(&self, request: Request) -> Option<Answer> {
        let (sender, answer) = mpsc::channel();
        {
            let mut queue = self.queue();
            if queue.closed {
                return None;
            }
            queue.waiting.push_back((request, sender));
        }
        self.arrived.notify_all();
        answer.recv().ok()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked leaves a complete queue behind.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next request, with the channel for its answer.
    pub(crate) fn next(&self) -> Option<(Request, Sender<Answer>)> {
        self.queue().waiting.pop_front()
    }

    /// Waits for a request. Returns whether there is one.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let none = |queue: &mut Queue| queue.waiting.is_empty();
        let waited = self.arrived.wait_timeout_while(self.queue(), limit, none);
        !waited.unwrap_or_else(PoisonError::into_inner).0.waiting.is_empty()
    }

    /// Drops waiting requests and refuses further ones.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.waiting.clear();
    }
}

/// A request or an answer, with an id to match them.
#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    id: u64,
    body: T,
}

const REQUEST: &str = "request";
const ANSWER: &str = "answer";
/// How long to wait for an answer while the controller shows no sign of life.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait at most, as a living controller may take long on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the promised end: open calls may have to return first.
const DETACHING: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum time between two polls that counts as silence of the controller: the caller or the
/// machine may have paused.
const MAX_STEP_NS: u64 = 100_000_000;

/// Sends a request to the controller of a process's session. None if there is none.
pub fn ask(pid: u32, request: &Request) -> Result<Option<Answer>, Error> {
    let target = Target::known(pid)?;
    let start = Instant::now();
    // Another requester is waited for.
    let Some(channel) = RequestChannel::open(&target, REQUEST_TIMEOUT)? else { return Ok(None) };
    let id = calltap_process::clock::monotonic_ns();
    let mut silence = Silence::new(channel.heartbeat(), id, MAX_STEP_NS);
    let system = |source| Error::system("cannot ask the calltap that controls it", source);
    channel.write(REQUEST, &to_text(&Numbered { id, body: request })).map_err(system)?;
    let is_silent = |silence: &mut Silence| {
        let silent_ns = silence.update(channel.heartbeat(), calltap_process::clock::monotonic_ns());
        Duration::from_nanos(silent_ns) > SILENCE_LIMIT
    };
    while !is_silent(&mut silence) && start.elapsed() < REQUEST_TIMEOUT {
        let answer = channel.read(ANSWER).ok().and_then(|text| from_text::<Answer>(&text));
        if let Some(answer) = answer.filter(|answer| answer.id == id) {
            if matches!(answer.body, Answer::Detaching) && !has_ended(&channel) {
                return Err(target.refuse(Reason::Leaving).into());
            }
            return Ok(Some(answer.body));
        }
        if !channel.has_controller() {
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // The request is withdrawn, so that it is not carried out later.
    channel.remove(REQUEST);
    Err(target.refuse(Reason::Silent).into())
}

fn has_ended(channel: &RequestChannel) -> bool {
    let start = Instant::now();
    while channel.has_controller() && start.elapsed() < DETACHING {
        std::thread::sleep(POLL_INTERVAL);
    }
    !channel.has_controller()
}

/// Reader of the requests to a session.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Id of the last request that was answered.
    answered: u64,
}

impl Requests {
    /// Returns the request, if it was not answered yet.
    pub(crate) fn next(&mut self, directory: &Directory) -> Option<Request> {
        let request = from_text::<Request>(&directory.read(REQUEST).ok()?)?;
        let new = std::mem::replace(&mut self.answered, request.id) != request.id;
        new.then_some(request.body)
    }

    /// Answers the last request.
    pub(crate) fn answer(&self, directory: &Directory, answer: &Answer) {
        // On failure the requester runs into its time limit.
        let _ = directory.write(ANSWER, &to_text(&Numbered { id: self.answered, body: answer }));
    }
}

fn to_text<T: Serialize>(numbered: &Numbered<T>) -> String {
    serde_json::to_string(numbered).unwrap_or_default()
}

fn from_text<T: for<'de> Deserialize<'de>>(text: &str) -> Option<Numbered<T>> {
    serde_json::from_str(text).ok()
}
