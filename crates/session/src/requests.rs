//! Asking the controller of a session. One controller has a session at a time (it holds the lock); others that want something leave a request in the
//! session directory, and find the answer there.

use crate::error::Error;
use crate::plan::directory::{Directory, Door};
use crate::settings::Status;
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

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// To trace something else from now on.
    Set {
        /// What replaces what was set before.
        given: Selection,
        /// What of it is kept.
        #[serde(default)]
        kept: Kept,
        /// Whether functions are on at all.
        on: Option<bool>,
        /// Globs may match nothing.
        later: bool,
    },
    /// The session's status.
    Status,
    /// The profile tracer's sums.
    Profile,
    /// The selection, and the functions that it names.
    Selection,
    /// Replaces the selection.
    Select(Selection),
    /// Resets the profile tracer's sums.
    ResetProfile,
    /// Detaches.
    Detach,
}

/// Which calls are kept instead, kind by kind; an empty word clears a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Functions whose calls are kept with what they call.
    pub roots: Option<Vec<String>>,
    /// Functions whose calls are kept with what leads to them.
    pub targets: Option<Vec<String>>,
    /// Levels; 0: all.
    pub depth: Option<usize>,
}

impl Kept {
    /// Nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Kept::default()
    }

    /// What is kept then.
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
    /// The selection was set.
    Set {
        /// Functions that were enabled.
        on: u32,
        /// Functions that were disabled.
        off: u32,
        /// Nanoseconds for which all threads were stopped.
        stopped_ns: u64,
        /// Nanoseconds from the first write to code until the last.
        written_ns: u64,
        /// What the user should know.
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
    /// Refused, for this reason.
    Refused(String),
}

/// Requests of a view in the same process as the controller: no files, no waiting for the next look.
#[derive(Debug, Default)]
pub struct Mailbox {
    letters: Mutex<Letters>,
    come: Condvar,
}

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<(Request, Sender<Answer>)>,
    closed: bool,
}

impl Mailbox {
    /// Asks, and waits for the answer. None: the controller has ended.
    pub fn ask(&self, request: Request) -> Option<Answer> {
        let (sender, answer) = mpsc::channel();
        {
            let mut letters = self.letters();
            if letters.closed {
                return None;
            }
            letters.waiting.push_back((request, sender));
        }
        self.come.notify_all();
        answer.recv().ok()
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        // A thread that panicked left whole letters behind.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was not answered yet, and where its answer goes.
    pub(crate) fn next(&self) -> Option<(Request, Sender<Answer>)> {
        self.letters().waiting.pop_front()
    }

    /// Waits for one. True if there is one.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let none = |letters: &mut Letters| letters.waiting.is_empty();
        let waited = self.come.wait_timeout_while(self.letters(), limit, none);
        !waited.unwrap_or_else(PoisonError::into_inner).0.waiting.is_empty()
    }

    /// No answer comes any more.
    pub fn close(&self) {
        let mut letters = self.letters();
        letters.closed = true;
        letters.waiting.clear();
    }
}

/// A request or an answer, and what tells it from an earlier one.
#[derive(Serialize, Deserialize)]
struct Letter<T> {
    id: u64,
    text: T,
}

const REQUEST: &str = "request";
const ANSWER: &str = "answer";
/// How long an answer is waited for while the controller shows no sign of life,
const PATIENCE: Duration = Duration::from_secs(5);
/// and at most: on a busy machine one that lives may take long.
const LONGEST: Duration = Duration::from_secs(60);
/// How long the end is waited for, once it was promised: open calls may have to come to theirs.
const LEAVING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);
/// Of a pause of the caller, or of the machine, no more than this counts as silence of the controller.
const LONGEST_STEP_NS: u64 = 100_000_000;

/// Asks the controller of a process's session. None: it has none.
pub fn ask(pid: u32, request: &Request) -> Result<Option<Answer>, Error> {
    let target = Target::known(pid)?;
    let start = Instant::now();
    // Two that ask come one after the other.
    let Some(door) = Directory::knock(&target, LONGEST)? else { return Ok(None) };
    let id = calltap_process::clock::monotonic_ns();
    let mut silence = Silence::new(door.heartbeat(), id, LONGEST_STEP_NS);
    let system = |source| Error::system("asking the calltap that is at it", source);
    door.write(REQUEST, &to_text(&Letter { id, text: request })).map_err(system)?;
    let is_silent = |silence: &mut Silence| {
        let silent_ns = silence.look(door.heartbeat(), calltap_process::clock::monotonic_ns());
        Duration::from_nanos(silent_ns) > PATIENCE
    };
    while !is_silent(&mut silence) && start.elapsed() < LONGEST {
        let answer = door.read(ANSWER).ok().and_then(|text| from_text::<Answer>(&text));
        if let Some(answer) = answer.filter(|answer| answer.id == id) {
            if matches!(answer.text, Answer::Detaching) && !has_ended(&door) {
                return Err(target.refuse(Reason::Leaving).into());
            }
            return Ok(Some(answer.text));
        }
        if !door.is_busy() {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
    // A request that is not waited for any more shall not be done.
    door.remove(REQUEST);
    Err(target.refuse(Reason::Silent).into())
}

fn has_ended(door: &Door) -> bool {
    let start = Instant::now();
    while door.is_busy() && start.elapsed() < LEAVING {
        std::thread::sleep(LOOK);
    }
    !door.is_busy()
}

/// The requests that come to a session.
#[derive(Debug, Default)]
pub struct Requests {
    /// The last that was answered.
    answered: u64,
}

impl Requests {
    /// A request that was not answered yet.
    pub fn next(&mut self, directory: &Directory) -> Option<Request> {
        let letter = from_text::<Request>(&directory.read(REQUEST).ok()?)?;
        let new = std::mem::replace(&mut self.answered, letter.id) != letter.id;
        new.then_some(letter.text)
    }

    /// Answers it.
    pub fn answer(&self, directory: &Directory, answer: &Answer) {
        // The process that has asked will wait in vain if that fails.
        let _ = directory.write(ANSWER, &to_text(&Letter { id: self.answered, text: answer }));
    }
}

fn to_text<T: Serialize>(letter: &Letter<T>) -> String {
    serde_json::to_string(letter).unwrap_or_default()
}

fn from_text<T: for<'de> Deserialize<'de>>(text: &str) -> Option<Letter<T>> {
    serde_json::from_str(text).ok()
}
