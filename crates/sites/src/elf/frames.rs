//! Beginnings of functions from unwinding information, for binaries without symbols.

use std::collections::BTreeMap;

use gimli::{
    BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, PartialFrameDescriptionEntry, Register, UnwindSection, X86_64,
};
use object::elf;

use super::entries::DISTANCE;
use super::image::{Image, Section};
use super::plt;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;
type Partial<'b, 'd> = PartialFrameDescriptionEntry<'b, EhFrame<Bytes<'d>>, Bytes<'d>>;
type Cie<'d> = gimli::CommonInformationEntry<Bytes<'d>>;

/// Code range of one frame description.
pub(crate) struct Frame {
    pub address: u64,
    pub size: u64,
    /// Whether calls enter the code. Otherwise it is a part that jumps enter, with a frame already
    /// set up.
    pub called: bool,
}

/// Rule for the canonical frame address: register and offset. None for an expression.
#[derive(Clone, Copy, PartialEq)]
struct Cfa(Option<(Register, u64)>);

/// Rule at a function's first byte, where only the return address is on the stack.
const CALLED: Cfa = Cfa(Some((X86_64::RSP, 8)));

/// The reason why unwinding information cannot be read.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it lies beyond the end of the file")]
    SectionBeyondEnd,
    #[error("its table lies beyond the end of the file")]
    TableBeyondEnd,
    #[error(transparent)]
    Entry(#[from] gimli::Error),
}

/// Returns the frames in executable memory, by address, except those at `settled` addresses. PLT
/// stubs and signal trampolines are left out.
pub(crate) fn frames(
    image: &Image<'_>,
    mut settled: impl FnMut(u64) -> bool,
    complaints: &mut Vec<String>,
) -> Vec<Frame> {
    let plts = image.sections.iter().filter(|section| section.is_plt()).take(16).copied().collect();
    let mut reader = Reader { image, settled: &mut settled, plts, cies: BTreeMap::new(), frames: Vec::new() };
    let result = match (image.section(b".eh_frame"), image.program_header(elf::PT_GNU_EH_FRAME)) {
        (Some(section), _) => match image.section_data(section) {
            Some(bytes) => reader.read_all(section.address, bytes),
            None => Err(Broken::SectionBeyondEnd),
        },
        (None, Some(header)) => match image.program_data(header) {
            Some(bytes) => reader.read_table(header.p_vaddr.get(object::LittleEndian), bytes),
            None => Err(Broken::TableBeyondEnd),
        },
        (None, None) => Ok(()),
    };
    if let Err(what) = result {
        complaints.push(format!("the unwinding information is broken: {what}"));
    }
    let mut frames = reader.frames;
    frames.sort_by_key(|frame| (frame.address, !frame.called));
    frames.dedup_by_key(|frame| frame.address);
    frames
}

struct Reader<'a, 'd> {
    image: &'a Image<'d>,
    settled: &'a mut dyn FnMut(u64) -> bool,
    plts: Vec<Section<'d>>,
    /// Common entries, each with the rule that it sets up. Only a few serve all frames; keeping
    /// them also bounds the work on hostile files.
    cies: BTreeMap<usize, gimli::Result<(Cie<'d>, Cfa)>>,
    frames: Vec<Frame>,
}

impl<'d> Reader<'_, 'd> {
    /// Reads all entries of the section.
    fn read_all(&mut self, address: u64, bytes: &'d [u8]) -> Result<(), Broken> {
        let bases = BaseAddresses::default().set_eh_frame(address);
        let section = EhFrame::new(bytes, LittleEndian);
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next()? {
            if let CieOrFde::Fde(partial) = entry {
                // Symbols settle nearly all addresses of a program that is not stripped, so most
                // frames need no parsing.
                let start = self.start(address, bytes, &partial);
                if start.is_some_and(|start| (self.settled)(start)) {
                    continue;
                }
                let fde = partial.parse(|section, bases, offset| self.cie(section, bases, offset.0));
                // An unreadable frame does not affect the others.
                let Ok(fde) = fde else { continue };
                self.add(&section, &bases, &fde);
            }
        }
        Ok(())
    }

    /// Returns the address of a frame, if it has the usual encoding.
    fn start(&self, section: u64, bytes: &[u8], fde: &Partial<'_, 'd>) -> Option<u64> {
        let (cie, _) = self.cies.get(&fde.cie_offset().0)?.as_ref().ok()?;
        let [length, _, distance] = bytes.get(fde.offset()..)?.as_chunks::<4>().0.first_chunk()?;
        // This length marks the 64-bit form.
        let usual = cie.fde_address_encoding() == Some(DISTANCE) && *length != [0xff; 4];
        let at = section.wrapping_add(fde.offset() as u64 + 8);
        usual.then(|| at.wrapping_add_signed(i32::from_le_bytes(*distance).into()))
    }

