//! Functions that are chosen when the program is linked at run time (IFUNC). The symbol has the
//! address of a resolver, which takes the addresses of the functions that it may choose. A user who
//! names the symbol means those functions.

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::address::Svma;
use crate::binary::Resolver;
use crate::code::decode::decoder;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::symbols::Symbol;
use crate::function::Function;

/// Maximum number of bytes of a resolver that are decoded.
const MAX_DECODED: u64 = 4096;

/// Returns the resolvers, and gives the functions that they may choose the names of their symbols.
/// `symbols` and `functions` are in address order.
pub(crate) fn find(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    symbols: &[Symbol<'_>],
    functions: &mut [Function],
) -> Vec<Resolver> {
    let mut found = Vec::new();
    for symbols in symbols.chunk_by(|a, b| a.address == b.address) {
        let chosen = symbols.iter().filter(|symbol| symbol.is_chosen());
        let mut names: Vec<String> =
            chosen.map(|symbol| calltap_names::printable_bytes(symbol.name)).collect();
        if names.is_empty() {
            continue;
        }
        names.sort_unstable();
        names.dedup();
        let address = symbols[0].address;
        let next = functions.partition_point(|function| function.address.0 <= address);
        let end = functions.get(next).map_or(u64::MAX, |next| next.address.0);
        let mut choices = taken(image, dynamic, address, end - address);
        choices.sort_unstable();
        choices.dedup();
        choices.retain(|choice| name(functions, *choice, &names));
        let choices = choices.into_iter().map(Svma).collect();
        found.push(Resolver { address: Svma(address), names, choices });
    }
    found
}

/// Gives the function that begins at `address` further names; false if none begins there.
fn name(functions: &mut [Function], address: u64, names: &[String]) -> bool {
    let Ok(n) = functions.binary_search_by_key(&Svma(address), |function| function.address) else {
        return false;
    };
    let Function { name, aliases, .. } = &mut functions[n];
    aliases.extend(names.iter().filter(|&new| new != name).cloned());
    aliases.sort_unstable();
    aliases.dedup();
    true
}

/// Returns the addresses of code that the instructions of a range take.
fn taken(image: &Image<'_>, dynamic: &Dynamic<'_>, start: u64, length: u64) -> Vec<u64> {
    let code = image.tail(start, length.min(MAX_DECODED));
    let mut decoder = decoder(code, start);
    let address = |instruction: Instruction| {
        if instruction.is_ip_rel_memory_operand() {
            let at = instruction.ip_rel_memory_address();
            return if instruction.mnemonic() == Mnemonic::Lea {
                Some(at)
            } else {
                dynamic.pointer_at(image, at)
            };
        }
        let is_immediate = matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
        );
        (instruction.mnemonic() == Mnemonic::Mov && is_immediate).then(|| instruction.immediate(1))
    };
    decoder.iter().filter_map(address).filter(|at| *at != start && image.is_code(*at)).collect()
}
