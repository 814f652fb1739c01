//! Where the code is that an entry of the unwinding information describes, read without parsing it: a large file has hundreds of thousands.

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, DwEhPe, EhFrame, EndianSlice, LittleEndian, PartialFrameDescriptionEntry, UnwindSection,
    constants,
};

type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// How nearly every entry states its address: as a signed 32-bit distance from that statement.
pub(crate) const DISTANCE: DwEhPe = DwEhPe(constants::DW_EH_PE_pcrel.0 | constants::DW_EH_PE_sdata4.0);

/// What entries have in common that name the same entry, by its offset.
#[derive(Default)]
pub(crate) struct Common(BTreeMap<usize, Option<Shape>>);

#[derive(Clone, Copy)]
struct Shape {
    /// Is an address stated in the usual way?
    is_usual: bool,
    /// May there be data about where exceptions land?
    has_landings: bool,
}

impl Common {
    /// The code of an entry, and whether exceptions may land there. None if it is stated in an unusual way. `section`: the address of the unwinding information.
    pub fn code<'d>(
        &mut self,
        frames: &EhFrame<Bytes<'d>>,
        (bases, section): (&BaseAddresses, u64),
        bytes: &[u8],
        entry: &PartialFrameDescriptionEntry<'_, EhFrame<Bytes<'d>>, Bytes<'d>>,
    ) -> Option<(Range<u64>, bool)> {
        let offset = entry.cie_offset();
        let shape = self.0.entry(offset.0).or_insert_with(|| {
            let common = frames.cie_from_offset(bases, offset).ok()?;
            let is_usual = common.fde_address_encoding() == Some(DISTANCE);
            Some(Shape { is_usual, has_landings: common.has_lsda() })
        });
        let shape = shape.filter(|shape| shape.is_usual)?;
        let [length, _, distance, size] = bytes.get(entry.offset()..)?.as_chunks::<4>().0.first_chunk()?;
        // This length says that the form is the 64-bit one.
        if *length == [0xff; 4] {
            return None;
        }
        let at = section.wrapping_add(entry.offset() as u64 + 8);
        let start = at.wrapping_add_signed(i32::from_le_bytes(*distance).into());
        Some((start..start.wrapping_add(u32::from_le_bytes(*size).into()), shape.has_landings))
    }
}
