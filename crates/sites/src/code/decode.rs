//! Decoding of instructions.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Bytes of the longest instruction.
pub(crate) const MAX_INSTRUCTION_LEN: u64 = 15;

/// Returns a decoder of code at an address. It decodes invalid bytes to invalid instructions, and
/// goes on.
pub(crate) fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

/// Returns the instructions of code at an address, up to the first invalid one.
pub(crate) fn instructions(code: &[u8], address: u64) -> impl Iterator<Item = Instruction> + use<'_> {
    decoder(code, address).into_iter().take_while(|instruction| !instruction.is_invalid())
}
