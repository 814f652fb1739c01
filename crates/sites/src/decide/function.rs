//! Rules for a function without room, however it would be patched.

use super::facts::FunctionFacts;
use crate::code::red_zone;
use crate::discover::parts::Unproven;
use crate::reason::Reason;

/// The kernel or the dynamic linker jumps to the program's entry point: it has no return address.
pub(super) fn is_entry_point(facts: &FunctionFacts<'_>) -> Option<Reason> {
    (facts.address == facts.file.entry).then_some(Reason::EntryPoint)
}

/// Whether the function is OCaml code. The runtime identifies stack overflow by the address of the
/// faulting code: a fault in a hook ends the program instead of raising `Stack_overflow`.
/// From OCaml 5 on, small functions run without a check on stacks that have no guard page.
pub(super) fn is_of_ocaml(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let name = &facts.function.name;
    (is_ocaml_name(name) || is_ocaml_helper(name)).then_some(Reason::Ocaml)
}

/// Assembly of OCaml's runtime that runs on the stack of OCaml code.
const OCAML_ASSEMBLY: [&str; 12] = [
    "caml_program",
    "caml_call_gc",
    "caml_alloc1",
    "caml_alloc2",
    "caml_alloc3",
    "caml_allocN",
    "caml_c_call",
    "caml_perform",
    "caml_reperform",
    "caml_resume",
    "caml_raise_exn",
    "caml_ml_array_bound_error",
];

/// Whether the OCaml compiler adds a function of this name to each program, or its runtime runs it
/// as OCaml code.
fn is_ocaml_helper(name: &str) -> bool {
    let numbered = ["apply", "curry", "tuplify", "send"];
    let rest = name.strip_prefix("caml_").unwrap_or_default();
    let mut numbers = numbered.iter().filter_map(|helper| rest.strip_prefix(helper));
    OCAML_ASSEMBLY.contains(&name) || numbers.any(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether the OCaml compiler makes such names: `caml`, a module, and a function of it, behind `__`
/// or, from OCaml 5.1 on, a dot. The runtime's own C functions begin with `caml_`.
fn is_ocaml_name(name: &str) -> bool {
    let module = name.strip_prefix("caml").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    module.is_some_and(|module| module.contains("__") || module.contains('.'))
}

/// Whether the unwinding information has another stack at the entry than behind a call, also where
/// the entry is a label in the middle of other code: gcc's `__sse_resms64x_12`, to which functions
/// jump, returns from their frame.
pub(super) fn has_odd_stack(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let FunctionFacts { file, address, .. } = *facts;
    let is_part = file.frames.get(&address) == Some(&false) || file.rows.is_within_frame(address);
    is_part.then_some(Reason::OddStack)
}

/// Whether a function jumps there with its frame on the stack, so that the word on top of the stack
/// is no return address: gcc's `__x86_indirect_thunk_rax` serves calls and jumps.
pub(super) fn is_entered_with_frame(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let FunctionFacts { file, at, address, .. } = *facts;
    let jump = file.jumps_with_frame.range(address..=at).next();
    jump.map(|(_, from)| Reason::EnteredWithFrame { at: *from })
}

/// Whether it reads data that another function has left in its red zone.
pub(super) fn reads_red_zone(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let FunctionFacts { file, at, end, .. } = *facts;
    let code = file.image.tail(at, end.saturating_sub(at));
    let pc = red_zone::reads_unwritten(code, at)?;
    Some(Reason::ReadsRedZone { at: pc })
}

/// Whether a function jumps there that has taken the address of data in its red zone. Compilers
/// pass no such data on.
pub(super) fn may_get_red_zone(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let FunctionFacts { file, at, address, .. } = *facts;
    if file.frames.contains_key(&address) {
        return None;
    }
    let jump = file.red_zones.range(address..=at).next();
    jump.map(|(_, from)| Reason::GetsRedZone { at: *from })
}

/// Whether it is not proven to be a function. Code without references never runs, unless an
/// unresolved jump leads there.
pub(super) fn may_be_part(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let unproven = facts.file.parts.unproven.get(&facts.n)?;
    let is_dead = *unproven == Unproven::Unreached && facts.file.branches.unresolved.is_empty();
    (!is_dead).then(|| unproven.reason())
}

#[cfg(test)]
mod tests {
    use super::{is_ocaml_helper, is_ocaml_name};

    #[test]
    fn names_of_ocaml_code_are_recognised() {
        for name in ["camlFoo__bar_12", "camlStdlib__List__map_233", "camlFoo.bar_12", "camlFoo.entry"] {
            assert!(is_ocaml_name(name), "{name}");
        }
        for name in ["caml_alloc", "caml_start_program", "caml", "camlize", "camlFoo", "Foo__bar"] {
            assert!(!is_ocaml_name(name), "{name}");
        }
        for name in ["caml_apply2", "caml_curry3_1_app", "caml_tuplify2", "caml_call_gc", "caml_program"] {
            assert!(is_ocaml_helper(name), "{name}");
        }
        for name in ["caml_alloc", "caml_apply", "caml_send_all", "apply2", "caml_main"] {
            assert!(!is_ocaml_helper(name), "{name}");
        }
    }
}
