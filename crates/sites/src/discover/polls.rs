//! Functions that poll futures or wake their tasks, in Rust programs.
//!
//! A hand-written future is polled by a function called `poll`. The body of an `async fn` or an
//! `async` block has the name of a closure, but panics through a function of its own when it is
//! polled after it has finished. It begins with a read of its *state*, a byte of the future: 0
//! before the first poll, 1 when finished, 2 after a panic, and from 3 on the await point. The code
//! tells the position of that byte.

use std::collections::{HashMap, HashSet};

use calltap_names::{self as names, demangle};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::binary::Binary;
use crate::code::decode::decoder;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::error::Error;
use crate::function::{Function, Poll, PollKind, StateByte};

/// The function that an async body calls when it is polled after it has finished.
const RESUMED: &str = "core::panicking::panic_const::panic_const_async_fn_resumed";
/// Maximum number of bytes of one function that are decoded.
const MAX_DECODED: u64 = 1 << 20;
/// Maximum number of instructions from the beginning of a case to its call.
const CASE: usize = 4;
/// Length of the longest import's name that is read.
const NAME: usize = 256;

/// Finds the functions that poll or drop futures or wake their tasks, and fills in
/// [`Function::poll`].
pub fn find_polls(data: &[u8], binary: &mut Binary) -> Result<(), Error> {
    let image = Image::parse(data, &mut Vec::new())?;
    let dynamic = Dynamic::parse(&image, &mut Vec::new());
    let is_resumed = |name: &str| name.contains("async_fn_resumed") && demangle(name).starts_with(RESUMED);
    let resumed = binary.functions.iter().filter(|function| all_names(function).any(is_resumed));
    let imported = dynamic.imports(NAME).filter(|(_, name)| str::from_utf8(name).is_ok_and(is_resumed));
    let finder = PollFinder {
        image: &image,
        dynamic: &dynamic,
        resumed: resumed.map(|function| function.address.0).collect(),
        imported: imported.map(|(slot, _)| slot).collect(),
    };
    let (mut polled, mut generic) = (HashSet::new(), HashSet::new());
    for function in &mut binary.functions {
        if all_names(function).any(|name| name.contains("waker") && names::wakes(&demangle(name))) {
            function.poll = Some(Poll { kind: PollKind::Wake, state: None });
            continue;
        }
        let Some((kind, future)) = all_names(function).find_map(|name| names::poll(&demangle(name))) else {
            continue;
        };
        function.poll = finder.poll(function, kind);
        let future = future.filter(|_| function.poll.is_some());
        generic.extend(future.as_deref().and_then(names::without_parameters).map(str::to_owned));
        polled.extend(future);
    }
    for function in &mut binary.functions {
        let is_polled = |name: &str| {
            let name = demangle(name);
            let Some(of) = names::dropped(&name) else { return false };
            polled.contains(of) || names::without_parameters(of).is_some_and(|start| generic.contains(start))
        };
        if function.poll.is_none()
            && all_names(function).any(|name| name.contains("drop_in_place") && is_polled(name))
        {
            function.poll = Some(Poll { kind: PollKind::Drop, state: None });
        }
    }
    Ok(())
}

fn all_names(function: &Function) -> impl Iterator<Item = &str> {
    [&function.name].into_iter().chain(&function.aliases).map(String::as_str)
}

struct PollFinder<'a, 'd> {
    image: &'a Image<'d>,
    dynamic: &'a Dynamic<'d>,
    /// Addresses of the functions that panic when a finished body is polled.
    resumed: HashSet<u64>,
    /// Words of the GOT that lead to such functions.
    imported: HashSet<u64>,
}

impl PollFinder<'_, '_> {
    fn poll(&self, function: &Function, named: names::Polled) -> Option<Poll> {
        let (start, end) = (function.address.0, function.address.0.saturating_add(function.size));
        let code = self.image.tail(start, function.size.min(MAX_DECODED));
        let code: Vec<Instruction> = decoder(code, start).into_iter().collect();
        let passes_on = || {
            let leaves = |one: &Instruction| match one.flow_control() {
                FlowControl::IndirectBranch => true,
                FlowControl::UnconditionalBranch => !(start..end).contains(&one.near_branch_target()),
                _ => false,
            };
            let calls = |one: &Instruction| {
                matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            };
            code.iter().any(leaves) && !code.iter().any(calls)
        };
        let (kind, state) = match named {
            names::Polled::Closure => {
                let is_body = code.iter().any(|one| self.is_resumed(one));
                (PollKind::Body, is_body.then(|| self.state(&code, false))?)
            }
            // A wrapper without calls only passes the poll on; its target is reported instead.
            names::Polled::Future | names::Polled::Task if passes_on() => return None,
            names::Polled::Future => (PollKind::Written, None),
            names::Polled::Task => (PollKind::Task, self.state(&code, true)),
            // Counts only if the body of the spawned future was inlined into it.
            names::Polled::Core => (PollKind::Inlined, Some(self.state(&code, true)?)),
        };
        Some(Poll { kind, state })
    }

