//! Functions compiled without room for a call: the prologue is overwritten with a jump and executed
//! out of line.
//!
//! This pass decides function by function whether that goes unnoticed by the program, and gives a
//! reason where it would not.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions};
use object::LittleEndian as Le;

use super::exits::{Exits, TailCalls};
use super::go;
use super::jumps;
use super::landings::Landings;
use super::lookup;
use super::names;
use super::parts::{Parts, Unproven};
use super::return_address_readers;
use super::rseq;
use super::scope::Scope;
use crate::address::Svma;
use crate::binary::Binary;
use crate::code::branches::{Branches, Places};
use crate::code::movable::{check_movable, ends};
use crate::code::nops::{self, skip_endbr};
use crate::code::padding;
use crate::code::return_address::{self, Rows};
use crate::code::stack_depth::{self, Finding};
use crate::code::workers;
use crate::elf::dynamic::Dynamic;
use crate::elf::frames;
use crate::elf::image::Image;
use crate::elf::machines;
use crate::elf::pointers::{self, Pointer};
use crate::error::Error;
use crate::function::{Function, Returns, Verdict};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm, SiteKind};
use calltap_abi::PAGE;

/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// Finds a site for every function of the file that has none. In a program without any site before,
/// they are traced like other functions; else they are [on demand](Function::is_on_demand). With
/// `int3`, a function without room for a jump gets a [breakpoint](SiteForm::Trap).
pub fn find_prologues(data: &[u8], binary: &mut Binary, int3: bool) -> Result<(), Error> {
    find_sites(data, binary, int3, None).map(drop)
}

/// Finds sites as [`find_prologues`] does, but only for wanted functions, and decodes as little as
/// possible. Returns true if the whole file was decoded after all: then the other functions have
/// sites, too.
pub fn find_prologues_of(
    data: &[u8],
    binary: &mut Binary,
    int3: bool,
    is_wanted: &dyn Fn(&Function) -> bool,
) -> Result<bool, Error> {
    find_sites(data, binary, int3, Some(is_wanted)).map(|(_, all)| all)
}

/// Finds sites as [`find_prologues`] does, without breakpoints, and returns the branch targets of
/// the file's code.
pub fn find_landings(data: &[u8], binary: &mut Binary) -> Result<Landings, Error> {
    Ok(Landings::new(find_sites(data, binary, false, None)?.0, &binary.functions))
}

/// Finds the sites. Returns the branches of the decoded code, and whether all code was decoded.
fn find_sites(
    data: &[u8],
    binary: &mut Binary,
    int3: bool,
    is_wanted: Option<&dyn Fn(&Function) -> bool>,
) -> Result<(Branches, bool), Error> {
    let image = Image::parse(data, &mut Vec::new())?;
    names::add_packed(&image, binary);
    let on_demand = !binary.is_bare();
    let (code_of_go, has_go) = match go::is_go(&image) {
        true => {
            let dynamic = Dynamic::parse(&image, &mut Vec::new());
            (go::find(&image, &dynamic, &mut binary.functions, on_demand), true)
        }
        false => (0..0, false),
    };
    let starts: Vec<u64> = binary.functions.iter().map(|function| function.address.0).collect();
    let pointers = pointers::into_code(&image);
    let scope = is_wanted.filter(|_| !has_go).and_then(|is_wanted| {
        let functions = &binary.functions;
        let is_open = |function: &Function| !function.is_traceable() && !function.is_part();
        let wanted = (0..functions.len()).filter(|n| is_open(&functions[*n]) && is_wanted(&functions[*n]));
        Scope::find(&image, (functions, &starts), &pointers, wanted.collect())
    });
    let all = scope.is_none();
    let behind = scope.as_ref().map(|scope| scope.behind.clone()).unwrap_or_default();
    let undecided: Vec<Function> = behind.iter().map(|n| binary.functions[*n].clone()).collect();
    let mut finder = PrologueFinder::new(&image, (&mut binary.functions, &starts), &pointers, scope);
    finder.find_users(&binary.functions, &code_of_go);
    finder.resolve(&binary.functions, &pointers);
    finder.find_tail_callers(&binary.functions);
    for n in finder.wanted.iter().copied().chain(behind.iter().copied()) {
        let (before, rest) = binary.functions.split_at_mut(n);
        let Some(function) = rest.first_mut() else { break };
        if function.is_traceable() || function.is_part() || code_of_go.contains(&function.address.0) {
            continue;
        }
        let found = finder.site(n, function, before.last()).and_then(|form| match form {
            (SiteForm::Trap { .. }, Some(why)) if !int3 => Err(Reason::OnlyBreakpoint { why: Box::new(why) }),
            (form, _) => Ok(form),
        });
        function.verdict = Verdict::unmodified(found, on_demand);
    }
    finder.find_exits(&mut binary.functions);
    for (n, old) in behind.into_iter().zip(undecided) {
        binary.functions[n] = old;
    }
    Ok((finder.branches, all))
}

