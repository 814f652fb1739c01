//! The list of functions: symbols and frames merged, one entry per address.

use std::collections::HashMap;

use super::frames::Frame;
use super::symbols::{Symbol, cold_parent};
use crate::{Function, SiteKind, Svma};

/// Every function in address order, none with a site yet. `symbols` and `frames` are sorted.
///
/// What is no function of its own already has a reason; see [`is_whole`].
pub(super) fn list(symbols: &[Symbol<'_>], frames: &[Frame], module: &str) -> Vec<Function> {
    let sizes: HashMap<u64, u64> = frames.iter().map(|frame| (frame.address, frame.size)).collect();
    let mut functions: Vec<Function> =
        symbols.chunk_by(|a, b| a.address == b.address).map(|names| named(names, &sizes)).collect();
    let unnamed = unnamed(&functions, frames, module);
    functions.extend(unnamed);
    functions.sort_by_key(|function| function.address);
    functions
}

/// Whether it is a function at all, and no part of one (in a fresh list).
pub(super) fn is_whole(function: &Function) -> bool {
    function.reason.is_empty()
}

fn named(names: &[Symbol<'_>], sizes: &HashMap<u64, u64>) -> Function {
    let best = &names[0];
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut aliases: Vec<&[u8]> =
        names.iter().map(|symbol| symbol.name).filter(|&name| name != best.name).collect();
    aliases.sort_unstable();
    aliases.dedup();
    let size = match names.iter().map(|symbol| symbol.size).find(|&size| size != 0) {
        Some(size) => size,
        None => sizes.get(&best.address).copied().unwrap_or(0),
    };
    let reason = match cold_parent(best.name) {
        Some(parent) => format!("cold part of {}, not a function", text(parent)),
        None => String::new(),
    };
    Function {
        name: text(best.name),
        aliases: aliases.into_iter().map(text).collect(),
        address: Svma(best.address),
        size,
        kind: SiteKind::None,
        form: None,
        reason,
    }
}

/// The frames no symbol covers: all of a stripped binary's, the local functions' of a partly stripped one.
fn unnamed(functions: &[Function], frames: &[Frame], module: &str) -> Vec<Function> {
    let covered = |address: u64| {
        let after = functions.partition_point(|function| function.address.0 <= address);
        let before = after.checked_sub(1).and_then(|index| functions.get(index));
        before.is_some_and(|function| {
            let offset = address - function.address.0;
            offset == 0 || offset < function.size
        })
    };
    let function = |frame: &Frame| Function {
        name: format!("{module}+{:#x}", frame.address),
        aliases: Vec::new(),
        address: Svma(frame.address),
        size: frame.size,
        kind: SiteKind::None,
        form: None,
        reason: if frame.called { "" } else { "cold part of a function, not a function" }.to_owned(),
    };
    frames.iter().filter(|frame| !covered(frame.address)).map(function).collect()
}
