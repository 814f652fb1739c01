//! Address ranges of unwinding entries (FDEs), read without parsing each of them: a large file has
//! hundreds of thousands.

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, DwEhPe, EhFrame, EndianSlice, LittleEndian, PartialFrameDescriptionEntry, UnwindSection,
    constants,
};

type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// Address encoding of nearly all entries: a signed 32-bit distance from the field itself.
pub(crate) const DISTANCE: DwEhPe = DwEhPe(constants::DW_EH_PE_pcrel.0 | constants::DW_EH_PE_sdata4.0);

/// Properties of common entries (CIEs), by offset.
#[derive(Default)]
pub(crate) struct Common(BTreeMap<usize, Option<Shape>>);

#[derive(Clone, Copy)]
struct Shape {
    /// Whether addresses have the encoding [`DISTANCE`].
    is_usual: bool,
    /// Whether entries may have data about landing pads.
    has_landings: bool,
}

impl Common {
    /// Returns the code range of an entry, and whether it may have landing pads; None if the entry
    /// has another form. `section`: the address of the unwinding information.
    pub(crate) fn code<'d>(
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
        // This length marks the 64-bit form.
        if *length == [0xff; 4] {
            return None;
        }
        let at = section.wrapping_add(entry.offset() as u64 + 8);
        let start = at.wrapping_add_signed(i32::from_le_bytes(*distance).into());
        Some((start..start.wrapping_add(u32::from_le_bytes(*size).into()), shape.has_landings))
    }
}