    /// Whether an instruction calls the function that panics when a finished body is polled.
    fn is_resumed(&self, one: &Instruction) -> bool {
        match one.flow_control() {
            FlowControl::Call => self.resumed.contains(&one.near_branch_target()),
            FlowControl::IndirectCall if one.is_ip_rel_memory_operand() => {
                let slot = one.ip_rel_memory_address();
                self.imported.contains(&slot)
                    || self.dynamic.pointer_at(self.image, slot).is_some_and(|to| self.resumed.contains(&to))
            }
            _ => false,
        }
    }

    /// Returns the position of the state byte. If `certain`, only where a jump table over the state
    /// has the panic as case 1.
    fn state(&self, code: &[Instruction], certain: bool) -> Option<StateByte> {
        let (mut copies, mut first, mut tables) = (Copies::new(), None, HashMap::new());
        let (mut last, mut in_entry) = (None, true);
        for one in code {
            if let Some(state) = copies.byte(one) {
                last = Some((state, one.op0_register().full_register()));
                first = first.or(in_entry.then_some(state));
            } else if one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand() {
                tables.insert(one.op0_register(), one.ip_rel_memory_address());
            } else if one.mnemonic() == Mnemonic::Movsxd
                && one.op1_kind() == OpKind::Memory
                && one.memory_index_scale() == 4
                && let (Some((state, index)), Some(table)) = (last, tables.get(&one.memory_base()))
                && index == one.memory_index()
                && self.case(*table, 1)
            {
                return Some(state);
            }
            in_entry &= one.flow_control() == FlowControl::Next;
            copies.follow(one);
        }
        first.filter(|_| !certain)
    }

    /// Whether case `n` of a table of distances is the panic.
    fn case(&self, table: u64, n: u64) -> bool {
        let entry = || self.image.bytes(table.checked_add(4 * n)?, 4)?.try_into().ok();
        let Some(distance) = entry().map(i32::from_le_bytes) else { return false };
        let target = table.wrapping_add_signed(distance.into());
        let code = self.image.tail(target, 64);
        let mut decoder = decoder(code, target);
        decoder.iter().take(CASE).any(|one| self.is_resumed(&one))
    }
}

/// The registers and stack words that hold one of the first two arguments.
struct Copies {
    registers: HashMap<Register, u8>,
    /// Arguments kept on the stack, by base register and displacement.
    kept: HashMap<(Register, u64), u8>,
}

impl Copies {
    fn new() -> Copies {
        let registers = HashMap::from([(Register::RDI, 0), (Register::RSI, 1)]);
        Copies { registers, kept: HashMap::new() }
    }

    /// Returns the byte, relative to an argument, that an instruction reads.
    fn byte(&self, one: &Instruction) -> Option<StateByte> {
        let is_look = match one.mnemonic() {
            Mnemonic::Movzx => one.op1_kind() == OpKind::Memory && one.memory_size().size() == 1,
            Mnemonic::Mov => one.op0_register().size() == 1 && one.op1_kind() == OpKind::Memory,
            Mnemonic::Cmp | Mnemonic::Test => {
                one.op0_kind() == OpKind::Memory && one.memory_size().size() == 1
            }
            _ => false,
        };
        let is_plain = one.memory_index() == Register::None && one.segment_prefix() == Register::None;
        let argument = *self.registers.get(&one.memory_base()).filter(|_| is_look && is_plain)?;
        let offset = i32::try_from(one.memory_displacement64() as i64).ok()?;
        Some(StateByte { argument, offset })
    }

    fn follow(&mut self, one: &Instruction) {
        let place = || (one.memory_base(), one.memory_displacement64());
        let is_move = one.mnemonic() == Mnemonic::Mov;
        let from = match (one.op1_kind(), one.op0_kind()) {
            (OpKind::Register, _) if is_move => self.registers.get(&one.op1_register()).copied(),
            (OpKind::Memory, OpKind::Register) if is_move && one.memory_index() == Register::None => {
                self.kept.get(&place()).copied()
            }
            _ => None,
        };
        if matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            let lost = [
                Register::RAX,
                Register::RCX,
                Register::RDX,
                Register::RSI,
                Register::RDI,
                Register::R8,
                Register::R9,
                Register::R10,
                Register::R11,
            ];
            self.registers.retain(|register, _| !lost.contains(register));
        }
        let compares = matches!(one.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
        match one.op0_kind() {
            OpKind::Register if !compares => {
                let to = one.op0_register().full_register();
                self.registers.remove(&to);
                if let Some(argument) = from.filter(|_| one.op0_register() == to) {
                    self.registers.insert(to, argument);
                }
            }
            OpKind::Memory if is_move && matches!(one.memory_base(), Register::RSP | Register::RBP) => {
                self.kept.remove(&place());
                if let Some(argument) = from {
                    self.kept.insert(place(), argument);
                }
            }
            _ => {}
        }
    }
}
