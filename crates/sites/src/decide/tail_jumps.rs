//! Functions with room for tracing that end with a jump to code which reads or stores its return
//! address: swapcontext, dlsym, a context switcher of the file's own.
//!
//! That code would find the address of a return stub, and may store it in memory other than a
//! stack, where detaching does not find it. So such functions get no return stub, and only their
//! entries are recorded. `unmodified.rs` decides about functions without room.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::address::Svma;
use crate::code::decode::decoder;
use crate::code::stack_depth::{self, Finding};
use crate::code::workers;
use crate::discover::{lookup, return_address_readers};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::plt;
use crate::function::{Function, Returns};
use crate::reason::Reason;

/// Bytes of a function that are, or look like, a jump out of it.
#[derive(Clone, Copy)]
struct Jump {
    at: u64,
    /// Index of the function.
    from: usize,
    to: To,
}

#[derive(Clone, Copy)]
enum To {
    /// A function of another file that reads its return address.
    ReturnAddressReader,
    /// A function or part of this file, by index.
    Own(usize),
}

/// Decides about the functions with room; with `may_have_room` also about those in which calls of
/// the profiling function may be found later. `functions` are in address order.
pub(crate) fn decide(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    functions: &mut [Function],
    may_have_room: bool,
) {
    let has_stub = |function: &Function| {
        (may_have_room || function.is_traceable()) && matches!(function.returns, Returns::Stub(_))
    };
    if !functions.iter().any(has_stub) {
        return;
    }
    let finder = TailJumpFinder { image, functions, dynamic, slots: return_address_readers::slots(dynamic) };
    for (n, at) in finder.find() {
        let function = &mut functions[n];
        if has_stub(function) {
            let unrecorded_end =
                Some(Reason::UnseenTailCall { at, why: Box::new(Reason::ReturnAddressReadThere) });
            function.returns = Returns::Exits { at_entry: Vec::new(), elsewhere: Vec::new(), unrecorded_end };
        }
    }
}

struct TailJumpFinder<'a, 'd> {
    image: &'a Image<'d>,
    functions: &'a [Function],
    dynamic: &'a Dynamic<'d>,
    /// Words that the loader fills with addresses of functions that read their return address.
    slots: BTreeSet<u64>,
}

impl TailJumpFinder<'_, '_> {
    /// Returns the functions whose return address is passed on to code that reads it, by index,
    /// each with the jump that leads there.
    fn find(&self) -> BTreeMap<usize, u64> {
        let numbers: Vec<usize> = (0..self.functions.len()).collect();
        let weight = |n: &usize| self.functions[*n].size;
        let read = |part: &[usize]| part.iter().flat_map(|n| self.jumps(*n)).collect::<Vec<Jump>>();
        let (mut found, mut open, mut into) =
            (BTreeMap::new(), Vec::new(), HashMap::<usize, Vec<Jump>>::new());
        for jump in workers::share(&numbers, weight, read).into_iter().flatten() {
            match jump.to {
                To::ReturnAddressReader => self.add(jump, &mut found, &mut open),
                To::Own(to) => into.entry(to).or_default().push(jump),
            }
        }
        open.extend(into.keys().copied().filter(|to| self.reads_return_address(*to)));
        while let Some(to) = open.pop() {
            for jump in into.remove(&to).unwrap_or_default() {
                self.add(jump, &mut found, &mut open);
            }
        }
        found
    }

    /// Adds the function of a jump, if the jump is an instruction.
    fn add(&self, jump: Jump, found: &mut BTreeMap<usize, u64>, open: &mut Vec<usize>) {
        if !found.contains_key(&jump.from) && self.is_instruction(jump) {
            found.insert(jump.from, jump.at);
            open.push(jump.from);
        }
    }

    fn code(&self, n: usize) -> (u64, u64, &[u8]) {
        let (start, end) = (self.functions[n].address.0, lookup::end(self.functions, n));
        (start, end, self.image.tail(start, end - start))
    }

    /// Returns the possible jumps out of a function to functions that matter.
    fn jumps(&self, from: usize) -> impl Iterator<Item = Jump> {
        let (start, end, code) = self.code(from);
        (0..code.len()).filter_map(move |offset| {
            let at = start + offset as u64;
            let near = |length: u64, operand: [u8; 4]| {
                at.wrapping_add(length).wrapping_add_signed(i32::from_le_bytes(operand).into())
            };
            let to = match code[offset..] {
                [0xE9, a, b, c, d, ..] => near(5, [a, b, c, d]),
                [0x0F, 0x80..=0x8F, a, b, c, d, ..] => near(6, [a, b, c, d]),
                [0xEB | 0x70..=0x7F, a, ..] => near(2, i32::from(a as i8).to_le_bytes()),
                [0xFF, 0x25, a, b, c, d, ..] => {
                    return self.through(near(6, [a, b, c, d])).map(|to| Jump { at, from, to });
                }
                _ => return None,
            };
            let is_inside = (start..end).contains(&to);
            let to = if is_inside { None } else { self.place(to) };
            Some(Jump { at, from, to: to? })
        })
    }

    /// Returns the function that begins at a jump's target, directly or behind a linker's stub, or
    /// the part that contains the target.
    fn place(&self, to: u64) -> Option<To> {
        self.own(to).or_else(|| self.through(plt::slot(self.image, to)?))
    }

    fn own(&self, to: u64) -> Option<To> {
        let n = lookup::index_at(self.functions, to)?;
        let function = &self.functions[n];
        (function.address == Svma(to) || function.is_part()).then_some(To::Own(n))
    }

    /// Returns the function to whose address the loader sets a word. An exported function of this
    /// file may be replaced by another file's of that name; it counts as this one.
    fn through(&self, slot: u64) -> Option<To> {
        if self.slots.contains(&slot) {
            return Some(To::ReturnAddressReader);
        }
        self.own(self.dynamic.exported_at(slot)?)
    }

    /// Whether a function without room reads its return address. A function with room was compiled,
    /// and reads it only through `__builtin_return_address`.
    fn reads_return_address(&self, n: usize) -> bool {
        let function = &self.functions[n];
        if function.is_traceable() || function.is_part() {
            return false;
        }
        let is_start =
            |at: u64| self.functions.binary_search_by_key(&Svma(at), |function| function.address).is_ok();
        let (start, end, _) = self.code(n);
        matches!(stack_depth::follow(self.image, start, end, is_start), Finding::Touched(_))
    }

    /// Whether an instruction begins at the bytes of a jump, as far as the function can be decoded.
    fn is_instruction(&self, jump: Jump) -> bool {
        let (start, _, code) = self.code(jump.from);
        let mut decoder = decoder(code, start);
        decoder.iter().any(|instruction| instruction.ip() == jump.at || instruction.is_invalid())
    }
}
