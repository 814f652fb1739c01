//! The return addresses of calls in a chunk, each stored once.

use super::symbol::Symbol;

/// Number of bits of a slot's index in the map from an address to its place. A collision replaces
/// the slot: then an address is in the list twice.
const SLOT_BITS: u32 = 10;

/// The callers of a chunk.
#[derive(Default)]
pub(super) struct Callers {
    /// Return addresses, in the order of their first call.
    list: Vec<u64>,
    /// The symbol that was last spelt out for each.
    usual: Vec<Symbol>,
    slots: Option<Box<[Slot; 1 << SLOT_BITS]>>,
}

/// A slot of the map, with the address beside its place: most calls look no further.
#[derive(Clone, Copy, Default)]
struct Slot {
    address: u64,
    /// Place in the list plus one; 0: empty.
    place: u64,
}

impl Callers {
    /// Returns the place of `address` in the list, adding it if it is new. A symbol that contains a
    /// new place cannot have been predicted, so the decoder reads it spelt out.
    #[inline(always)]
    pub(super) fn place(&mut self, address: u64) -> u64 {
        let slot = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_BITS)) as usize;
        match &self.slots {
            Some(slots) if (slots[slot].address == address) & (slots[slot].place != 0) => {
                slots[slot].place - 1
            }
            _ => self.add(address, slot),
        }
    }

    /// Adds an address to the list and the map.
    #[inline(never)]
    fn add(&mut self, address: u64, slot: usize) -> u64 {
        let place = self.list.len() as u64;
        self.list.push(address);
        self.usual.push(0);
        let slots = self.slots.get_or_insert_with(|| Box::new([Slot::default(); 1 << SLOT_BITS]));
        slots[slot] = Slot { address, place: place + 1 };
        place
    }

    /// Returns the symbol that was last spelt out for the caller at a place.
    pub(super) fn usual(&mut self, place: u64) -> &mut Symbol {
        &mut self.usual[place as usize]
    }

    /// Returns the number of addresses.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns the addresses in order, for the next chunk.
    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, u64> {
        self.usual.clear();
        if let Some(slots) = self.slots.as_mut().filter(|_| !self.list.is_empty()) {
            slots.fill(Slot::default());
        }
        self.list.drain(..)
    }
}
