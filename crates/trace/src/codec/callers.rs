//! The addresses that functions of a chunk were called from, each stored once.

use super::symbol::Symbol;

/// Slots of the map from an address to its place. It forgets on collision: then an address stands in the list twice.
const SLOT_BITS: u32 = 10;

/// The callers of one chunk.
#[derive(Default)]
pub(super) struct Callers {
    /// In the order of their first call.
    list: Vec<u64>,
    /// What was last spelt out of each.
    usual: Vec<Symbol>,
    slots: Option<Box<[Slot; 1 << SLOT_BITS]>>,
}

/// The address beside its place: most calls look no further.
#[derive(Clone, Copy, Default)]
struct Slot {
    address: u64,
    /// Counted from 1; 0: empty.
    place: u64,
}

impl Callers {
    /// The place of `address` in the list. A new one is added: the symbol that contains its number cannot have been guessed, so the
    /// decoder meets it spelt out.
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

    #[inline(never)]
    fn add(&mut self, address: u64, slot: usize) -> u64 {
        let place = self.list.len() as u64;
        self.list.push(address);
        self.usual.push(0);
        let slots = self.slots.get_or_insert_with(|| Box::new([Slot::default(); 1 << SLOT_BITS]));
        slots[slot] = Slot { address, place: place + 1 };
        place
    }

    /// What was last spelt out of the caller at a place.
    pub(super) fn usual(&mut self, place: u64) -> &mut Symbol {
        &mut self.usual[place as usize]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The addresses in order; leaves none, for the next chunk.
    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, u64> {
        self.usual.clear();
        if let Some(slots) = self.slots.as_mut().filter(|_| !self.list.is_empty()) {
            slots.fill(Slot::default());
        }
        self.list.drain(..)
    }
}