struct PrologueFinder<'a, 'd> {
    image: &'a Image<'d>,
    branches: Branches,
    /// By address: whether calls enter the function.
    frames: BTreeMap<u64, bool>,
    rows: Rows,
    parts: Parts,
    /// Range of each function, from its beginning to the next one's.
    ranges: Vec<(u64, u64)>,
    /// Address of each function's possible site: its beginning, or behind an `endbr64`.
    sites: Vec<u64>,
    /// Functions to decide about, and functions whose code matters for that (None: all).
    wanted: Vec<usize>,
    members: Option<BTreeSet<usize>>,
    /// Functions that may move their return address, each with the instruction from which on its
    /// position is unknown.
    lost: BTreeMap<u64, u64>,
    /// Functions that remove arguments from the stack when they return, each with the instruction
    /// that does.
    pops: BTreeMap<u64, u64>,
    entry: u64,
}

/// Entries of the unwinding information for the functions whose code matters, by address: whether
/// calls enter them. Empty only if the file has none at all.
fn all_frames(image: &Image<'_>, scope: Option<&Scope>) -> BTreeMap<u64, bool> {
    let read = |is_left_out: &dyn Fn(u64) -> bool| {
        let frames = frames::frames(image, is_left_out, &mut Vec::new());
        frames.into_iter().map(|frame| (frame.address, frame.called)).collect::<BTreeMap<u64, bool>>()
    };
    let some = scope.map(|scope| read(&|address| !scope.areas.contain(address)));
    some.filter(|some| !some.is_empty()).unwrap_or_else(|| read(&|_| false))
}

/// End of a function, at the latest the beginning of the next one.
fn end(function: &Function, next: u64) -> u64 {
    if function.size == 0 { next } else { next.min(function.address.0.saturating_add(function.size)) }
}

impl<'a, 'd> PrologueFinder<'a, 'd> {
    /// Decodes the code that matters, and tells functions from parts.
    fn new(
        image: &'a Image<'d>,
        (functions, starts): (&mut [Function], &[u64]),
        pointers: &[Pointer],
        scope: Option<Scope>,
    ) -> PrologueFinder<'a, 'd> {
        let matters = |n: usize| scope.as_ref().is_none_or(|scope| scope.members.contains(&n));
        let site = |(n, start): (usize, &u64)| if matters(n) { skip_endbr(image, *start) } else { *start };
        let sites: Vec<u64> = starts.iter().enumerate().map(site).collect();
        let places = Places { starts: &sites, width: JUMP, pointers };
        let areas = scope.as_ref().map(|scope| &scope.areas);
        let (rows, mut branches) = workers::both(
            image.data.len() as u64,
            || return_address::rows(image, areas),
            || match &scope {
                Some(scope) => scope.branches(image, starts, &places),
                None => Branches::find(image, starts, &places),
            },
        );
        let frames = all_frames(image, scope.as_ref());
        let all = scope.is_none();
        let parts = Parts::find(image, functions, (&branches, all), (&frames, &rows), pointers);
        branches.add_targets(pointers.iter().map(|pointer| pointer.to).chain(rows.landings.iter().copied()));
        branches.add_targets(rseq::kept(image, pointers));
        let (wanted, members) = match scope {
            Some(Scope { wanted, members, .. }) => (wanted, Some(members)),
            None => ((0..functions.len()).collect(), None),
        };
        let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
        let ranges = starts.iter().copied().zip(ends).collect();
        let (lost, pops) = (BTreeMap::new(), BTreeMap::new());
        let entry = image.header.e_entry.get(Le);
        PrologueFinder {
            image,
            branches,
            frames,
            rows,
            parts,
            ranges,
            sites,
            wanted,
            members,
            lost,
            pops,
            entry,
        }
    }

