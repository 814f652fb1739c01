//! The stub of a site, and the veneer that leads to it.

use crate::address::Avma;
use crate::bytes::Bytes;
use crate::encoding::{CALL, OutOfReach, reaches, relative};
use crate::hook_set::HookSet;
use crate::steps::{INT3, JUMP};
use calltap_abi::stub::{self, Style};
use calltap_sites::{Returns, SiteForm, Svma};

/// A call and a jump with an address-size prefix, which has no effect: with six bytes they are as
/// long as their indirect forms.
const CALL6: &[u8] = &[0x67, 0xE8];
const JMP6: &[u8] = &[0x67, 0xE9];
const CALL_INDIRECT: &[u8] = &[0xFF, 0x15];
const JMP_INDIRECT: &[u8] = &[0xFF, 0x25];
const RET: u8 = 0xC3;
/// `ret 128`: returns above the red zone, which the copy of an exit has skipped.
const RET_RED_ZONE: [u8; 3] = [0xC2, stub::RED_ZONE as u8, 0];

/// The hooks and the stub region of one process.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Address of the stub region.
    pub stubs: Avma,
    /// Addresses of the hooks, by [`stub::entry_hook`] and [`stub::exit_hook`].
    pub hooks: [Avma; stub::HOOK_COUNT],
}

impl Agent {
    /// Returns the address of stub number `index`.
    pub fn stub(&self, index: u32) -> Avma {
        Avma(self.stubs.0 + u64::from(index) * stub::SIZE as u64)
    }

    fn entry_hook(&self, hook_set: HookSet, style: Style) -> Avma {
        self.hooks[stub::entry_hook(hook_set.hooks, style)]
    }

    /// Returns the hook that counts calls for which a goroutine's stack has no room.
    pub fn lost_hook(&self) -> Avma {
        self.hooks[stub::GO_LOST_HOOK]
    }

    fn exit_hook(&self, hook_set: HookSet, style: Style) -> Option<Avma> {
        stub::exit_hook(hook_set.hooks, style).map(|hook| self.hooks[hook])
    }
}

/// Encodes the stub at `at` of a site whose body begins at `body`.
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

/// Returns the offset at which a site enters its stub.
pub fn entry_offset(hook_set: HookSet, style: Style) -> usize {
    match (hook_set.returns(), style) {
        (_, Style::AfterPrologue) => stub::AFTER_MCOUNT - JUMP,
        (true, Style::CallThrough) => stub::AFTER_ENTRY - JUMP,
        _ => stub::AFTER_CALL - JUMP,
    }
}

/// Returns the style of a site's stub: how its function is entered and left.
pub fn style(form: &SiteForm, returns: &Returns) -> Style {
    match (form, returns) {
        (SiteForm::AfterPrologue { .. }, _) => Style::AfterPrologue,
        (_, Returns::Exits { .. }) => Style::Exits,
        _ => Style::CallThrough,
    }
}

/// Encodes a veneer to `target`: `jmp *2(%rip)`, two bytes of padding, the address.
pub fn veneer_bytes(target: Avma) -> [u8; stub::VENEER_SIZE] {
    let mut bytes = [INT3; stub::VENEER_SIZE];
    bytes[..6].copy_from_slice(&[0xFF, 0x25, 2, 0, 0, 0]);
    bytes[8..].copy_from_slice(&target.0.to_le_bytes());
    bytes
}

/// Whether the site is a call behind the prologue.
pub fn is_after_prologue(form: &SiteForm) -> bool {
    matches!(form, SiteForm::AfterPrologue { .. })
}

/// Returns where a site's body resumes; for a function that was not built for tracing, behind the
/// displaced instructions.
pub fn body_address(form: &SiteForm) -> Svma {
    match form {
        SiteForm::Entry { at, old }
        | SiteForm::Prologue { at, old }
        | SiteForm::Checked { at, old, .. }
        | SiteForm::PaddingJump { at, old, .. }
        | SiteForm::Unchecked { at, old, .. }
        | SiteForm::Trap { at, old }
        | SiteForm::AfterPrologue { at, old } => Svma(at.0 + old.len() as u64),
        SiteForm::Prefix { entry, .. } => Svma(entry.0 + 2),
    }
}
