//! Construction of sites, from forms found in files or from parts read from the journal, and the
//! bytes of each when it is disabled.

use super::{Demand, JMP_SHORT, Kind, NOP1, NOP2, RET, SHORT_JUMP, Site};
use crate::address::{Avma, Bias};
use crate::bytes::Bytes;
use crate::steps::JUMP;
use calltap_abi::isa::{Isa, X86_64};
use calltap_sites::{Exit, SiteForm};

/// A NOP of five bytes. Each suffix of it is a NOP, too, and so is every mixture with five one-byte
/// NOPs.
const NOP5: [u8; JUMP] = X86_64::NOP;
/// Address-size prefix. It has no effect on a NOP or an instruction without a memory operand.
const PREFIX: u8 = 0x67;
const NOP6: [u8; 6] = [PREFIX, 0x0F, 0x1F, 0x44, 0, 0];
/// Bytes of a stack check that a site stores.
const CHECKED: usize = 16;
/// Kind number of an exit.
const EXIT: u8 = 128;
/// Kind number of a breakpoint that stays.
const TRAP: u8 = 129;
/// Kind number of an exit with room.
const SLED: u8 = 130;

/// Returns the length of a NOP of five or more bytes, if the bytes from the fifth on may have any
/// value.
fn nop_length(code: &[u8]) -> Option<usize> {
    let length = match code {
        [0x0F, 0x1F, 0x44, _, _, ..] => 5,
        [0x66, 0x0F, 0x1F, 0x44, _, _, ..] => 6,
        [0x0F, 0x1F, 0x80, _, _, _, _, ..] => 7,
        [0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 8,
        [0x66, 0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 9,
        [0x66, 0x2E, 0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 10,
        _ if code.starts_with(&NOP5) => 5,
        _ => return None,
    };
    Some(length)
}

/// Returns the disabled form of five or more bytes, the offset of the switched bytes, and the
/// demands of normalizing and of restoring.
fn normalize(original: Bytes) -> (Bytes, u8, Demand, Demand) {
    let mut disabled = original;
    match *original {
        // A call becomes a NOP by an ordinary switch.
        [0xE8, _, _, _, _] => {
            disabled.copy_from_slice(&NOP6[1..]);
            return (disabled, 0, Demand::Nothing, Demand::Nothing);
        }
        [PREFIX, 0xE8, _, _, _, _] => {
            disabled.copy_from_slice(&NOP6);
            return (disabled, 1, Demand::Nothing, Demand::Nothing);
        }
        // The NOP gets another prefix, and stays the same.
        [0x66, 0x0F, 0x1F, 0x44, _, _] => {
            disabled[0] = PREFIX;
            return (disabled, 1, Demand::Nothing, Demand::Nothing);
        }
        // A call through a pointer has no byte that could change first.
        [0xFF, 0x15, _, _, _, _] => {
            disabled.copy_from_slice(&NOP6);
            return (disabled, 1, Demand::Stopped, Demand::Stopped);
        }
        _ => {}
    }
    if let [RET, ..] = *original {
        return (disabled, 0, Demand::Nothing, Demand::Nothing);
    }
    // No thread executes the bytes that are jumped over, until A9 makes them instructions.
    if let [JMP_SHORT, over, ..] = *original
        && usize::from(over) + SHORT_JUMP == original.len()
    {
        disabled[JUMP..].fill(NOP1);
        return (disabled, 0, Demand::Nothing, Demand::Outside);
    }
    if let Some(length) = nop_length(&original) {
        // The site stays one instruction, with the NOPs as its operand, until A9 makes them
        // instructions of their own.
        disabled[JUMP..length].fill(NOP1);
        let back = if disabled == original { Demand::Nothing } else { Demand::Outside };
        return (disabled, 0, Demand::Nothing, back);
    }
    disabled.fill(NOP1);
    disabled[..JUMP].copy_from_slice(&NOP5);
    if original.iter().all(|byte| *byte == NOP1) {
        return (disabled, 0, Demand::Outside, Demand::Nothing);
    }
    (disabled, 0, Demand::Stopped, Demand::Stopped)
}

/// Whether a site is a call of the profiling function in the file.
pub fn calls_out(form: &SiteForm) -> bool {
    match form {
        SiteForm::Entry { old, .. } | SiteForm::AfterPrologue { old, .. } => {
            matches!(old[..], [0xE8, ..] | [PREFIX, 0xE8, ..] | [0xFF, 0x15, ..])
        }
        SiteForm::Prologue { .. }
        | SiteForm::Checked { .. }
        | SiteForm::Unchecked { .. }
        | SiteForm::PaddingJump { .. }
        | SiteForm::Trap { .. }
        | SiteForm::Prefix { .. } => false,
    }
}

/// The bytes between the five in front of a function and the two at its entry; they stay.
fn between(gap: u64) -> Option<&'static [u8]> {
    match gap {
        0 => Some(&[]),
        4 => Some(&[0xF3, 0x0F, 0x1E, 0xFA]), // endbr64
        _ => None,
    }
}

impl Site {
    /// Creates the site of a form in a module that the loader moved by `bias`.
    pub fn new(form: &SiteForm, bias: Bias) -> Option<Site> {
        let address = bias.apply(form.address());
        match form {
            SiteForm::Entry { old, .. } => Site::whole(address, old, Kind::Jump),
            SiteForm::AfterPrologue { old, .. } => Site::whole(address, old, Kind::Call),
            SiteForm::Prologue { old, .. } | SiteForm::Unchecked { old, .. } => {
                Site::displacing(address, old, Kind::Prologue)
            }
            // A stack check is compared as far as the journal can store it; only the jump's bytes
            // change.
            SiteForm::Checked { old, .. } => {
                Site::displacing(address, &old[..old.len().min(CHECKED)], Kind::Prologue)
            }
            SiteForm::Trap { old, .. } => Site::displacing(address, old, Kind::Trap),
            SiteForm::PaddingJump { front_old, old, .. } => {
                Site::beside(address, &[&front_old[..], old].concat(), front_old.len())
            }
            SiteForm::Prefix { prefix, prefix_old, entry, entry_old } => {
                let between = between(entry.0.checked_sub(prefix.0 + JUMP as u64)?)?;
                Site::prefixed(address, &[prefix_old, between, entry_old].concat())
            }
        }
    }

    /// Creates a site that *calls* its target: the body resumes behind the call, and the return
    /// address identifies the site. None for forms whose body does not follow the site: a jump in
    /// front of the function, or in place of its first instructions.
    pub fn calling(form: &SiteForm, bias: Bias) -> Option<Site> {
        match form {
            SiteForm::Entry { at, old } | SiteForm::AfterPrologue { at, old } => {
                Site::whole(bias.apply(*at), old, Kind::Call)
            }
            SiteForm::Prologue { .. }
            | SiteForm::Checked { .. }
            | SiteForm::Unchecked { .. }
            | SiteForm::PaddingJump { .. }
            | SiteForm::Trap { .. }
            | SiteForm::Prefix { .. } => None,
        }
    }

    /// Creates the site of a function's exit.
    pub fn exit(exit: &Exit, bias: Bias) -> Option<Site> {
        let at = bias.apply(exit.at);
        if exit.is_sled {
            Site::whole(at, &exit.old, Kind::Sled)
        } else {
            Site::displacing(at, &exit.old, Kind::Exit)
        }
    }

    fn whole(address: Avma, original: &[u8], kind: Kind) -> Option<Site> {
        let original = Bytes::new(original).filter(|bytes| bytes.len() >= JUMP)?;
        let (disabled, at, normalizing, restoring) = normalize(original);
        Some(Site { address, original, disabled, kind, at, normalizing, restoring })
    }

    fn displacing(address: Avma, original: &[u8], kind: Kind) -> Option<Site> {
        let width = if kind == Kind::Trap { 1 } else { JUMP };
        let original = Bytes::new(original).filter(|bytes| bytes.len() >= width)?;
        let (normalizing, restoring) = (Demand::Nothing, Demand::Nothing);
        Some(Site { address, original, disabled: original, kind, at: 0, normalizing, restoring })
    }

    fn beside(address: Avma, original: &[u8], at: usize) -> Option<Site> {
        let has_room = at >= JUMP && original.len().checked_sub(at).is_some_and(|rest| rest >= SHORT_JUMP);
        let original = Bytes::new(original).filter(|_| has_room)?;
        let (normalizing, restoring) = (Demand::Nothing, Demand::Nothing);
        let kind = Kind::PaddingJump(at as u8);
        Some(Site { address, original, disabled: original, kind, at: 0, normalizing, restoring })
    }

    fn prefixed(address: Avma, original: &[u8]) -> Option<Site> {
        let gap = original.len().checked_sub(JUMP + NOP2.len())?;
        let between = between(gap as u64)?;
        // Bytes in front of a function run only through the short jump, and a thread that took it
        // may stay there for any time. A thread between the two bytes at the entry finds a harmless
        // instruction in every later state.
        Some(Site {
            address,
            original: Bytes::new(original)?,
            disabled: Bytes::join(&[&NOP5, between, &NOP2])?,
            kind: Kind::ShortJump((JUMP + gap) as u8),
            at: 0,
            normalizing: Demand::Nothing,
            restoring: Demand::Outside,
        })
    }

    /// Returns the parts of a site for the journal, besides its address: a number for its kind, and
    /// the file's bytes.
    pub fn parts(&self) -> (u8, &[u8]) {
        let kind = match self.kind {
            Kind::Jump if self.original[0] == RET => 3,
            Kind::Jump => 0,
            Kind::Call => 1,
            Kind::ShortJump(_) => 2,
            Kind::Function => 4,
            Kind::Prologue => 5,
            Kind::Exit => EXIT,
            Kind::Trap => TRAP,
            Kind::Sled => SLED,
            // The kind contains the distance between the two jumps.
            Kind::PaddingJump(at) => 6 + at - JUMP as u8,
        };
        (kind, &self.original)
    }

    /// Creates a site from its parts.
    pub fn from_parts(address: Avma, kind: u8, original: &[u8]) -> Option<Site> {
        match kind {
            0 => Site::whole(address, original, Kind::Jump),
            1 => Site::whole(address, original, Kind::Call),
            2 => Site::prefixed(address, original),
            3 => Site::empty_function(address, original.try_into().ok()?),
            4 => Site::function(address, original.try_into().ok()?),
            5 => Site::displacing(address, original, Kind::Prologue),
            EXIT => Site::displacing(address, original, Kind::Exit),
            TRAP => Site::displacing(address, original, Kind::Trap),
            SLED => Site::whole(address, original, Kind::Sled),
            6.. => Site::beside(address, original, JUMP + usize::from(kind - 6)),
        }
    }

    /// Creates the site of an empty function (`ret` and padding), which is to become a jump.
    pub fn empty_function(address: Avma, bytes: [u8; JUMP]) -> Option<Site> {
        let padding = matches!(bytes[1..], [0x66, ..] | [0x0F, 0x1F, ..] | [NOP1, ..] | [0xCC, ..]);
        let bytes = Bytes::new(&bytes).filter(|_| bytes[0] == RET && padding)?;
        Some(Site {
            address,
            original: bytes,
            disabled: bytes,
            kind: Kind::Jump,
            at: 0,
            normalizing: Demand::Nothing,
            restoring: Demand::Nothing,
        })
    }

    /// Creates the site of a function that is replaced as a whole by a jump, and never executed
    /// further meanwhile: its first five bytes need not be whole instructions. Disabled, it returns
    /// at once, and differs from the file only in its first byte. So a thread inside it is safe,
    /// and it can be restored under running threads.
    pub fn function(address: Avma, bytes: [u8; JUMP]) -> Option<Site> {
        let original = Bytes::new(&bytes)?;
        let mut disabled = original;
        disabled[0] = RET;
        Some(Site {
            address,
            original,
            disabled,
            kind: Kind::Function,
            at: 0,
            normalizing: Demand::Outside,
            restoring: Demand::Nothing,
        })
    }
}