    /// Resolves the targets of indirect jumps.
    fn resolve(&mut self, functions: &[Function], pointers: &[Pointer]) {
        let places = Places { starts: &self.sites, width: JUMP, pointers };
        let PrologueFinder { image, branches, parts, rows, .. } = self;
        jumps::resolve(image, branches, (functions, parts), (&places, rows), pointers);
    }

    /// Finds the functions that read their return address, or may move it. If a file has no
    /// unwinding information at all, its functions are taken to be ordinary compiled ones.
    fn find_users(&mut self, functions: &[Function], code_of_go: &Range<u64>) {
        let is_start =
            |at: u64| functions.binary_search_by_key(&Svma(at), |function| function.address).is_ok();
        for (n, function) in functions.iter().enumerate() {
            let start = function.address.0;
            let is_known = self.frames.contains_key(&start) || code_of_go.contains(&start);
            if is_known || function.is_part() || self.members.as_ref().is_some_and(|all| !all.contains(&n)) {
                continue;
            }
            let next = functions.get(n + 1).map_or(u64::MAX, |next| next.address.0);
            match stack_depth::follow(self.image, start, end(function, next), is_start) {
                Finding::Touched(pc) => drop(self.rows.users.insert(start, pc)),
                Finding::Lost(pc) if !self.frames.is_empty() => drop(self.lost.insert(start, pc)),
                Finding::PassedOn(jumps) => {
                    if !self.frames.is_empty() {
                        self.lost.extend(jumps.first().map(|pc| (start, *pc)));
                    }
                    self.rows.bare_jumps.extend(jumps);
                }
                Finding::Lost(_) | Finding::Untouched => {}
            }
        }
    }

    /// Passes properties of a function on to the functions that jump to it, as their return address
    /// becomes its own.
    fn find_tail_callers(&mut self, functions: &[Function]) {
        for at in &self.branches.pops {
            if let Some(n) = lookup::index_at(functions, *at) {
                for member in self.parts.group(n) {
                    self.pops.entry(functions[member].address.0).or_insert(*at);
                }
            }
        }
        for at in return_address_readers::jumps(self.image, &self.branches) {
            if let Some(n) = lookup::index_at(functions, at) {
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
                for function in self.branches.from(user, self.sites[n] - user + 1) {
                    if let Entry::Vacant(new) = found.entry(function) {
                        new.insert(user);
                        open.push(function);
                    }
                }
            }
        }
    }

    /// Decides how returns are seen. A function whose exits cannot be rewritten would need a return
    /// stub; it is refused if it reads or may move its return address, or belongs to a virtual
    /// machine that looks return addresses up.
    fn find_exits(&self, functions: &mut [Function]) {
        let exits = Exits::new(self.image, &self.branches, &self.rows, functions, &self.frames, &self.parts);
        let machine = machines::inside(self.image);
        let find_one = |n: usize| {
            let refused = self.refusal(functions[n].address.0, machine);
            let must_stay = match functions[n].form() {
                Some(SiteForm::Checked { .. }) => Some(Reason::GoStack),
                _ => refused.clone(),
            };
            (exits.find(n, &must_stay.map_or(TailCalls::Stub, TailCalls::Unseen)), refused)
        };
        let find = |numbers: &[usize]| Vec::from_iter(numbers.iter().map(|n| find_one(*n)));
        let found: Vec<_> =
            workers::share(&self.wanted, |n| functions[*n].size, find).into_iter().flatten().collect();
        for (n, ((returns, form), refused)) in self.wanted.iter().zip(found) {
            let function = &mut functions[*n];
            let Verdict::Site { kind: SiteKind::Prologue, form: at_entry, .. } = &mut function.verdict else {
                continue;
            };
            // A Go function never gets a return stub.
            let is_of_go = matches!(at_entry, SiteForm::Checked { .. });
            if let (Returns::Stub(_), Some(reason), false) = (&returns, refused, is_of_go) {
                function.verdict = Verdict::refused(reason);
                continue;
            }
            function.returns = match returns {
                Returns::Stub(Some(why)) if is_of_go => Returns::Stub(Some(why.of_go_function())),
                returns => returns,
            };
            form.into_iter().for_each(|wider| *at_entry = wider);
        }
    }

