//! Functions compiled without room for a call: the prologue is overwritten with a jump and executed out of line.
//!
//! What is decided here is whether that can be done unnoticed by the program, function by function, with a reason where it cannot.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::LittleEndian as Le;

use super::askers;
use super::branches::{Branches, Places};
use super::dynamic::Dynamic;
use super::exits::{Exits, TailCalls};
use super::frames;
use super::go;
use super::image::Image;
use super::jumps;
use super::landings::Landings;
use super::machines;
use super::names;
use super::nops::{self, skip_endbr};
use super::parts::{self, Parts, Unproven};
use super::pointers;
use super::return_address::{self, Rows};
use super::rseq;
use super::stack_depth::{self, Finding};
use super::workers;
use crate::address::Svma;
use crate::discover::Binary;
use crate::error::Error;
use crate::function::{Function, Returns};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm, SiteKind};
use calltap_abi::PAGE;

/// And of one that leads no further than 127.
const SHORT: u64 = 2;
/// How far in front of the function the longer jump may end.
const FARTHEST: usize = 10;
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// Finds a site for every function that has none yet, in the same file. Those of a program are traced like any other where nothing was built for tracing; else
/// they are [on demand](Function::on_demand). If `int3`, what has no room for a jump gives way to a [breakpoint](SiteForm::Trap).
pub fn find_prologues(data: &[u8], binary: &mut Binary, int3: bool) -> Result<(), Error> {
    find_sites(data, binary, int3).map(drop)
}

/// The same, for the places where the file's jumps may land.
pub fn find_landings(data: &[u8], binary: &mut Binary) -> Result<Landings, Error> {
    Ok(Landings::new(find_sites(data, binary, false)?, &binary.functions))
}

/// Finds the sites, and how the code of the file branches.
fn find_sites(data: &[u8], binary: &mut Binary, int3: bool) -> Result<Branches, Error> {
    let image = Image::parse(data, &mut Vec::new())?;
    if names::lacks_names(binary)
        && let Some(table) = names::packed(&image)
    {
        names::add_names(binary, &table);
    }
    let on_demand = !binary.is_bare();
    let code_of_go = match go::is_go(&image) {
        true => {
            let dynamic = Dynamic::parse(&image, &mut Vec::new());
            go::find(&image, &dynamic, &mut binary.functions, on_demand)
        }
        false => 0..0,
    };
    let starts: Vec<u64> = binary.functions.iter().map(|function| function.address.0).collect();
    let sites: Vec<u64> = starts.iter().map(|start| skip_endbr(&image, *start)).collect();
    let pointers = pointers::into_code(&image);
    let places = Places { starts: &sites, width: JUMP, pointers: &pointers };
    let (rows, mut branches) = workers::both(
        data.len() as u64,
        || return_address::rows(&image),
        || Branches::find(&image, &starts, &places),
    );
    let frames: BTreeMap<u64, bool> = frames::frames(&image, |_| false, &mut Vec::new())
        .into_iter()
        .map(|frame| (frame.address, frame.called))
        .collect();
    let parts = Parts::find(&image, &mut binary.functions, &branches, (&frames, &rows), &pointers);
    branches.add_targets(pointers.iter().map(|pointer| pointer.to).chain(rows.landings.iter().copied()));
    branches.add_targets(rseq::kept(&image, &pointers));
    let mut finder = Finder {
        branches,
        frames,
        rows,
        parts,
        ranges: starts.iter().copied().zip(starts.iter().skip(1).copied().chain([u64::MAX])).collect(),
        lost: BTreeMap::new(),
        pops: BTreeMap::new(),
        entry: image.header.e_entry.get(Le),
        image: &image,
    };
    finder.find_users(&binary.functions, &code_of_go);
    let Finder { branches, parts, rows, .. } = &mut finder;
    jumps::resolve(&image, branches, (&binary.functions, parts), (&places, rows), &pointers);
    finder.find_tail_callers(&binary.functions, &sites);
    let nexts = starts.iter().skip(1).copied().chain([u64::MAX]);
    for (n, (site, next)) in sites.iter().zip(nexts).enumerate() {
        let (before, rest) = binary.functions.split_at_mut(n);
        let Some(function) = rest.first_mut() else { break };
        if function.form.is_some() || function.is_part() || code_of_go.contains(&function.address.0) {
            continue;
        }
        let found = finder.site(n, function, *site, next, before.last()).and_then(|form| match form {
            (SiteForm::Trap { .. }, Some(why)) if !int3 => Err(Reason::OnlyBreakpoint { why: Box::new(why) }),
            (form, _) => Ok(form),
        });
        match found {
            Ok(form) => {
                (function.kind, function.form) = (SiteKind::Prologue, Some(form));
                function.reason = None;
                function.on_demand = on_demand;
            }
            Err(reason) => (function.kind, function.reason) = (SiteKind::None, Some(reason)),
        }
    }
    finder.find_exits(&mut binary.functions);
    Ok(finder.branches)
}

