//! Functions that were built with room for a call: the kinds of room, and their sites.

use std::collections::HashMap;

use super::ROOM;
use crate::code::nops;
use crate::discover::calls::{self, ProfilingFunctions};
use crate::discover::records::Records;
use crate::discover::xray::{self, Sleds};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::function::{Function, Verdict};
use crate::reason::Reason;
use crate::site::SiteKind;

pub(super) use crate::discover::calls::Candidate;

/// The profiling calls and sleds of a file.
pub(crate) struct Rooms<'a, 'd> {
    pub image: &'a Image<'d>,
    pub dynamic: &'a Dynamic<'d>,
    pub profiling: &'a ProfilingFunctions,
    /// Sleds by the addresses of their functions.
    pub sleds: &'a HashMap<u64, Sleds>,
}

/// The room of one function.
pub(super) struct RoomFacts<'a> {
    rooms: &'a Rooms<'a, 'a>,
    sleds: Option<&'a Sleds>,
    records: &'a Records,
    address: u64,
    /// End of the function's code.
    end: u64,
}

impl Rooms<'_, '_> {
    /// Decides about a function by its room: gives it a site, or the reason why it has none.
    pub(crate) fn decide(&self, function: &mut Function, records: &Records, end: u64) {
        let address = function.address.0;
        let facts = RoomFacts { rooms: self, sleds: self.sleds.get(&address), records, address, end };
        let mut refused = None;
        for (kind, site) in ROOM.iter().filter_map(|find| find(&facts)) {
            match site {
                Ok(form) => {
                    if let Some(sleds) = facts.sleds.filter(|_| kind == SiteKind::Xray) {
                        function.returns = xray::returns(self.image, sleds);
                    }
                    function.verdict = Verdict::Site { kind, form, on_demand: false };
                    return;
                }
                Err(reason) => refused = refused.or(Some((kind, reason))),
            }
        }
        let (kind, reason) = refused.unwrap_or((SiteKind::None, Reason::NoRoom));
        function.verdict = Verdict::Refused { kind, reason, on_demand: false };
    }
}

/// XRay's sled.
pub(super) fn xray(facts: &RoomFacts<'_>) -> Option<Candidate> {
    Some((SiteKind::Xray, xray::entry(facts.rooms.image, facts.address, facts.sleds?)))
}

/// NOPs with a record in `__patchable_function_entries`.
pub(super) fn patchable(facts: &RoomFacts<'_>) -> Option<Candidate> {
    let record = facts.records.patchable?.get();
    Some((SiteKind::Patchable, nops::patchable(facts.rooms.image, facts.address, facts.end, record)))
}

/// A call or NOP with a record in `__mcount_loc`.
pub(super) fn recorded_call(facts: &RoomFacts<'_>) -> Option<Candidate> {
    let record = facts.records.mcount?.get();
    Some((SiteKind::McountLoc, calls::recorded(facts.rooms.image, facts.address, facts.end, record)))
}

/// A call of a profiling function, without a record.
pub(super) fn plain_call(facts: &RoomFacts<'_>) -> Option<Candidate> {
    let Rooms { image, dynamic, profiling, .. } = facts.rooms;
    if profiling.is_empty() {
        return None;
    }
    calls::plain(image, dynamic, profiling, facts.address, facts.end)
}