    /// Returns why a function must have no return stub.
    fn refusal(&self, address: u64, machine: Option<&str>) -> Option<Reason> {
        let user = self.rows.users.get(&address);
        let lost = self.lost.get(&address);
        let pops = self.pops.get(&address);
        user.map(|at| Reason::ReadsReturnAddress { at: *at })
            .or_else(|| lost.map(|at| Reason::MovesReturnAddress { at: *at }))
            .or_else(|| pops.map(|at| Reason::PopsArguments { at: *at }))
            .or_else(|| machine.map(|name| Reason::Machine { name: name.to_owned() }))
    }

    /// Returns the form of a function's site; for a breakpoint, also why it cannot be a jump.
    fn site(
        &self,
        n: usize,
        function: &Function,
        before: Option<&Function>,
    ) -> Result<(SiteForm, Option<Reason>), Reason> {
        let (at, (address, next)) = (self.sites[n], self.ranges[n]);
        if address == self.entry {
            return Err(Reason::EntryPoint);
        }
        if self.frames.get(&address) == Some(&false) {
            return Err(Reason::OddStack);
        }
        // Code without references never runs, unless an unresolved jump leads there.
        let is_dead =
            |unproven: &&Unproven| **unproven == Unproven::Unreached && self.branches.unresolved.is_empty();
        if let Some(unproven) = self.parts.unproven.get(&n).filter(|unproven| !is_dead(unproven)) {
            return Err(unproven.reason());
        }
        let end = end(function, next);
        let whole = || {
            let old = self.displaced(at, end, next)?;
            self.check_landing(n, at)?;
            // A write within one page is whole even if the writer is killed.
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

    /// Checks that only the first instruction is displaced in a function with an indirect jump that
    /// may lead to any instruction.
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

    /// Returns a breakpoint site, if the first instruction can be executed out of line. The bytes
    /// behind its first one stay, so a jump may land there.
    fn trap(&self, at: u64, end: u64) -> Option<SiteForm> {
        let code = self.image.tail(at, end.saturating_sub(at).min(LONGEST));
        let first = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        check_movable(&first, JUMP).ok()?;
        Some(SiteForm::Trap { at: Svma(at), old: self.image.bytes(at, first.len() as u64)?.to_vec() })
    }

    /// Returns a site with its jump in the padding in front of the function, if there is room and
    /// no branch lands in the displaced instruction.
    fn beside(&self, address: u64, at: u64, end: u64, before: Option<&Function>) -> Option<SiteForm> {
        let form = padding::jump(self.image, (address, at, end), before)?;
        let SiteForm::PaddingJump { old, .. } = &form else { return None };
        self.branches.behind(at, old.len() as u64).is_none().then_some(form)
    }

    /// Returns the displaced bytes: whole instructions that can be executed out of line.
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

    /// Checks that only padding lies between a function's end and that of the jump.
    fn check_padding(&self, from: u64, to: u64, next: u64) -> Result<(), Reason> {
        // The jump may cut the last NOP in two: no thread executes it.
        let room = next.saturating_sub(from).min(JUMP + LONGEST);
        let padding = self.image.tail(from, room);
        let is_filler = |code: &[u8]| code.iter().all(|byte| matches!(byte, 0xCC | 0x00));
        let wanted = (to - from) as usize;
        let filled = padding.get(..wanted).is_some_and(is_filler) || nops::run(padding) >= wanted;
        if filled && to <= next { Ok(()) } else { Err(Reason::Short { bytes: JUMP - (to - from) }) }
    }
}
