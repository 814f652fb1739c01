//! Facts that rules look at: those of a file, gathered once, and those of one function.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::Instruction;
use object::LittleEndian as Le;

use crate::address::Svma;
use crate::code::branches::{Branches, Leaving, Passed, Places};
use crate::code::decode::{MAX_INSTRUCTION_LEN, decoder};
use crate::code::movable::ends;
use crate::code::nops::skip_endbr;
use crate::code::return_address::{self, Rows};
use crate::code::stack_depth::{self, Finding};
use crate::code::workers;
use crate::discover::parts::Parts;
use crate::discover::return_address_readers::{self, Jump};
use crate::discover::scope::Scope;
use crate::discover::{jumps, lookup, rseq, swift};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::pointers::Pointer;
use crate::elf::{frames, machines};
use crate::function::Function;
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};

/// All that rules look at in a file.
pub(crate) struct FileFacts<'a, 'd> {
    pub image: &'a Image<'d>,
    pub branches: Branches,
    /// By address: whether calls enter the function.
    pub frames: BTreeMap<u64, bool>,
    pub rows: Rows,
    pub parts: Parts,
    /// Range of each function, from its beginning to the next one's.
    pub ranges: Vec<(u64, u64)>,
    /// Address of each function's possible site: its beginning, or behind an `endbr64`.
    sites: Vec<u64>,
    /// Functions to decide about, and functions whose code matters for that (None: all).
    pub wanted: Vec<usize>,
    members: Option<BTreeSet<usize>>,
    /// Functions that may move their return address, each with the instruction from which on its
    /// position is unknown.
    pub lost: BTreeMap<u64, u64>,
    /// Functions that remove arguments from the stack when they return, each with the instruction
    /// that does.
    pub argument_pops: BTreeMap<u64, u64>,
    /// Functions that may end with a jump to one which does so, each with the jump.
    pub argument_pops_elsewhere: BTreeMap<u64, u64>,
    /// Functions that jump to an exported function of the file through a linker's stub, by that
    /// function's address.
    pub exported_callees: BTreeMap<u64, Vec<u64>>,
    /// Jumps from a function with a frame on the stack to another place, by that place.
    pub jumps_with_frame: BTreeMap<u64, u64>,
    /// Functions behind whose beginning a computed jump of another function may lead, by index,
    /// each with the jump.
    pub computed_into: BTreeMap<usize, u64>,
    /// Functions that may get data in the red zone of another, by address, each with the jump.
    pub red_zones: BTreeMap<u64, u64>,
    /// The program's entry point.
    pub entry: u64,
    /// The virtual machine in the file.
    pub machine: Option<&'static str>,
    /// Whether breakpoints are allowed.
    pub int3: bool,
}

/// All that rules look at in a function.
#[derive(Clone, Copy)]
pub(crate) struct FunctionFacts<'f> {
    pub file: &'f FileFacts<'f, 'f>,
    pub function: &'f Function,
    /// The function in front of it.
    pub before: Option<&'f Function>,
    /// Index of the function.
    pub n: usize,
    pub address: u64,
    /// Address of its possible site: its beginning, or behind an `endbr64`.
    pub at: u64,
    /// End of its code, at the latest the beginning of the next function, or the end of its
    /// section: the linker's stubs lie behind `_init`.
    pub end: u64,
    /// Beginning of the next function.
    pub next: u64,
}

/// The instructions of a function that a jump at its entry would displace.
pub(crate) struct PrologueFacts<'f> {
    pub of: FunctionFacts<'f>,
    /// The instructions, and how many there are: one a byte of the jump at most.
    decoded: ([Instruction; JUMP as usize], usize),
    /// Number of their bytes.
    pub length: u64,
    /// Whether the code ends within the jump, and does not leave the function there.
    pub runs_out: bool,
}

/// A possible site of a function.
pub(crate) struct SiteFacts<'f> {
    pub of: FunctionFacts<'f>,
    pub form: &'f SiteForm,
    /// Why the site is not a jump over the prologue, if it has another form.
    pub no_jump: Option<&'f Reason>,
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

