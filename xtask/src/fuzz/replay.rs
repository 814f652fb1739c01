//! What `calltap replay` prints, against what a debugger sees.

use super::truth::{Call, Function, plain};
use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// The names of compared functions.
fn names(functions: &[Function]) -> BTreeSet<&str> {
    functions.iter().filter(|function| function.is_traced).map(|function| &function.name[..]).collect()
}

/// A name without arguments and suffixes of parts.
fn whole(name: &str) -> String {
    let name = name.split('(').next().unwrap_or(name).trim();
    plain(name.split('.').next().unwrap_or(name))
}

/// Lines `function <-caller`: the same calls in the same order, by the same callers.
pub fn compare_callers(replayed: &str, calls: &[Call], functions: &[Function]) -> Result<()> {
    let names = names(functions);
    let lines = replayed.lines().filter(|line| !line.starts_with('#'));
    let seen = lines.filter_map(|line| {
        let (function, caller) = line.rsplit_once(": ")?.1.split_once(" <-")?;
        Some((whole(function), whole(caller)))
    });
    let seen: Vec<(String, String)> = seen.filter(|(function, _)| names.contains(&function[..])).collect();
    for (n, call) in calls.iter().enumerate() {
        let name = &functions[call.function].name;
        let Some((function, caller)) = seen.get(n) else {
            bail!("call {n}: {name} is missing: {} calls instead of {}", seen.len(), calls.len());
        };
        if function != name {
            bail!("call {n}: {function} instead of {name}");
        }
        let known = call.caller.map(|caller| whole(&functions[caller].name));
        if let Some(known) = known.filter(|known| known != caller) {
            bail!("call {n}: {name} is called by {caller} instead of {known}");
        }
    }
    if seen.len() > calls.len() {
        bail!("call {}: {} is too many", calls.len(), seen[calls.len()].0);
    }
    Ok(())
}

/// Lines of the call tree: the same calls in the same order, as deep. (Behind a tail call it depends on the function whether it is still open; so it does where frames
/// were left by other ways than returns.)
pub fn compare_depths(
    replayed: &str,
    calls: &[Call],
    functions: &[Function],
    leaves_frames: bool,
) -> Result<()> {
    let names = names(functions);
    let lines = replayed.lines().filter(|line| !line.starts_with('#'));
    let mut open: Vec<bool> = Vec::new();
    let mut seen = Vec::new();
    for line in lines {
        let Some((_, tree)) = line.rsplit_once('|') else { continue };
        let text = tree.trim();
        let is_entry = text.ends_with("();") || text.ends_with("() {");
        if is_entry {
            let name = whole(text);
            let is_compared = names.contains(&name[..]);
            if is_compared {
                seen.push((name, open.iter().filter(|compared| **compared).count()));
            }
            if text.ends_with('{') {
                open.push(is_compared);
            }
        } else if text.starts_with('}') {
            open.pop();
        }
    }
    let mut slots: Vec<(u64, bool)> = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let name = &functions[call.function].name;
        let Some((function, depth)) = seen.get(n) else {
            bail!("call {n}: {name} is missing: {} calls instead of {}", seen.len(), calls.len());
        };
        if function != name {
            bail!("call {n}: {function} instead of {name}");
        }
        while slots.last().is_some_and(|(slot, _)| *slot < call.slot) {
            slots.pop();
        }
        let is_tail = slots.pop_if(|(slot, _)| *slot == call.slot).is_some();
        let is_unsure = leaves_frames || is_tail || slots.last().is_some_and(|(_, unsure)| *unsure);
        if !is_unsure && *depth != slots.len() {
            bail!("call {n}: {name} is {depth} deep instead of {}", slots.len());
        }
        slots.push((call.slot, is_unsure));
    }
    if seen.len() > calls.len() {
        bail!("call {}: {} is too many", calls.len(), seen[calls.len()].0);
    }
    Ok(())
}
