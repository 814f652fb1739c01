//! Which bytes to write where: the stub of a site, the veneer that leads to it ([here](stub_bytes)), the patched site itself ([`Site`]), and
//! in which order a batch of sites is written while the program runs (`batch`).
//!
//! Safe code that only computes, and writes through the [`Text`] it is given. Addresses here are those of the running process
//! ([`Avma`], actual virtual memory address), so a link-time [`Svma`] cannot be patched by mistake.
#![forbid(unsafe_code)]

pub use calltap_abi::PAGE;
use calltap_abi::isa::{Isa, X86_64, relative as rel32};
use calltap_abi::stub::{self, Style};
use calltap_sites::{Returns, SiteForm, Svma};
use steps::INT3;

mod audit;
mod batch;
mod bytes;
mod copy;
pub mod log;
mod site;
mod steps;

pub use audit::Audit;
pub use batch::{Change, ChangeError, Failed, Prepared, Text, carry_out};
pub use bytes::Bytes;
pub use copy::{Leaves, Uncopied, copy, copy_before, copy_room};
pub use site::{Demand, Site, State, calls_out};
pub use steps::{STEPS, Steps, Transition};

/// An address in the running process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Avma(pub u64);

/// What the loader added to a module's link-time addresses (wraps).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bias(pub u64);

impl Bias {
    /// Where a link-time address is in the process.
    pub fn apply(self, address: Svma) -> Avma {
        Avma(address.0.wrapping_add(self.0))
    }
}

/// What the tracers of a site want, together: one pair of events, or one measurement, serves them all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HookSet {
    hooks: u8,
    /// What is read of a call ([`calltap_abi::values`]); 0: nothing.
    program: u16,
}

impl HookSet {
    /// Events of entries, with their callers.
    pub const FUNCTION: HookSet = HookSet { hooks: stub::FUNCTION, program: 0 };
    /// Events of entries and returns.
    pub const GRAPH: HookSet = HookSet { hooks: stub::GRAPH, program: 0 };
    /// Counts and times, summed up in the program.
    pub const PROFILE: HookSet = HookSet { hooks: stub::PROFILE, program: 0 };

    /// Everything that there is to want of other functions, without values.
    pub fn all() -> impl Iterator<Item = HookSet> {
        (1..=7).map(|hooks| HookSet { hooks, program: 0 })
    }

    /// This and that.
    pub fn and(self, other: HookSet) -> HookSet {
        HookSet { hooks: self.hooks | other.hooks, program: self.program.max(other.program) }
    }

    /// The same, and values by a program.
    pub fn reading(self, program: u16) -> HookSet {
        if program == 0 { self } else { HookSet { hooks: self.hooks | stub::VALUES, program } }
    }

    /// What can be had of it where the stack has little room, and no return address may be another: entries
    /// for calls, and counts.
    pub fn on_small_stack(self) -> HookSet {
        let entries = if self.records() { stub::FUNCTION } else { 0 };
        HookSet { hooks: stub::SMALL_STACK | entries | self.hooks & stub::PROFILE, program: 0 }
    }

    /// Which program reads values; 0: none does.
    pub fn program(self) -> u16 {
        self.program
    }

    /// Are there events?
    pub fn records(self) -> bool {
        self.hooks & (stub::FUNCTION | stub::GRAPH) != 0
    }

    /// As a number, but for the program.
    pub fn number(self) -> u8 {
        self.hooks
    }

    /// The one with a number and a program.
    pub fn from_number(number: u8, program: u16) -> Option<HookSet> {
        if number & stub::SMALL_STACK != 0 {
            let hook_set =
                HookSet::all().map(HookSet::on_small_stack).find(|hook_set| hook_set.hooks == number)?;
            return Some(hook_set).filter(|_| program == 0);
        }
        let hook_set = HookSet::all().find(|hook_set| hook_set.hooks == number & !stub::VALUES)?;
        Some(hook_set.reading(program)).filter(|hook_set| hook_set.hooks == number)
    }

    /// Does it matter when the function returns?
    pub fn returns(self) -> bool {
        stub::exit_hook(self.hooks, Style::CallThrough).is_some()
    }
}

/// The hooks and the stub region of one process.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Address of the stub region.
    pub stubs: Avma,
    /// Addresses of the hooks, by [`stub::entry_hook`] and [`stub::exit_hook`].
    pub hooks: [Avma; stub::HOOK_COUNT],
}

/// A `rel32` that does not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfReach;

impl Agent {
    /// The address of stub number `index`.
    pub fn stub(&self, index: u32) -> Avma {
        Avma(self.stubs.0 + u64::from(index) * stub::SIZE as u64)
    }

    fn entry_hook(&self, hook_set: HookSet, style: Style) -> Avma {
        self.hooks[stub::entry_hook(hook_set.hooks, style)]
    }

    fn exit_hook(&self, hook_set: HookSet, style: Style) -> Option<Avma> {
        stub::exit_hook(hook_set.hooks, style).map(|hook| self.hooks[hook])
    }
}

const CALL: &[u8] = &[0xE8];
const JMP: &[u8] = &[0xE9];
/// With an address-size prefix, which changes nothing, these are six bytes long: as long as their indirect forms.
const CALL6: &[u8] = &[0x67, 0xE8];
const JMP6: &[u8] = &[0x67, 0xE9];
const CALL_INDIRECT: &[u8] = &[0xFF, 0x15];
const JMP_INDIRECT: &[u8] = &[0xFF, 0x25];
const RET: u8 = 0xC3;
/// `ret 128`: back above the red zone, which the copy of an exit has skipped.
const RET_RED_ZONE: [u8; 3] = [0xC2, stub::RED_ZONE as u8, 0];