/// Returns the jumps from functions with a frame on the stack to the beginnings of others, by the
/// addresses of these.
fn jumps_with_frame(
    functions: &[Function],
    branches: &Branches,
    rows: &Rows,
    parts: &Parts,
) -> BTreeMap<u64, u64> {
    // Behind a call that does not return, gcc lets dead code jump to the end of another part of its
    // function, where the next function may begin.
    let is_dead_or_part = |to: u64, at: u64| {
        let found = functions.binary_search_by_key(&Svma(to), |function| function.address).ok();
        let Some(n) = found.filter(|n| !functions[*n].is_part()) else { return true };
        let from = lookup::index_at(functions, at);
        let before = n.checked_sub(1).filter(|before| Some(*before) != from);
        before.zip(from).is_some_and(|(before, from)| parts.group(from).contains(&before))
    };
    let jumps = branches.leavings.iter().filter_map(Leaving::jump);
    let jumps = jumps.filter(|jump| rows.has_frame(jump.at) && !is_dead_or_part(jump.to, jump.at));
    jumps.map(|jump| (jump.to, jump.at)).collect()
}

impl FileFacts<'_, '_> {
    /// Returns an indirect jump that may lead to any instruction of a function or of its parts.
    pub(crate) fn unresolved_jump_into(&self, n: usize) -> Option<u64> {
        self.parts.group(n).into_iter().find_map(|member| {
            let (start, next) = self.ranges[member];
            let own = self.branches.unresolved(start, next.min(self.image.section_end(start)));
            own.or_else(|| self.computed_into.get(&member).copied())
        })
    }

    /// Whether a function is one without unwinding information in a file that has such: compilers
    /// write it.
    pub(crate) fn is_hand_written(&self, address: u64) -> bool {
        !self.frames.is_empty() && !self.frames.contains_key(&address)
    }
}

impl<'a, 'd> FileFacts<'a, 'd> {
    /// Gathers the facts of a file, with only the code that matters decoded.
    pub(crate) fn gather(
        image: &'a Image<'d>,
        functions: (&mut [Function], &[u64]),
        pointers: &[Pointer],
        scope: Option<Scope>,
        code_of_go: &Range<u64>,
        int3: bool,
    ) -> FileFacts<'a, 'd> {
        let (functions, starts) = functions;
        let mut file = FileFacts::decode(image, (functions, starts), pointers, scope);
        let dynamic = Dynamic::parse(image, &mut Vec::new());
        file.int3 = int3;
        file.machine = machines::inside(image, &dynamic);
        file.follow_return_addresses(functions, code_of_go);
        file.resolve(functions, pointers);
        file.find_argument_pops(functions);
        file.find_jumps_to_readers(functions, &dynamic);
        file.find_jumps_to_async(functions, &dynamic);
        file.spread_to_tail_callers(functions);
        file
    }

    /// Returns the facts of a function, by its index.
    pub(crate) fn function<'f>(&'f self, functions: &'f [Function], n: usize) -> FunctionFacts<'f> {
        let (function, (address, next)) = (&functions[n], self.ranges[n]);
        let before = n.checked_sub(1).map(|before| &functions[before]);
        FunctionFacts {
            file: self,
            function,
            before,
            n,
            address,
            at: self.sites[n],
            end: lookup::end(functions, n).min(self.image.section_end(address)),
            next,
        }
    }

    /// Decodes the code that matters, and tells functions from parts.
    fn decode(
        image: &'a Image<'d>,
        (functions, starts): (&mut [Function], &[u64]),
        pointers: &[Pointer],
        scope: Option<Scope>,
    ) -> FileFacts<'a, 'd> {
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
        let jumps_with_frame = jumps_with_frame(functions, &branches, &rows, &parts);
        let into = |passed: &Passed| Some((lookup::index_at(functions, passed.to)?, passed.at));
        let computed_into = branches.computed.iter().filter_map(into).collect();
        let red_zones = branches.red_zones.iter().map(|passed| (passed.to, passed.at)).collect();
        let entry = image.header.e_entry.get(Le);
        FileFacts {
            image,
            branches,
            frames,
            rows,
            parts,
            ranges,
            sites,
            wanted,
            members,
            lost: BTreeMap::new(),
            argument_pops: BTreeMap::new(),
            argument_pops_elsewhere: BTreeMap::new(),
            exported_callees: BTreeMap::new(),
            jumps_with_frame,
            computed_into,
            red_zones,
            entry,
            machine: None,
            int3: false,
        }
    }

    /// Resolves the targets of indirect jumps.
    fn resolve(&mut self, functions: &[Function], pointers: &[Pointer]) {
        let places = Places { starts: &self.sites, width: JUMP, pointers };
        let FileFacts { image, branches, parts, rows, .. } = self;
        jumps::resolve(image, branches, (functions, parts), (&places, rows), pointers);
    }