struct Finder<'a, 'd> {
    image: &'a Image<'d>,
    branches: Branches,
    /// By address: are they entered by calls?
    frames: BTreeMap<u64, bool>,
    rows: Rows,
    parts: Parts,
    /// From each function's beginning to the next one's.
    ranges: Vec<(u64, u64)>,
    /// Functions that may move their return address, and the instruction from which on that is not known.
    lost: BTreeMap<u64, u64>,
    /// Functions that take arguments from the stack when they return, and the instruction that does.
    pops: BTreeMap<u64, u64>,
    entry: u64,
}

/// Where a function ends, at the latest where the next one begins.
fn end(function: &Function, next: u64) -> u64 {
    if function.size == 0 { next } else { next.min(function.address.0.saturating_add(function.size)) }
}

impl Finder<'_, '_> {
    /// The functions that look at their own return address, or may move it. Where a file has no unwinding information at all, compilers have made its
    /// functions like any other's.
    fn find_users(&mut self, functions: &[Function], code_of_go: &Range<u64>) {
        let is_start =
            |at: u64| functions.binary_search_by_key(&Svma(at), |function| function.address).is_ok();
        for (n, function) in functions.iter().enumerate() {
            let start = function.address.0;
            let is_known = self.frames.contains_key(&start) || code_of_go.contains(&start);
            if is_known || function.is_part() {
                continue;
            }
            let next = functions.get(n + 1).map_or(u64::MAX, |next| next.address.0);
            match stack_depth::follow(self.image, start, end(function, next), is_start) {
                Finding::Touched(pc) => drop(self.rows.users.insert(start, pc)),
                Finding::Lost(pc) if !self.frames.is_empty() => drop(self.lost.insert(start, pc)),
                Finding::Handed(jumps) => {
                    if !self.frames.is_empty() {
                        self.lost.extend(jumps.first().map(|pc| (start, *pc)));
                    }
                    self.rows.handed.extend(jumps);
                }
                Finding::Lost(_) | Finding::Untouched => {}
            }
        }
    }

    /// What holds of a function holds of those that jump to it: their return address becomes its own.
    fn find_tail_callers(&mut self, functions: &[Function], sites: &[u64]) {
        for at in &self.branches.pops {
            if let Some(n) = parts::index_at(functions, *at) {
                for member in self.parts.group(n) {
                    self.pops.entry(functions[member].address.0).or_insert(*at);
                }
            }
        }
        for at in askers::jumps(self.image, &self.branches) {
            if let Some(n) = parts::index_at(functions, at) {
                for member in self.parts.group(n) {
                    self.rows.users.entry(functions[member].address.0).or_insert(at);
                }
            }
        }
        for found in [&mut self.rows.users, &mut self.lost, &mut self.pops] {
            let mut open: Vec<u64> = found.keys().copied().collect();
            while let Some(user) = open.pop() {
                let Ok(n) = functions.binary_search_by_key(&Svma(user), |function| function.address) else {
                    continue;
                };
                for function in self.branches.from(user, sites[n] - user + 1) {
                    if let Entry::Vacant(new) = found.entry(function) {
                        new.insert(user);
                        open.push(function);
                    }
                }
            }
        }
    }

    /// Finds out how returns are seen. A function that looks at its own return address is not traced if another one had to be there; nor is one that may move it. And none of a
    /// virtual machine's that looks up return addresses is.
    fn find_exits(&self, functions: &mut [Function]) {
        let exits = Exits::new(self.image, &self.branches, &self.rows, functions, &self.frames, &self.parts);
        let numbers: Vec<usize> = (0..functions.len()).collect();
        let machine = machines::inside(self.image);
        let find_one = |n: usize| {
            let refused = self.refusal(functions[n].address.0, machine);
            (exits.find(n, &refused.clone().map_or(TailCalls::Stub, TailCalls::Unseen)), refused)
        };
        let find = |numbers: &[usize]| Vec::from_iter(numbers.iter().map(|n| find_one(*n)));
        let found = workers::share(&numbers, |n| functions[*n].size, find).into_iter().flatten();
        let own = |function: &&mut Function| {
            matches!(
                function.form,
                Some(SiteForm::Prologue { .. } | SiteForm::PaddingJump { .. } | SiteForm::Trap { .. })
            )
        };
        for (function, ((returns, form), refused)) in
            functions.iter_mut().zip(found).filter(|(function, _)| own(function))
        {
            if let (Returns::Stub(_), Some(reason)) = (&returns, refused) {
                (function.kind, function.form, function.on_demand) = (SiteKind::None, None, false);
                function.reason = Some(reason);
                continue;
            }
            function.returns = returns;
            function.form = form.or(function.form.take());
        }
    }

