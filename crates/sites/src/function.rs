//! A function of a binary.

use crate::address::Svma;
use crate::reason::Reason;
use crate::site::{SiteForm, SiteKind};
use serde::{Deserialize, Serialize};

/// How it is seen that a function returns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Returns {
    /// While it runs, a stub's address is in the place of its return address. Why its exits are not rewritten instead; None where the compiler left room at its entry.
    Stub(Option<Reason>),
    /// Its exits give way to jumps, all of them.
    Exits {
        /// Offsets of those among the instructions that give way at its entry,
        at_entry: Vec<u8>,
        /// and those elsewhere.
        elsewhere: Vec<Exit>,
        /// Why the end of a call is not seen that leaves by a tail call, a jump to another function; None if there is no such exit.
        unseen: Option<Reason>,
    },
}

impl Default for Returns {
    fn default() -> Returns {
        Returns::Stub(None)
    }
}

/// Where a function is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// First byte that gives way.
    pub at: Svma,
    /// Whole instructions, and perhaps padding: five bytes or more.
    pub old: Vec<u8>,
    /// Offsets of the instructions that leave.
    pub leaves: Vec<u8>,
    /// The compiler left it room: it is a `ret` with padding behind it, or a short jump to the end of `old`, behind which the function is left.
    pub is_sled: bool,
    /// Its first instruction has four bytes, and the fifth byte, `pop %rbp`, stays: a goroutine may come back to it. It is the last byte of the jump's displacement, which
    /// therefore leads 1.5 GB upwards.
    pub keeps_pop: bool,
}

/// One function of a binary, traceable or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Function {
    /// Linker symbol, or `module+0x...` when the binary has none for it.
    pub name: String,
    /// Further linker symbols of the same address (aliases, identical-code folding), and of [resolvers](crate::Resolver) that may choose it, sorted.
    pub aliases: Vec<String>,
    /// Entry address.
    pub address: Svma,
    /// Bytes, 0 when unknown.
    pub size: u64,
    /// A function, or a part of one.
    pub role: Role,
    /// What the compiler left at it.
    pub kind: SiteKind,
    /// What to patch, when it can be traced.
    pub form: Option<SiteForm>,
    /// How its return is seen.
    pub returns: Returns,
    /// Why it cannot be traced; None when it can.
    pub reason: Option<Reason>,
    /// It is traced only where a filter names it: it was not built to be traced, and there are thousands like it.
    pub on_demand: bool,
    /// It polls a future, or drops one, as far as that was [looked for](crate::find_polls).
    pub poll: Option<Poll>,
}

impl Function {
    /// Is it a part of another one, which the compiler moved away, and no function?
    pub fn is_part(&self) -> bool {
        matches!(self.role, Role::ColdPart(_))
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.reason = role.reason();
        self.role = role;
    }
}

/// What is listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Role {
    /// A function.
    #[default]
    Function,
    /// Code that the compiler moved out of a function, entered by jumps only: of this one, if that is known.
    ColdPart(Option<String>),
}

impl Role {
    /// Why it cannot be traced for that.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Role::Function => None,
            Role::ColdPart(Some(function)) => Some(Reason::ColdPartOf { function: function.clone() }),
            Role::ColdPart(None) => Some(Reason::ColdPart),
        }
    }
}

/// How a function of a program in Rust polls a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// What it is.
    pub kind: PollKind,
    /// Where the future says how far it has come.
    pub state: Option<StateByte>,
}

/// What polls a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PollKind {
    /// The body of an `async fn` or an `async` block.
    Body,
    /// `Future::poll` of a type.
    Written,
    /// What a worker of tokio calls for a task,
    Task,
    /// and what that calls for the future that was spawned, if its body has become a part of that. When it is ready, its memory is used for something else at once.
    Inlined,
    /// It does not: it is called when one of the types that are polled is dropped.
    Drop,
}

/// A byte of a future: 0 before it is polled, 1 when it is done, 2 when it has panicked, else where it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateByte {
    /// The argument that leads to it, counted from 0.
    pub argument: u8,
    /// How far behind.
    pub offset: i32,
}
