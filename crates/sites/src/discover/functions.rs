//! The list of functions: symbols and frames merged, one entry per address.

use super::lookup::Lookup;
use crate::address::Svma;
use crate::elf::frames::Frame;
use crate::elf::symbols::{Symbol, cold_parent};
use crate::function::{Function, Role, Verdict};
use calltap_names::{printable, printable_bytes};

/// Returns the functions that have a symbol, in address order, none with a site yet. `symbols` are
/// sorted.
///
/// An entry that is not a function of its own already has a verdict; see [`is_whole`].
pub(crate) fn named(symbols: &[Symbol<'_>]) -> Vec<Function> {
    let mut functions = Vec::with_capacity(symbols.len());
    functions.extend(symbols.chunk_by(|a, b| a.address == b.address).map(function));
    functions
}

/// Suffix of a resolver without a name of its own, behind the name of the function that it chooses;
/// as gcc names it.
const RESOLVER: &str = ".resolver";

/// Whether an entry of a fresh list is a function, not a part of one.
pub(crate) fn is_whole(function: &Function) -> bool {
    function.verdict == Verdict::Open
}

/// Whether `address` lies in a function whose size the symbols state, so that no frame is needed
/// for it.
pub(crate) fn is_settled(functions: &mut Lookup<'_>, address: u64) -> bool {
    functions.before(address).is_some_and(|(_, function)| address - function.address.0 < function.size)
}

/// Completes a list made from symbols with unwinding information: sizes, and functions without a
/// symbol. `frames` are sorted. `entry` is the file's entry point.
pub(crate) fn add_frames(functions: &mut Vec<Function>, frames: &[Frame], entry: Svma, module: &str) {
    for function in functions.iter_mut().filter(|function| function.size == 0) {
        let frame = frames.binary_search_by_key(&function.address.0, |frame| frame.address);
        function.size = frame.ok().and_then(|index| frames.get(index)).map_or(0, |frame| frame.size);
    }
    let unnamed = unnamed(functions, frames, entry, module);
    functions.extend(unnamed);
    functions.sort_by_key(|function| function.address);
}

fn function(names: &[Symbol<'_>]) -> Function {
    let best = &names[0];
    // A resolver's symbol has the name of the function that it chooses.
    let own = names.iter().take_while(|symbol| !symbol.is_chosen()).count();
    let name = if own == 0 { text(best.name) + RESOLVER } else { text(best.name) };
    let role = cold_parent(best.name).map_or(Role::Function, |parent| Role::ColdPart(Some(text(parent))));
    Function {
        name,
        aliases: aliases(best.name, names.get(1..own).unwrap_or_default()),
        address: Svma(best.address),
        size: names.iter().map(|symbol| symbol.size).find(|&size| size != 0).unwrap_or(0),
        verdict: role.verdict(),
        role,
        returns: Default::default(),
        poll: None,
        watch: None,
    }
}

fn aliases(best: &[u8], others: &[Symbol<'_>]) -> Vec<String> {
    if others.is_empty() {
        return Vec::new();
    }
    let mut aliases: Vec<&[u8]> =
        others.iter().map(|symbol| symbol.name).filter(|&name| name != best).collect();
    aliases.sort_unstable();
    aliases.dedup();
    aliases.into_iter().map(text).collect()
}

/// Functions for the frames that no symbol covers: all of a stripped binary's, and the local
/// functions' of a partly stripped one.
fn unnamed(functions: &[Function], frames: &[Frame], entry: Svma, module: &str) -> Vec<Function> {
    let mut named = Lookup::new(functions);
    let mut covered =
        |frame: &Frame| named.at(frame.address).is_some() || is_settled(&mut named, frame.address);
    // The entry point begins a stack, as parts may, but no function jumps to it.
    let role = |frame: &Frame| match frame.called || frame.address == entry.0 {
        true => Role::Function,
        false => Role::ColdPart(None),
    };
    let function = |frame: &Frame| Function {
        name: format!("{module}+{:#x}", frame.address),
        aliases: Vec::new(),
        address: Svma(frame.address),
        size: frame.size,
        verdict: role(frame).verdict(),
        role: role(frame),
        returns: Default::default(),
        poll: None,
        watch: None,
    };
    frames.iter().filter(|frame| !covered(frame)).map(function).collect()
}

/// Converts a name. Nearly every name is ASCII, and the check for that is much faster than a lossy
/// conversion.
fn text(name: &[u8]) -> String {
    str::from_utf8(name).map_or_else(|_| printable_bytes(name), |name| printable(name).into_owned())
}
