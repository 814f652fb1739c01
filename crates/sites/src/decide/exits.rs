//! Exits of functions, and whether each can be overwritten with a jump. A function's return is then
//! seen without replacing its return address.
//!
//! An exit is a `ret`. The jump overwrites it with instructions in front of it and padding behind
//! it, as many as a jump needs, unless a branch lands among them.
//!
//! A call lasts until control is back at its caller. If a function ends with a tail call, that
//! happens in another function, so it gets a return stub. Where its return address must not be
//! replaced, the jump stays as it is, and the end of a call that leaves by it is unknown.

use iced_x86::FlowControl;

use super::facts::FileFacts;
use super::{EXITS, refusal};
use crate::address::Svma;
use crate::code::branches::{Leaving, To};
use crate::code::decode::decoder;
use crate::code::nops;
use crate::discover::go_exits::{self, Room};
use crate::discover::lookup;
use crate::elf::plt;
use crate::function::{Exit, Function, Returns};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};
use calltap_abi::PAGE;

/// Maximum number of bytes that one exit's jump may displace.
const MAX_DISPLACED: u64 = 23;

/// Finder of exits, with all that is known about the functions of a file.
pub(super) struct Exits<'a, 'd> {
    file: &'a FileFacts<'a, 'd>,
    functions: &'a [Function],
    /// For each leaving, the target of its direct jump.
    places: Vec<JumpTarget>,
}

/// How the end of a call is seen that leaves a function by a tail call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TailCalls {
    /// A return stub sees it.
    Stub,
    /// Not seen, with the reason why the function must have no return stub.
    Unseen(Reason),
}

/// Target of a jump out of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JumpTarget {
    /// The beginning of a function, or a stub of the linker.
    Entry,
    /// The middle of a function, or any place of a part, by index.
    Inside(usize),
    Nowhere,
}

/// Instructions that one jump displaces.
#[derive(Debug)]
struct Region {
    start: u64,
    /// Address behind the last instruction.
    end: u64,
    /// First byte that the next region may use.
    free: u64,
    /// Addresses of the instructions in it that leave the function.
    leaves: Vec<u64>,
    /// [`Exit::keeps_pop`].
    keeps_pop: bool,
}

impl<'a, 'd> Exits<'a, 'd> {
    pub(super) fn new(file: &'a FileFacts<'a, 'd>, functions: &'a [Function]) -> Exits<'a, 'd> {
        let mut exits = Exits { file, functions, places: Vec::new() };
        let place = |leaving: &Leaving| match leaving.to {
            To::If(target) | To::Address(target) => exits.place(target),
            To::Caller | To::Pointer | To::PointerOrWithin | To::Oddly => JumpTarget::Nowhere,
        };
        exits.places = file.branches.leavings.iter().map(place).collect();
        exits
    }

    fn is_part(&self, n: usize) -> bool {
        self.functions[n].is_part()
    }

    fn index_at(&self, address: u64) -> Option<usize> {
        lookup::index_at(self.functions, address)
    }

    fn end(&self, n: usize) -> u64 {
        lookup::end(self.functions, n)
    }

    fn place(&self, target: u64) -> JumpTarget {
        let is_entry = |n: &usize| {
            let start = self.functions[*n].address.0;
            start == target && !self.is_part(*n) && self.file.frames.get(&start) != Some(&false)
        };
        // All stubs of the linker share one entry in the unwinding information.
        match self.index_at(target) {
            Some(n) if is_entry(&n) => JumpTarget::Entry,
            _ if plt::is_stub(self.file.image, target) => JumpTarget::Entry,
            Some(n) => JumpTarget::Inside(n),
            None => JumpTarget::Nowhere,
        }
    }

    /// Returns how the return of a function is traced, and the form of its site if that changes:
    /// where an exit is near the entry, the site displaces both.
    pub(super) fn find(&self, n: usize, tail_calls: &TailCalls) -> (Returns, Option<SiteForm>) {
        self.try_find(n, tail_calls).unwrap_or_else(|reason| (Returns::Stub(Some(reason)), None))
    }