    /// Why a function must have no return stub.
    fn refusal(&self, address: u64, machine: Option<&str>) -> Option<Reason> {
        let user = self.rows.users.get(&address);
        let lost = self.lost.get(&address);
        let pops = self.pops.get(&address);
        user.map(|at| Reason::ReadsReturnAddress { at: *at })
            .or_else(|| lost.map(|at| Reason::MovesReturnAddress { at: *at }))
            .or_else(|| pops.map(|at| Reason::PopsArguments { at: *at }))
            .or_else(|| machine.map(|name| Reason::Machine { name: name.to_owned() }))
    }

    /// The form of a function's site; if that is a breakpoint, also why it is no jump.
    fn site(
        &self,
        n: usize,
        function: &Function,
        at: u64,
        next: u64,
        before: Option<&Function>,
    ) -> Result<(SiteForm, Option<Reason>), Reason> {
        let address = function.address.0;
        if address == self.entry {
            return Err(Reason::EntryPoint);
        }
        if self.frames.get(&address) == Some(&false) {
            return Err(Reason::OddStack);
        }
        // What nothing leads to is not run, unless an unresolved jump leads there.
        let is_dead =
            |unproven: &&Unproven| **unproven == Unproven::Unreached && self.branches.unresolved.is_empty();
        if let Some(unproven) = self.parts.unproven.get(&n).filter(|unproven| !is_dead(unproven)) {
            return Err(unproven.reason());
        }
        let end = end(function, next);
        let whole = || {
            let old = self.displaced(at, end, next)?;
            self.check_landing(n, at)?;
            // A write to code is whole within a page, should the writer be killed.
            if at % PAGE > PAGE - JUMP {
                return Err(Reason::TwoPages);
            }
            if let Some(target) = self.branches.behind(at, JUMP) {
                return Err(Reason::JumpedIntoByte { byte: target - address });
            }
            Ok(SiteForm::Prologue { at: Svma(at), old })
        };
        let form = match whole() {
            Ok(form) => (form, None),
            Err(reason) => match self.beside(address, at, end, before).or_else(|| self.trap(at, end)) {
                Some(form) => (form, Some(reason)),
                None => return Err(reason),
            },
        };
        if self.branches.loops_to(at) {
            return Err(Reason::LoopsToEntry);
        }
        Ok(form)
    }

    /// Where an indirect jump may lead to any instruction, only the first one may give way.
    fn check_landing(&self, n: usize, at: u64) -> Result<(), Reason> {
        let first = Decoder::with_ip(64, self.image.tail(at, LONGEST), at, DecoderOptions::NONE).decode();
        let mut members = self.parts.group(n).into_iter();
        let unresolved = members.find_map(|member| {
            let (start, end) = self.ranges[member];
            self.branches.unresolved(start, end)
        });
        match unresolved.filter(|_| (first.len() as u64) < JUMP) {
            Some(jump) => Err(Reason::IndirectJumpInside { at: jump }),
            None => Ok(()),
        }
    }

    /// A breakpoint, if its first instruction can be run elsewhere. What is behind its first byte stays, so a jump may land there.
    fn trap(&self, at: u64, end: u64) -> Option<SiteForm> {
        let code = self.image.tail(at, end.saturating_sub(at).min(LONGEST));
        let first = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        check_movable(&first, JUMP).ok()?;
        Some(SiteForm::Trap { at: Svma(at), old: self.image.bytes(at, first.len() as u64)?.to_vec() })
    }