    /// Reads the entries of the search table, which needs no section headers.
    fn read_table(&mut self, address: u64, bytes: &'d [u8]) -> Result<(), Broken> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(address);
        let header = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8)?;
        let start = header.eh_frame_ptr().direct()?;
        let bases = bases.set_eh_frame(start);
        let bytes = self.image.tail(start, u64::MAX);
        let section = EhFrame::new(bytes, LittleEndian);
        let Some(table) = header.table() else { return self.read_all(start, bytes) };
        let mut entries = table.iter(&bases);
        while let Some((_, pointer)) = entries.next()? {
            let offset = pointer.direct()?.checked_sub(start);
            let Some(offset) = offset.and_then(|offset| usize::try_from(offset).ok()) else { continue };
            let fde = section.fde_from_offset(&bases, offset.into(), |section, bases, offset| {
                self.cie(section, bases, offset.0)
            });
            let Ok(fde) = fde else { continue };
            self.add(&section, &bases, &fde);
        }
        Ok(())
    }

    fn cie(
        &mut self,
        section: &EhFrame<Bytes<'d>>,
        bases: &BaseAddresses,
        offset: usize,
    ) -> gimli::Result<Cie<'d>> {
        let read = || {
            let cie = section.cie_from_offset(bases, offset.into())?;
            let cfa = first_row(cie.instructions(section, bases), Cfa(None), cie.data_alignment_factor());
            Ok((cie, cfa))
        };
        self.cies
            .entry(offset)
            .or_insert_with(read)
            .as_ref()
            .map(|(cie, _)| cie.clone())
            .map_err(|&error| error)
    }

    fn add(
        &mut self,
        section: &EhFrame<Bytes<'d>>,
        bases: &BaseAddresses,
        fde: &FrameDescriptionEntry<Bytes<'d>>,
    ) {
        let (address, size) = (fde.initial_address(), fde.len());
        if (self.settled)(address)
            || fde.is_signal_trampoline()
            || size == 0
            || !self.image.is_code(address)
            || self.is_plt(address)
        {
            return;
        }
        let Some(Ok((cie, initial))) = self.cies.get(&fde.cie().offset()) else { return };
        let cfa = first_row(fde.instructions(section, bases), *initial, cie.data_alignment_factor());
        self.frames.push(Frame { address, size, called: cfa == CALLED });
    }

    fn is_plt(&self, address: u64) -> bool {
        if self.image.sections.is_empty() {
            return plt::is_stub(self.image, address);
        }
        self.plts.iter().any(|section| section.contains(address))
    }
}

/// Returns the rule at the first byte: the effect of the instructions before the first advance.
fn first_row<'d>(
    mut instructions: gimli::CallFrameInstructionIter<'_, Bytes<'d>>,
    mut cfa: Cfa,
    factor: i64,
) -> Cfa {
    let scale = |factored: i64| u64::try_from(factored.wrapping_mul(factor)).ok();
    // Compilers need two or three instructions; a hostile table may name one endless list many
    // times.
    for _ in 0..64 {
        let Ok(Some(instruction)) = instructions.next() else { break };
        let register = cfa.0.map(|(register, _)| register);
        cfa = Cfa(match instruction {
            CallFrameInstruction::SetLoc { .. } | CallFrameInstruction::AdvanceLoc { .. } => break,
            CallFrameInstruction::DefCfa { register, offset } => Some((register, offset)),
            CallFrameInstruction::DefCfaSf { register, factored_offset } => {
                scale(factored_offset).map(|offset| (register, offset))
            }
            CallFrameInstruction::DefCfaRegister { register } => cfa.0.map(|(_, offset)| (register, offset)),
            CallFrameInstruction::DefCfaOffset { offset } => register.map(|register| (register, offset)),
            CallFrameInstruction::DefCfaOffsetSf { factored_offset } => register.zip(scale(factored_offset)),
            CallFrameInstruction::DefCfaExpression { .. } => None,
            // The outermost frame of a stack has no return address: a new thread begins there, as
            // behind the system call of clone3.
            CallFrameInstruction::Undefined { register: X86_64::RA } => return Cfa(None),
            _ => cfa.0,
        });
    }
    cfa
}