    fn try_find(&self, n: usize, tail_calls: &TailCalls) -> Result<(Returns, Option<SiteForm>), Reason> {
        let function = &self.functions[n];
        if let Some(reason) = refusal(EXITS, &self.file.function(self.functions, n)) {
            return Err(reason);
        }
        let (at, old, width) = match function.form() {
            Some(SiteForm::Prologue { at, old }) => (at.0, old, JUMP),
            Some(SiteForm::PaddingJump { at, old, .. } | SiteForm::Trap { at, old }) => (at.0, old, 0),
            Some(SiteForm::Checked { at, old, .. } | SiteForm::Unchecked { at, old, .. }) => {
                (at.0, old, JUMP)
            }
            _ => return Err(Reason::RoomAtEntry),
        };
        let end = at + old.len() as u64;
        let entry =
            Region { start: at, end, free: end.max(at + width), leaves: Vec::new(), keeps_pop: false };
        let parts: Vec<(usize, bool)> = self.file.parts.of(n).collect();
        let mut is_known = self.is_known(n)?;
        for (part, _) in &parts {
            is_known &= self.is_known(*part)?;
        }
        let tail_call =
            std::iter::once(n).chain(parts.iter().map(|(part, _)| *part)).find_map(|n| self.tail_call(n));
        let unrecorded_end = match (tail_call, tail_calls) {
            (None, _) => None,
            (Some(at), TailCalls::Stub) => return Err(Reason::TailCall { at }),
            (Some(at), TailCalls::Unseen(why)) => {
                Some(Reason::UnseenTailCall { at, why: Box::new(why.clone()) })
            }
        };
        let mut regions = self.regions(n, Some(entry), is_known)?;
        for (part, is_shared) in parts {
            let more = self.regions(part, None, is_known)?;
            if is_shared && !more.is_empty() {
                return Err(Reason::SharesPart);
            }
            regions.extend(more);
        }
        let mut regions = regions.into_iter();
        let entry = regions.next().ok_or(Reason::ExitNearEntry)?;
        let form = match function.form() {
            Some(SiteForm::Prologue { at, .. }) if entry.end > end => {
                let old = self.bytes(entry.start, entry.end)?;
                Some(SiteForm::Prologue { at: *at, old })
            }
            Some(SiteForm::Trap { at, .. }) if entry.end > end => {
                Some(SiteForm::Trap { at: *at, old: self.bytes(entry.start, entry.end)? })
            }
            _ if entry.end > end => return Err(Reason::ExitNearEntry),
            _ => None,
        };
        let exits = regions.map(|region| {
            let (at, leaves) = (Svma(region.start), offsets(&region));
            // At least the bytes of the jump, some of which may be padding.
            let old = self.bytes(region.start, region.end.max(region.start + JUMP))?;
            Ok(Exit { at, old, leaves, is_sled: false, keeps_pop: region.keeps_pop })
        });
        let elsewhere = exits.collect::<Result<Vec<Exit>, Reason>>()?;
        if matches!(function.form(), Some(SiteForm::Trap { .. })) && !elsewhere.is_empty() {
            return Err(Reason::BreakpointEntry);
        }
        Ok((Returns::Exits { at_entry: offsets(&entry), elsewhere, unrecorded_end }, form))
    }

    /// Returns the first tail call of a function or part.
    fn tail_call(&self, n: usize) -> Option<u64> {
        let leads_out = |(leaving, place): &(&Leaving, JumpTarget)| match leaving.to {
            To::Pointer => true,
            To::If(_) | To::Address(_) => *place == JumpTarget::Entry,
            To::Caller | To::PointerOrWithin | To::Oddly => false,
        };
        self.leavings(self.functions[n].address.0, self.end(n)).find(leads_out).map(|(leaving, _)| leaving.at)
    }

    /// Instructions from `start` to `end` that may leave the function, each with the target of its
    /// direct jump.
    fn leavings(&self, start: u64, end: u64) -> impl Iterator<Item = (&'a Leaving, JumpTarget)> {
        let leavings = self.file.branches.leavings(start, end);
        let first = self.file.branches.leavings.partition_point(|leaving| leaving.at < start);
        leavings.iter().zip(self.places[first..].iter().copied())
    }

    fn bytes(&self, start: u64, end: u64) -> Result<Vec<u8>, Reason> {
        let bytes =
            self.file.image.bytes(start, end - start).filter(|bytes| bytes.len() as u64 <= MAX_DISPLACED);
        bytes.map(<[u8]>::to_vec).ok_or(Reason::NoRoomForJump { at: start })
    }

    /// Whether all jump targets and landing pads in a function or part are known. Fails where it is
    /// unknown whether a jump leaves the function.
    fn is_known(&self, n: usize) -> Result<bool, Reason> {
        let (start, end) = (self.functions[n].address.0, self.end(n));
        let stays = |at: u64| match !self.file.rows.is_bare(at) && self.file.frames.contains_key(&start) {
            true => Ok(()),
            false => Err(Reason::UnresolvedJump { at }),
        };
        let unresolved = self.file.branches.unresolved(start, end);
        unresolved.map_or(Ok(()), stays)?;
        let leavings = self.file.branches.leavings(start, end).iter();
        leavings
            .filter(|leaving| leaving.to == To::PointerOrWithin)
            .try_for_each(|leaving| stays(leaving.at))?;
        let is_resolved = unresolved.is_none() && !self.file.computed_into.contains_key(&n);
        Ok(is_resolved && self.file.rows.unread.binary_search(&start).is_err())
    }

