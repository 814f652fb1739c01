//! The parts of an instruction set on which patching depends, as types: each is compiled, and can
//! be tested, on every machine.
//!
//! An implementation says how a site is encoded, not how it is written while threads execute it.
//! For [`X86_64`] that is in `calltap-patch`. For [`Aarch64`] there is only the protocol, and a
//! model that proves it (`crates/patch/tests/aarch64.rs`), without hooks and stubs.

/// An instruction set.
pub trait Isa {
    /// Bytes of the jump that a site becomes.
    type Jump: AsRef<[u8]> + Copy + PartialEq + core::fmt::Debug;
    /// A no-op as long as a jump.
    const NOP: Self::Jump;
    /// Bytes of a jump.
    const JUMP: u64 = size_of::<Self::Jump>() as u64;
    /// Whether a site is stored and fetched as a whole. Otherwise it is written byte by byte,
    /// through transitional instructions.
    const IS_WHOLE: bool;

    /// Encodes the jump from one address to another; None if it does not reach.
    fn jump(at: u64, to: u64) -> Option<Self::Jump>;
}

/// Sites of five bytes at any address, `jmp rel32` while enabled.
#[derive(Clone, Copy, Debug)]
pub enum X86_64 {}

impl Isa for X86_64 {
    type Jump = [u8; 5];
    /// `nop`, with four prefixes.
    const NOP: [u8; 5] = [0x66, 0x66, 0x66, 0x66, 0x90];
    const IS_WHOLE: bool = false;

    #[inline]
    fn jump(at: u64, to: u64) -> Option<[u8; 5]> {
        let [a, b, c, d] = relative(at.wrapping_add(Self::JUMP), to)?;
        Some([0xE9, a, b, c, d])
    }
}

/// Returns the operand `rel32` of an instruction that ends at `next`; None if it does not reach.
#[inline]
pub fn relative(next: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(next) as i64).ok().map(i32::to_le_bytes)
}

/// Sites of one instruction, `B` while enabled.
#[derive(Clone, Copy, Debug)]
pub enum Aarch64 {}

impl Isa for Aarch64 {
    type Jump = [u8; 4];
    /// `NOP`
    const NOP: [u8; 4] = 0xD503_201F_u32.to_le_bytes();
    const IS_WHOLE: bool = true;

    fn jump(at: u64, to: u64) -> Option<[u8; 4]> {
        /// Bits of the operand, which counts instructions.
        const BITS: u32 = 26;
        let distance = to.wrapping_sub(at) as i64;
        let reach = -(1 << (BITS + 1))..1 << (BITS + 1);
        let operand = (distance >> 2) as u32 & ((1 << BITS) - 1);
        (distance % 4 == 0 && reach.contains(&distance)).then(|| (0x1400_0000 | operand).to_le_bytes())
    }
}