/// `opcode rel32` at `at`, to `target`.
fn relative(opcode: &[u8], at: Avma, target: Avma) -> Result<Bytes, OutOfReach> {
    let next = Avma(at.0.wrapping_add(opcode.len() as u64 + 4));
    Bytes::join(&[opcode, &distance(next, target)?]).ok_or(OutOfReach)
}

/// The operand of a jump or call that is followed by the instruction at `next`.
#[inline]
fn distance(next: Avma, target: Avma) -> Result<[u8; 4], OutOfReach> {
    rel32(next.0, target.0).ok_or(OutOfReach)
}

/// Does a site at `at` reach `target` with a direct jump?
pub fn reaches(at: Avma, target: Avma) -> bool {
    X86_64::jump(at.0, target.0).is_some()
}

/// The stub of a site whose body begins at `body`, for a stub at `at`.
pub fn stub_bytes(
    agent: &Agent,
    at: Avma,
    body: Avma,
    hook_set: HookSet,
    style: Style,
) -> Result<[u8; stub::SIZE], OutOfReach> {
    let mut bytes = [INT3; stub::SIZE];
    let mut put = |offset: usize, code: &[u8]| bytes[offset..offset + code.len()].copy_from_slice(code);
    let to =
        |opcode: &[u8], offset: usize, target: Avma| relative(opcode, Avma(at.0 + offset as u64), target);
    let near = reaches(Avma(at.0 + stub::TAIL as u64), body) && reaches(at, body);
    let body_at = |direct: &[u8], indirect: &[u8], offset: usize| {
        if near {
            to(direct, offset, body)
        } else {
            let distance = (stub::BODY - offset - 6) as u32;
            Bytes::join(&[indirect, &distance.to_le_bytes()]).ok_or(OutOfReach)
        }
    };
    let start = entry_offset(hook_set, style);
    put(start, &to(CALL, start, agent.entry_hook(hook_set, style))?);
    match (hook_set.returns(), style) {
        (_, Style::AfterPrologue) => put(stub::AFTER_MCOUNT, &[RET]),
        (true, Style::CallThrough) => {
            put(stub::AFTER_ENTRY, &body_at(CALL6, CALL_INDIRECT, stub::AFTER_ENTRY)?);
        }
        _ => put(stub::AFTER_CALL, &body_at(JMP6, JMP_INDIRECT, stub::AFTER_CALL)?),
    }
    if let Some(exit) = agent.exit_hook(hook_set, style) {
        let (landing, after) = match style {
            Style::Exits => (stub::LEAVE, stub::AFTER_LEAVE),
            Style::CallThrough | Style::AfterPrologue => (stub::LANDING, stub::AFTER_EXIT),
        };
        put(landing, &to(CALL, landing, exit)?);
        match style {
            Style::Exits => put(after, &RET_RED_ZONE),
            Style::CallThrough | Style::AfterPrologue => put(after, &[RET]),
        }
        if style == Style::CallThrough {
            put(stub::TAIL, &body_at(JMP6, JMP_INDIRECT, stub::TAIL)?);
        }
    }
    put(stub::BODY, &body.0.to_le_bytes());
    Ok(bytes)
}

/// Where in its stub a site enters.
pub fn entry_offset(hook_set: HookSet, style: Style) -> usize {
    match (hook_set.returns(), style) {
        (_, Style::AfterPrologue) => stub::AFTER_MCOUNT - 5,
        (true, Style::CallThrough) => stub::AFTER_ENTRY - 5,
        _ => stub::AFTER_CALL - 5,
    }
}

/// How a function is entered and left.
pub fn style(form: &SiteForm, returns: &Returns) -> Style {
    match (form, returns) {
        (SiteForm::AfterPrologue { .. }, _) => Style::AfterPrologue,
        (_, Returns::Exits { .. }) => Style::Exits,
        _ => Style::CallThrough,
    }
}

/// A veneer to `target`: `jmp *2(%rip)`, two bytes of padding, the address.
pub fn veneer_bytes(target: Avma) -> [u8; stub::VENEER_SIZE] {
    let mut bytes = [INT3; stub::VENEER_SIZE];
    bytes[..6].copy_from_slice(&[0xFF, 0x25, 2, 0, 0, 0]);
    bytes[8..].copy_from_slice(&target.0.to_le_bytes());
    bytes
}

/// Is the site a call after the prologue?
pub fn is_after_prologue(form: &SiteForm) -> bool {
    matches!(form, SiteForm::AfterPrologue { .. })
}

/// Where a site's body resumes. Of a function that was not built for tracing: behind what is run from a copy.
pub fn body_address(form: &SiteForm) -> Svma {
    match form {
        SiteForm::Entry { at, old }
        | SiteForm::Prologue { at, old }
        | SiteForm::Checked { at, old }
        | SiteForm::PaddingJump { at, old, .. }
        | SiteForm::Trap { at, old }
        | SiteForm::AfterPrologue { at, old } => Svma(at.0 + old.len() as u64),
        SiteForm::Prefix { entry, .. } => Svma(entry.0 + 2),
    }
}