    /// Returns all regions of a function or part that jumps displace.
    fn regions(&self, n: usize, entry: Option<Region>, is_known: bool) -> Result<Vec<Region>, Reason> {
        let (start, end) = (self.functions[n].address.0, self.end(n));
        let mut leavings = Vec::new();
        for (leaving, place) in self.leavings(start, end) {
            match leaving.to {
                To::Caller => leavings.push(leaving),
                // Tail calls stay as they are.
                To::Pointer | To::PointerOrWithin => {}
                To::Oddly => return Err(Reason::OddJump { at: leaving.at }),
                To::If(_) | To::Address(_) => match place {
                    JumpTarget::Entry => {}
                    JumpTarget::Inside(to) if self.is_part(n) || self.is_part(to) => {}
                    JumpTarget::Inside(_) => {
                        return Err(Reason::JumpsInto { at: leaving.at });
                    }
                    JumpTarget::Nowhere => {
                        return Err(Reason::JumpsNowhere { at: leaving.at });
                    }
                },
            }
        }
        let limit = match self.functions.get(n + 1) {
            Some(next) => next.form().map_or(next.address, |form| form.address().min(next.address)).0,
            None => u64::MAX,
        };
        let mut regions = Vec::from_iter(entry);
        for leaving in leavings {
            if let Some(region) = regions.last_mut().filter(|region| leaving.at < region.end) {
                region.leaves.push(leaving.at);
            } else if let Some(region) = self.region(leaving, n, regions.last(), limit, is_known) {
                regions.push(region);
            } else if self.is_of_go(n) || !self.extend(leaving, regions.last_mut(), is_known) {
                return Err(Reason::NoRoomAtExit { at: leaving.at });
            }
        }
        Ok(regions)
    }

    /// Returns the region of an exit alone.
    fn region(
        &self,
        leaving: &Leaving,
        n: usize,
        before: Option<&Region>,
        limit: u64,
        is_known: bool,
    ) -> Option<Region> {
        let (start, of_go) = (self.functions[n].address.0, self.is_of_go(n));
        let free = before.map_or(start, |before| before.free);
        let end = leaving.end();
        let padding = self.padding(end, limit);
        let may_begin =
            |at: &u64| *at >= free && end - at <= MAX_DISPLACED && (*at == leaving.at || is_known);
        let room = |at: u64| match of_go {
            true => go_exits::room(self.file.image.tail(at, leaving.at - at)),
            false => Some(Room::Jump),
        };
        let gives_way = |at: u64| {
            let behind = (at + JUMP).max(end);
            let has_room = end + padding >= at + JUMP && at % PAGE <= PAGE - JUMP;
            let room = room(at).filter(|_| has_room && !self.is_landed_in(at, behind))?;
            Some((at, room == Room::BeforePop))
        };
        let (start, keeps_pop) = leaving.starts().take_while(may_begin).find_map(gives_way)?;
        Some(Region { start, end, free: (start + JUMP).max(end), leaves: vec![leaving.at], keeps_pop })
    }

    fn is_of_go(&self, n: usize) -> bool {
        self.functions[n].form().is_some_and(SiteForm::is_of_go)
    }

    /// Adds an exit to the region directly in front of it; false if that cannot be done.
    fn extend(&self, leaving: &Leaving, before: Option<&mut Region>, is_known: bool) -> bool {
        let Some(before) = before.filter(|_| is_known) else { return false };
        let is_next = leaving.starts().any(|at| at == before.end);
        let end = leaving.end();
        let returns = self.last_is_call(before);
        if !is_next || returns || end - before.start > MAX_DISPLACED || self.is_landed_in(before.start, end) {
            return false;
        }
        before.end = end;
        before.free = before.free.max(end);
        before.leaves.push(leaving.at);
        true
    }

    /// Whether the last instruction of a region is a call, which returns behind it.
    fn last_is_call(&self, region: &Region) -> bool {
        let code = self.file.image.tail(region.start, region.end - region.start);
        let last = decoder(code, region.start).into_iter().last();
        last.is_none_or(|last| matches!(last.flow_control(), FlowControl::Call | FlowControl::IndirectCall))
    }

    /// Whether a branch lands behind the first of these bytes.
    fn is_landed_in(&self, start: u64, end: u64) -> bool {
        self.file.branches.behind(start, end - start).is_some()
    }

    /// Number of bytes of padding, as far as a jump needs them.
    fn padding(&self, from: u64, limit: u64) -> u64 {
        let bytes = self.file.image.tail(from, limit.saturating_sub(from).min(JUMP + MAX_DISPLACED));
        let filler = bytes.iter().take_while(|byte| **byte == 0xCC).count();
        filler.max(nops::run(bytes)) as u64
    }
}

/// Offsets of the leaving instructions in a region.
fn offsets(region: &Region) -> Vec<u8> {
    region.leaves.iter().map(|at| (at - region.start) as u8).collect()
}
