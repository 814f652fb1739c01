//! Landing pads of exceptions, from a function's language-specific data (`.gcc_except_table`) as
//! gcc, clang and rustc write it.

use gimli::{DwEhPe, constants};

/// The exception table of a function.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Table {
    /// Landing pads.
    pub pads: Vec<u64>,
    /// Code from which exceptions are expected: address and length.
    pub throwing: Vec<(u64, u64)>,
}

/// Reads the table of the function that begins at `start` from its data `lsda` (more bytes may
/// follow). Returns `None` for another encoding. `budget`: number of call-site records that may
/// still be read, for all functions together; in a hostile file all functions may name one long
/// table.
pub(crate) fn table(lsda: &[u8], start: u64, budget: &mut u64) -> Option<Table> {
    let mut reader = Reader(lsda);
    // No compiler writes a separate base for landing pads on this machine.
    if DwEhPe(reader.byte()?) != constants::DW_EH_PE_omit {
        return None;
    }
    if DwEhPe(reader.byte()?) != constants::DW_EH_PE_omit {
        reader.leb()?;
    }
    let encoding = DwEhPe(reader.byte()?);
    let length = usize::try_from(reader.leb()?).ok()?;
    let mut calls = Reader(reader.0.get(..length)?);
    let mut table = Table::default();
    while !calls.0.is_empty() {
        *budget = budget.checked_sub(1)?;
        let begins = calls.number(encoding)?;
        let length = calls.number(encoding)?;
        let pad = calls.number(encoding)?;
        let _action = calls.leb()?;
        if pad != 0 {
            table.pads.push(start.wrapping_add(pad));
            table.throwing.push((start.wrapping_add(begins), length));
        }
    }
    Some(table)
}

struct Reader<'d>(&'d [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn leb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn number(&mut self, encoding: DwEhPe) -> Option<u64> {
        match encoding {
            constants::DW_EH_PE_uleb128 => self.leb(),
            constants::DW_EH_PE_udata4 => {
                let (bytes, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Some(u32::from_le_bytes(*bytes).into())
            }
            constants::DW_EH_PE_udata8 => {
                let (bytes, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Some(u64::from_le_bytes(*bytes))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landing_pads_are_read_and_broken_tables_skipped() {
        // Two call sites with a landing pad, one without; then types.
        let bytes = [0xFF, 0x9B, 0x15, 0x01, 0x0C, 0x10, 5, 0x40, 1, 0x20, 5, 0, 0, 0x30, 5, 0x88, 0x01, 0];
        let whole = [&bytes[..], &[0; 8]].concat();
        let mut counted = whole.clone();
        counted[4] = 13;
        let pads = |data, calls| Some(table(data, 0x1000, &mut { calls })?.pads);
        assert_eq!(pads(&counted, 3), Some(vec![0x1040, 0x1088]));
        let found = table(&counted, 0x1000, &mut 3).map(|found| found.throwing);
        assert_eq!(found, Some(vec![(0x1010, 5), (0x1030, 5)]));
        assert_eq!(pads(&counted, 2), None, "too many calls");
        assert_eq!(pads(&counted[..10], 3), None);
        assert_eq!(pads(&[0x00], 3), None);
    }
}