    /// The place of a jump in the padding in front of a function, to which its first instruction gives way, if there is one.
    fn beside(&self, address: u64, at: u64, end: u64, before: Option<&Function>) -> Option<SiteForm> {
        let code = self.image.tail(at, end.saturating_sub(at).min(LONGEST));
        let first = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        let length = first.len() as u64;
        if first.is_invalid() || !(SHORT..JUMP).contains(&length) || check_movable(&first, length).is_err() {
            return None;
        }
        let before = before.filter(|before| before.size > 0)?;
        let start = before.address.0.checked_add(before.size)?;
        let between = self.image.bytes(start, address.checked_sub(start)?)?;
        let is_filler = between.iter().all(|byte| matches!(byte, 0xCC | 0x00)) || nops::all(between);
        let code = self.image.bytes(before.address.0, before.size)?;
        let last = Decoder::with_ip(64, code, before.address.0, DecoderOptions::NONE).into_iter().last()?;
        // A thread that runs on through the padding executes a NOP still, if the jump lies in its operand.
        let gap = if ends(&last) { Some(0) } else { nops::behind_operand(between) };
        let front = address.checked_sub(JUMP + gap.filter(|gap| is_filler && *gap <= FARTHEST)? as u64)?;
        let is_whole = front / PAGE == (at + SHORT - 1) / PAGE && self.branches.behind(at, length).is_none();
        // What is behind a short function may be part of its own jump.
        let is_free = start.max(before.address.0 + JUMP + nops::ENDBR64.len() as u64) <= front;
        if !is_whole || !is_free {
            return None;
        }
        let front_old = self.image.bytes(front, at - front)?.to_vec();
        let old = self.image.bytes(at, length)?.to_vec();
        Some(SiteForm::PaddingJump { front: Svma(front), front_old, at: Svma(at), old })
    }

    /// The bytes that give way: whole instructions that can be run elsewhere.
    fn displaced(&self, at: u64, end: u64, next: u64) -> Result<Vec<u8>, Reason> {
        let code = self.image.tail(at, end.saturating_sub(at).min(JUMP + LONGEST));
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        let mut length = 0;
        while length < JUMP {
            if !decoder.can_decode() {
                return Err(match code.is_empty() {
                    true => Reason::Empty,
                    false => Reason::ShortAndRunsOn { bytes: length },
                });
            }
            let instruction = decoder.decode();
            length = instruction.next_ip().wrapping_sub(at);
            check_movable(&instruction, length)?;
            if ends(&instruction) {
                break;
            }
        }
        if length < JUMP {
            self.check_padding(at.saturating_add(length), at.saturating_add(JUMP), next)?;
        }
        self.image.bytes(at, length.max(JUMP)).map(<[u8]>::to_vec).ok_or(Reason::CutOff)
    }

    /// Is there nothing but padding between a function's end and that of the jump?
    fn check_padding(&self, from: u64, to: u64, next: u64) -> Result<(), Reason> {
        // The last NOP may be cut in two: no thread runs it.
        let room = next.saturating_sub(from).min(JUMP + LONGEST);
        let padding = self.image.tail(from, room);
        let is_filler = |code: &[u8]| code.iter().all(|byte| matches!(byte, 0xCC | 0x00));
        let wanted = (to - from) as usize;
        let filled = padding.get(..wanted).is_some_and(is_filler) || nops::run(padding) >= wanted;
        if filled && to <= next { Ok(()) } else { Err(Reason::Short { bytes: JUMP - (to - from) }) }
    }
}

/// Does nothing follow it?
pub fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Can it be run from elsewhere, if it ends so many bytes behind the function's beginning?
fn check_movable(instruction: &Instruction, end: u64) -> Result<(), Reason> {
    let is_far = |code| {
        matches!(
            code,
            Code::Retfw
                | Code::Retfd
                | Code::Retfq
                | Code::Retfw_imm16
                | Code::Retfd_imm16
                | Code::Retfq_imm16
                | Code::Iretw
                | Code::Iretd
                | Code::Iretq
                | Code::Jmp_m1616
                | Code::Jmp_m1632
                | Code::Jmp_m1664
                | Code::Call_m1616
                | Code::Call_m1632
                | Code::Call_m1664
        )
    };
    let uses_stack = instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RSP;
    match instruction.flow_control() {
        _ if instruction.is_invalid() => Err(Reason::NoInstructions),
        _ if is_far(instruction.code()) => Err(Reason::FarTransfer),
        FlowControl::Next | FlowControl::ConditionalBranch => Ok(()),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => Ok(()),
        FlowControl::Call if instruction.mnemonic() != Mnemonic::Call => Err(Reason::SystemCall),
        FlowControl::Call | FlowControl::IndirectCall if end < JUMP => {
            Err(Reason::CallReturnsInto { byte: end })
        }
        FlowControl::IndirectCall if uses_stack => Err(Reason::CallThroughStack),
        FlowControl::Call | FlowControl::IndirectCall => Ok(()),
        _ => Err(Reason::BeginsWith { instruction: format!("{:?}", instruction.mnemonic()).to_lowercase() }),
    }
}