    /// Follows the return address through functions without unwinding information: finds those that
    /// read or may move it, and their jumps at which it is on top of the stack. If a file has no
    /// unwinding information at all, its functions are taken to be ordinary compiled ones, which do
    /// not move it.
    fn follow_return_addresses(&mut self, functions: &[Function], code_of_go: &Range<u64>) {
        let is_start =
            |at: u64| functions.binary_search_by_key(&Svma(at), |function| function.address).is_ok();
        for (n, function) in functions.iter().enumerate() {
            let start = function.address.0;
            let is_known = self.frames.contains_key(&start) || code_of_go.contains(&start);
            if is_known || function.is_part() || self.members.as_ref().is_some_and(|all| !all.contains(&n)) {
                continue;
            }
            match stack_depth::follow(self.image, start, lookup::end(functions, n), is_start) {
                Finding::Touched(pc) => drop(self.rows.readers.insert(start, pc)),
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

    /// Finds the functions that remove arguments from the stack when they return.
    fn find_argument_pops(&mut self, functions: &[Function]) {
        self.argument_pops = self.with_parts(functions, &self.branches.argument_pops);
    }

    /// Returns the functions of these instructions, and the parts of each, with its first
    /// instruction among them.
    fn with_parts(&self, functions: &[Function], instructions: &[u64]) -> BTreeMap<u64, u64> {
        let mut found = BTreeMap::new();
        for at in instructions {
            for member in self.group_at(functions, *at) {
                found.entry(functions[member].address.0).or_insert(*at);
            }
        }
        found
    }

    /// Returns the function of an instruction, and its parts, by index.
    fn group_at(&self, functions: &[Function], at: u64) -> BTreeSet<usize> {
        lookup::index_at(functions, at).map(|n| self.parts.group(n)).unwrap_or_default()
    }

    /// Finds the functions that jump to one of another file that reads its return address.
    fn find_jumps_to_readers(&mut self, functions: &[Function], dynamic: &Dynamic<'_>) {
        for Jump { at, to } in return_address_readers::jumps(self.image, dynamic, &self.branches) {
            for member in self.group_at(functions, at) {
                let from = functions[member].address.0;
                match to {
                    None => drop(self.rows.readers.entry(from).or_insert(at)),
                    Some(to) => self.exported_callees.entry(to).or_default().push(from),
                }
            }
        }
    }

    /// Finds the functions that may jump to an asynchronous function of Swift.
    fn find_jumps_to_async(&mut self, functions: &[Function], dynamic: &Dynamic<'_>) {
        let jumps = swift::jumps(self.image, dynamic, &self.branches);
        self.argument_pops_elsewhere = self.with_parts(functions, &jumps);
    }

    /// Passes these properties on to the functions that jump to one that has them, as their return
    /// address becomes its own.
    fn spread_to_tail_callers(&mut self, functions: &[Function]) {
        let FileFacts { lost, argument_pops, argument_pops_elsewhere, .. } = self;
        for found in [&mut self.rows.readers, lost, argument_pops, argument_pops_elsewhere] {
            let mut open: Vec<u64> = found.keys().copied().collect();
            while let Some(callee) = open.pop() {
                let Ok(n) = functions.binary_search_by_key(&Svma(callee), |function| function.address) else {
                    continue;
                };
                let through_stubs = self.exported_callees.get(&callee).into_iter().flatten().copied();
                for function in self.branches.from(callee, self.sites[n] - callee + 1).chain(through_stubs) {
                    if let Entry::Vacant(new) = found.entry(function) {
                        new.insert(callee);
                        open.push(function);
                    }
                }
            }
        }
    }
}

impl<'f> PrologueFacts<'f> {
    /// Decodes the instructions.
    pub(crate) fn decode(of: FunctionFacts<'f>) -> PrologueFacts<'f> {
        let at = of.at;
        let code = of.file.image.tail(at, of.end.saturating_sub(at).min(JUMP + MAX_INSTRUCTION_LEN));
        let mut decoder = decoder(code, at);
        let mut decoded = [Instruction::default(); JUMP as usize];
        let (mut count, mut length, mut runs_out) = (0, 0, false);
        for instruction in &mut decoded {
            runs_out = !decoder.can_decode();
            if length >= JUMP || runs_out {
                break;
            }
            decoder.decode_out(instruction);
            length = instruction.next_ip().wrapping_sub(at);
            count += 1;
            if ends(instruction) {
                break;
            }
        }
        PrologueFacts { of, decoded: (decoded, count), length, runs_out: runs_out && length < JUMP }
    }

    /// The instructions.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.decoded.0.iter().take(self.decoded.1)
    }

    /// The bytes that the jump displaces: whole instructions, and perhaps padding behind them.
    pub(crate) fn displaced(&self) -> Option<&'f [u8]> {
        self.of.file.image.bytes(self.of.at, self.length.max(JUMP))
    }
}
