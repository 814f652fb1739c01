//! A function of a binary.

use crate::address::Svma;
use crate::reason::Reason;
use crate::site::{SiteForm, SiteKind};
use crate::watch::Watch;
use serde::{Deserialize, Serialize};

/// The method by which a function's return is seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Returns {
    /// A stub's address replaces the return address while the function runs. Holds the reason why
    /// its exits are not rewritten; None where the compiler left room at its entry.
    Stub(Option<Reason>),
    /// All exits of the function are overwritten with jumps.
    Exits {
        /// Offsets of exits among the instructions displaced at its entry.
        at_entry: Vec<u8>,
        /// The other exits.
        elsewhere: Vec<Exit>,
        /// The reason why the end of a call that leaves by a tail call is not seen; None if the
        /// function has no tail call.
        unrecorded_end: Option<Reason>,
    },
}

impl Returns {
    /// Returns why the end of some calls is not seen, if that is so.
    pub fn unrecorded_end(&self) -> Option<&Reason> {
        match self {
            Returns::Exits { unrecorded_end, .. } => unrecorded_end.as_ref(),
            Returns::Stub(_) => None,
        }
    }
}

impl Default for Returns {
    fn default() -> Returns {
        Returns::Stub(None)
    }
}

/// An exit of a function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// First displaced byte.
    pub at: Svma,
    /// Displaced bytes: whole instructions, and perhaps padding; five bytes or more.
    pub old: Vec<u8>,
    /// Offsets of the instructions that leave the function.
    pub leaves: Vec<u8>,
    /// Whether the compiler left room at the exit: a `ret` with padding behind it, or a short jump
    /// to the end of `old`, where the exit follows.
    pub is_sled: bool,
    /// Whether the fifth byte, `pop %rbp`, stays, behind a first instruction of four bytes: a
    /// goroutine may resume there. It is the last byte of the jump's displacement, so the jump
    /// leads 1.5 GB upwards.
    pub keeps_pop: bool,
}

/// A function of a binary, traceable or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Function {
    /// Linker symbol, or `module+0x...` when the binary has none for it.
    pub name: String,
    /// Further linker symbols of the same address (aliases, identical-code folding), and of
    /// [resolvers](crate::Resolver) that may choose it, sorted.
    pub aliases: Vec<String>,
    /// Entry address.
    pub address: Svma,
    /// Bytes; 0 if unknown.
    pub size: u64,
    /// Whether this is a function, or a part of one.
    pub role: Role,
    /// Whether it can be traced.
    pub verdict: Verdict,
    /// The method by which its return is seen.
    pub returns: Returns,
    /// The function's relation to a future, if [`find_polls`](crate::find_polls) found one.
    pub poll: Option<Poll>,
    /// The event that its calls announce to the agent.
    pub watch: Option<Watch>,
}

impl Function {
    /// Whether this is a part of another function, which the compiler moved away.
    pub fn is_part(&self) -> bool {
        matches!(self.role, Role::ColdPart(_))
    }

    /// Whether it can be traced.
    pub fn is_traceable(&self) -> bool {
        self.form().is_some()
    }

    /// The kind of room that the compiler left.
    pub fn kind(&self) -> SiteKind {
        match self.verdict {
            Verdict::Open => SiteKind::None,
            Verdict::Site { kind, .. } | Verdict::Refused { kind, .. } => kind,
        }
    }

    /// The site, if the function can be traced.
    pub fn form(&self) -> Option<&SiteForm> {
        match &self.verdict {
            Verdict::Site { form, .. } => Some(form),
            Verdict::Open | Verdict::Refused { .. } => None,
        }
    }

    /// The reason why it cannot be traced.
    pub fn reason(&self) -> Option<&Reason> {
        match &self.verdict {
            Verdict::Refused { reason, .. } => Some(reason),
            Verdict::Open | Verdict::Site { .. } => None,
        }
    }

    /// Whether only a filter that names it selects it.
    pub fn is_on_demand(&self) -> bool {
        matches!(
            self.verdict,
            Verdict::Site { on_demand: true, .. } | Verdict::Refused { on_demand: true, .. }
        )
    }

    /// Whether it was built to be traced.
    pub fn has_room(&self) -> bool {
        !matches!(self.kind(), SiteKind::None | SiteKind::Prologue)
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.verdict = role.verdict();
        self.role = role;
    }
}

/// Whether a function can be traced. The passes of `decide.rs` replace the verdict as a whole: the
/// last one that concerns the function decides.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Verdict {
    /// No pass has decided: the file was not searched, or the code was made at run time.
    #[default]
    Open,
    /// The function can be traced.
    Site {
        /// The kind of room that the compiler left.
        kind: SiteKind,
        /// The bytes to patch.
        form: SiteForm,
        /// Whether only a filter that names it selects it: it was not built to be traced, like
        /// thousands of others.
        on_demand: bool,
    },
    /// The function cannot be traced.
    Refused {
        /// The kind of room that the compiler left, and that is not enough.
        kind: SiteKind,
        /// The reason.
        reason: Reason,
        /// As of a site.
        on_demand: bool,
    },
}

impl Verdict {
    /// The verdict on an entry that is no function.
    pub(crate) fn no_function(reason: Reason) -> Verdict {
        Verdict::refused(reason, false)
    }

    /// The verdict on a function without room of a usable kind.
    pub(crate) fn refused(reason: Reason, on_demand: bool) -> Verdict {
        Verdict::Refused { kind: SiteKind::None, reason, on_demand }
    }

    /// The verdict on a function that was not built to be traced, from what the search of its
    /// prologue found.
    pub(crate) fn unmodified(found: Result<SiteForm, Reason>, on_demand: bool) -> Verdict {
        match found {
            Ok(form) => Verdict::Site { kind: SiteKind::Prologue, form, on_demand },
            Err(reason) => Verdict::refused(reason, on_demand),
        }
    }
}

/// Kind of a listed entry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Role {
    /// A function.
    #[default]
    Function,
    /// Code that the compiler moved out of a function, entered by jumps only; with the function's
    /// name if that is known.
    ColdPart(Option<String>),
}

impl Role {
    /// Returns the verdict on a new entry: a part is refused, a function has none yet.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Role::Function => Verdict::Open,
            Role::ColdPart(Some(function)) => {
                Verdict::no_function(Reason::ColdPartOf { function: function.clone() })
            }
            Role::ColdPart(None) => Verdict::no_function(Reason::ColdPart),
        }
    }
}

/// The relation of a Rust program's function to a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// The kind of function.
    pub kind: PollKind,
    /// Position of the future's state byte.
    pub state: Option<StateByte>,
}

/// Kind of a function that polls or drops a future, or wakes its task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PollKind {
    /// The body of an `async fn` or an `async` block.
    Body,
    /// A hand-written `Future::poll`.
    Written,
    /// The function that a worker of tokio calls for a task.
    Task,
    /// The function that a task calls for the spawned future, if the future's body was inlined into
    /// it. When it returns ready, the future's memory is reused at once.
    Inlined,
    /// A function that does not poll, but drops a polled type.
    Drop,
    /// A function that wakes a task of tokio.
    Wake,
}

/// Position of a future's state byte: 0 before the first poll, 1 when finished, 2 after a panic,
/// else the await point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateByte {
    /// The argument that points to the future, counted from 0.
    pub argument: u8,
    /// Offset from that pointer.
    pub offset: i32,
}
