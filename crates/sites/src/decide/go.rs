//! Sites of Go functions that check their stack; `go_unchecked.rs` has the others. Their stacks are
//! small and move, so no return address may be replaced: returns are seen at the functions' exits
//! (`discover/go_exits.rs`), and a hook may run only where the stack has room for it.
//!
//! Both are possible because of the check with which most Go functions begin:
//!
//! ```text
//!   start:  cmp 0x10(%r14),%rsp     is more of the stack left than its guard (928 bytes or more)?
//!           jbe more
//!   body:   ...
//!   more:   call runtime.morestack  (grows the stack, or switches to another goroutine)
//!           jmp start
//! ```
//!
//! The jump overwrites the check, which is executed out of line. Only if the check passes, the stub
//! calls the hook and continues at the body. So the hook has room, and a call that runs the check
//! twice counts once. No descheduled goroutine resumes within the jump's five bytes: Go does not
//! preempt between the check's comparison and its branch (an unsafe point), and elsewhere it
//! resumes at an instruction of another form of the check, behind those bytes.

use std::ops::Range;

use super::go_facts::GoFacts;
use super::{GO, go_unchecked, refusal};
use crate::address::Svma;
use crate::discover::goid;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::pclntab;
use crate::function::{Function, Verdict};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};
use calltap_abi::PAGE;

/// Finds sites of the Go functions of a file. Returns the range of Go's code, which Go's linker
/// keeps together; the C code outside of it is left alone. Without a table of functions, all code
/// counts as Go's.
pub(crate) fn find(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    functions: &mut [Function],
    on_demand: bool,
) -> Range<u64> {
    let entries = pclntab::functions(image, dynamic);
    let layout = goid::layout(image, dynamic);
    let code = match (entries.first(), entries.last()) {
        (Some(first), Some(last)) => first.address..last.address + last.size,
        _ => 0..u64::MAX,
    };
    let of_go = |function: &&mut Function| !function.is_traceable() && code.contains(&function.address.0);
    for function in functions.iter_mut().filter(of_go) {
        let entry = entries.binary_search_by_key(&function.address.0, |entry| entry.address);
        let found = site(&GoFacts::of(image, entry.ok().map(|n| &entries[n]), layout));
        function.verdict = Verdict::unmodified(found, on_demand);
    }
    code
}

/// Returns the site of a Go function, or why it has none.
fn site(facts: &GoFacts<'_>) -> Result<SiteForm, Reason> {
    if let Some(reason) = refusal(GO, facts) {
        return Err(reason);
    }
    let Some(check) = &facts.check else { return go_unchecked::site(facts) };
    let old = facts.code[..(check.end - facts.address) as usize].to_vec();
    Ok(SiteForm::Checked { at: Svma(facts.address), old, goroutine: facts.goroutine(check) })
}

/// Go's table of functions does not have it.
pub(super) fn unknown(facts: &GoFacts<'_>) -> Option<Reason> {
    facts.entry.is_none().then_some(Reason::GoUnknown)
}

/// The FIPS module compares its code with a checksum.
pub(super) fn checks_itself(facts: &GoFacts<'_>) -> Option<Reason> {
    facts.entry?.name.starts_with(b"crypto/internal/fips140").then_some(Reason::GoFips)
}

pub(super) fn check_leads_out(facts: &GoFacts<'_>) -> Option<Reason> {
    let (entry, check) = (facts.entry?, facts.check.as_ref()?);
    let code = entry.address..entry.address + entry.size;
    (!code.contains(&check.more)).then_some(Reason::GoCheckLeadsOut)
}

pub(super) fn check_is_lost(facts: &GoFacts<'_>) -> Option<Reason> {
    (facts.check.is_some() && facts.back.is_none()).then_some(Reason::GoCheckLost)
}

/// A branch leads among the displaced bytes, or, as the turns of a loop, to the first one.
pub(super) fn branches_into_check(facts: &GoFacts<'_>) -> Option<Reason> {
    let address = facts.address;
    facts.check.as_ref()?;
    facts.branches().find_map(|branch| match branch.near_branch_target() {
        target if (address + 1..address + JUMP).contains(&target) => Some(Reason::JumpedInto),
        target if target == address && Some(branch.ip()) != facts.back => Some(Reason::LoopsToEntry),
        _ => None,
    })
}

/// A write within one page is whole even if the writer is killed.
pub(super) fn lies_in_two_pages(facts: &GoFacts<'_>) -> Option<Reason> {
    (facts.check.is_some() && facts.address % PAGE > PAGE - JUMP).then_some(Reason::TwoPages)
}
