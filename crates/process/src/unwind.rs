//! The open calls of a stopped thread by unwinding information: all of them, up to the first frame
//! of the thread, or none.
//!
//! Used only if the words of a stack are inconclusive: a large frame contains stale return
//! addresses.

use crate::memory::maps::Region;
use crate::ptrace::threads::StoppedThread;
use crate::target::TextSegment;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};
use object::read::ReadCache;
use object::{Object, ObjectSection};
use std::fs::File;

/// Maximum number of frames.
const MAX_FRAMES: usize = 1000;
const WORD: usize = 8;
/// Index of rip in the registers, behind the others.
const RETURN: usize = 16;
const CFA: usize = X86_64::RSP.0 as usize;

/// Bytes of a section.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;
/// Unwinding information of a range of code.
pub type Description<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// The unwinding information of all files that a process has mapped.
pub struct Unwinder {
    modules: Vec<Module>,
}

/// The unwinding information of one file.
pub struct Module {
    /// Range of the file's text in the process.
    text: (u64, u64),
    /// Difference between run-time and link-time addresses.
    pub bias: u64,
    /// Contents and link-time address of `.eh_frame`.
    frames: (Vec<u8>, u64),
    index: (Vec<u8>, u64),
}

impl Unwinder {
    /// Reads the unwinding information of a process.
    pub fn new(pid: u32, regions: &[Region]) -> Unwinder {
        let text = regions.iter().filter(|region| region.executable && region.file.1 != 0);
        let module = |region: &Region| Module::read(&region.open(pid).ok()?, region);
        Unwinder { modules: text.filter_map(module).collect() }
    }

    /// Returns a thread's program counter and the return addresses of its open calls; `stack` is
    /// the memory from its stack pointer up. None if unwinding does not reach the first frame: code
    /// without unwinding information, a signal handler, a frame of calltap's.
    pub fn frames(&self, thread: &StoppedThread, stack: &[u8]) -> Option<Vec<u64>> {
        let regs = &thread.regs;
        let mut registers = [
            regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8, regs.r9,
            regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
        ];
        let word = |at: u64| {
            let from = usize::try_from(at.checked_sub(regs.rsp & !7)?).ok()?;
            Some(u64::from_le_bytes(*stack.get(from..)?.first_chunk::<WORD>()?))
        };
        let mut found = vec![regs.rip];
        while found.len() < MAX_FRAMES {
            // A call may be the last instruction of its function.
            let at = registers[RETURN] - u64::from(found.len() > 1);
            let row = self.row(at)?;
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    registers.get(register.0 as usize)?.wrapping_add_signed(*offset)
                }
                CfaRule::Expression(_) => return None,
            };
            let mut next = registers;
            next[CFA] = cfa;
            for (number, value) in next.iter_mut().enumerate() {
                match row.register(Register(number as u16)) {
                    Some(RegisterRule::Offset(offset)) => *value = word(cfa.wrapping_add_signed(offset))?,
                    Some(RegisterRule::ValOffset(offset)) => *value = cfa.wrapping_add_signed(offset),
                    Some(RegisterRule::Register(other)) => *value = *registers.get(other.0 as usize)?,
                    // A frame without caller: the thread began there.
                    Some(RegisterRule::Undefined) if number == RETURN => return Some(found),
                    None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => {}
                    _ => return None,
                }
            }
            // A stack grows downwards: a caller's frame that is not above is invalid.
            if cfa <= registers[CFA] {
                return None;
            }
            registers = next;
            found.push(registers[RETURN]);
        }
        None
    }

    fn row(&self, at: u64) -> Option<UnwindTableRow<usize>> {
        let module = self.modules.iter().find(|module| (module.text.0..module.text.1).contains(&at))?;
        module.unwind(at, |_, _, row| row.clone())
    }
}

impl Module {
    /// Reads the unwinding information of the file that a region maps.
    pub fn read(file: &File, region: &Region) -> Option<Module> {
        let data = ReadCache::new(file);
        let text = TextSegment::of(&data)?;
        let at = text.address.wrapping_sub(text.offset).wrapping_add(region.offset);
        let object = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&data).ok()?;
        let section = |name| {
            let section = object.section_by_name(name)?;
            Some((section.data().ok()?.to_vec(), section.address()))
        };
        let (frames, index) = (section(".eh_frame")?, section(".eh_frame_hdr")?);
        Some(Module { text: (region.start, region.end), bias: region.start.wrapping_sub(at), frames, index })
    }

    /// Calls `ask` with the unwinding rules for an address in the process.
    pub fn unwind<T>(
        &self,
        at: u64,
        ask: impl FnOnce(&EhFrame<Bytes<'_>>, &Description<'_>, &UnwindTableRow<usize>) -> T,
    ) -> Option<T> {
        let at = at.wrapping_sub(self.bias);
        let bases = BaseAddresses::default().set_eh_frame(self.frames.1).set_eh_frame_hdr(self.index.1);
        let frames: EhFrame<Bytes<'_>> = EhFrame::new(&self.frames.0, LittleEndian);
        let index = EhFrameHdr::new(&self.index.0, LittleEndian).parse(&bases, WORD as u8).ok()?;
        let found = index.table()?.fde_for_address(&frames, &bases, at, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = found.unwind_info_for_address(&frames, &bases, &mut context, at).ok()?;
        Some(ask(&frames, &found, row))
    }
}
