//! The output of `calltap replay`, compared with the calls that a debugger sees.

use super::truth::{Call, Function, plain};
use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// Returns the names of the compared functions.
fn names(functions: &[Function]) -> BTreeSet<&str> {
    functions.iter().filter(|function| function.is_traced).map(|function| &function.name[..]).collect()
}

/// Returns a name without arguments.
fn exact(name: &str) -> String {
    plain(name.split('(').next().unwrap_or(name).trim())
}

/// Returns a name without arguments and without suffixes of parts and clones.
fn base_name(name: &str) -> String {
    let name = name.split('(').next().unwrap_or(name).trim();
    plain(name.split('.').next().unwrap_or(name))
}

/// Compares lines `function <-caller`: the same calls in the same order, with the same callers.
pub fn compare_callers(replayed: &str, calls: &[Call], functions: &[Function]) -> Result<()> {
    let names = names(functions);
    let lines = replayed.lines().filter(|line| !line.starts_with('#'));
    let seen = lines.filter_map(|line| {
        let (function, caller) = line.rsplit_once(": ")?.1.split_once(" <-")?;
        Some((exact(function), base_name(caller)))
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
        // A trace has no names for addresses in cold parts.
        let known = call.caller.map(|caller| &functions[caller].name).filter(|name| !name.contains('.'));
        if let Some(known) = known.filter(|known| *known != caller) {
            bail!("call {n}: {name} is called by {caller} instead of {known}");
        }
    }
    if seen.len() > calls.len() {
        bail!("call {}: {} is too many", calls.len(), seen[calls.len()].0);
    }
    Ok(())
}

/// A frame that may be open.
struct Frame<'f> {
    slot: u64,
    back: u64,
    function: usize,
    /// The functions that may share it by tail calls.
    sharing: Vec<&'f str>,
    /// Number of recorded calls that are open for certain, this frame's included.
    least: usize,
}

/// Compares lines of the call tree: the same calls in the same order, at the same depth. A tail
/// call takes over slot and return address; whether the caller counts as open depends on the
/// function. Functions in `left_out` are not recorded.
pub fn compare_depths(
    replayed: &str,
    calls: &[Call],
    functions: &[Function],
    left_out: &[String],
) -> Result<()> {
    let is_recorded = |name: &str| !left_out.iter().any(|other| other == name);
    let names: BTreeSet<&str> = names(functions).into_iter().filter(|name| is_recorded(name)).collect();
    let seen = depths(replayed, &names);
    let mut frames: Vec<Frame> = Vec::new();
    let mut next = seen.iter();
    for (n, call) in calls.iter().enumerate() {
        let name = &functions[call.function].name[..];
        while frames.last().is_some_and(|frame| frame.slot < call.slot) {
            frames.pop();
        }
        let shared = frames.pop_if(|frame| frame.slot == call.slot);
        let shared = shared.filter(|frame| frame.back == call.back);
        // Frames between the caller's and this one have ended. Where a library is the caller, they
        // are not known.
        let caller = call.caller.filter(|caller| functions[*caller].is_traced);
        let open = caller.and_then(|caller| frames.iter().rposition(|frame| frame.function == caller));
        let known = open.map_or(0, |open| open + 1);
        if open.is_some() {
            frames.truncate(known);
        }
        let least = known.checked_sub(1).map_or(0, |caller| frames[caller].least);
        let mut sharing = shared.map_or(Vec::new(), |frame| frame.sharing);
        let all = frames.iter().flat_map(|frame| &frame.sharing).chain(&sharing);
        let most = all.filter(|name| is_recorded(name)).count();
        sharing.push(name);
        let own = usize::from(sharing.iter().all(|name| is_recorded(name)));
        let Call { slot, back, function, .. } = *call;
        frames.push(Frame { slot, back, function, sharing, least: least + own });
        if !is_recorded(name) {
            continue;
        }
        let Some((function, depth)) = next.next() else {
            bail!("call {n}: {name} is missing: {} calls instead of more", seen.len());
        };
        if function != name {
            bail!("call {n}: {function} instead of {name}");
        }
        if !(least..=most).contains(depth) {
            bail!("call {n}: {name} is {depth} deep instead of {least} to {most}");
        }
    }
    if let Some((function, _)) = next.next() {
        bail!("call {}: {function} is too many", calls.len());
    }
    Ok(())
}

/// Returns the name of each call of these functions in a call tree, and the number of such calls
/// around it.
fn depths(replayed: &str, names: &BTreeSet<&str>) -> Vec<(String, usize)> {
    let lines = replayed.lines().filter(|line| !line.starts_with('#'));
    let mut open: Vec<bool> = Vec::new();
    let mut seen = Vec::new();
    for line in lines {
        let Some((_, tree)) = line.rsplit_once('|') else { continue };
        let text = tree.trim();
        // A function whose end is not seen has only its entry, as a comment that names the caller.
        let only_entry = text.strip_prefix("/* ").and_then(|comment| comment.split_once(" <-"));
        let text = only_entry.map_or(text, |(function, _)| function);
        let is_entry = only_entry.is_some() || text.ends_with("();") || text.ends_with("() {");
        if is_entry {
            let name = exact(text);
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
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> Function {
        Function::named(name)
    }

    #[test]
    fn missing_extra_and_misplaced_calls_are_found() {
        let functions = [function("main"), function("p0_run"), function("p0_leaf")];
        let call = |function, caller, slot, back| Call { function, caller: Some(caller), slot, back };
        let calls = [call(1, 0, 100, 1), call(2, 1, 90, 2), call(2, 1, 90, 3)];
        let callers = |lines: &[&str]| {
            let text: Vec<String> = lines.iter().map(|line| format!("p-1 1.5: {line}")).collect();
            compare_callers(&text.join("\n"), &calls, &functions).map_err(|error| error.to_string())
        };
        let (run, leaf) = ("p0_run <-main", "p0_leaf <-p0_run");
        assert_eq!(callers(&[run, leaf, leaf]), Ok(()));
        assert!(callers(&[run, leaf]).is_err_and(|what| what.contains("missing")));
        assert!(callers(&[run, leaf, leaf, leaf]).is_err_and(|what| what.contains("too many")));
        assert!(callers(&[leaf, run, leaf]).is_err_and(|what| what.contains("instead of")));
        assert!(callers(&[run, "p0_leaf <-main", leaf]).is_err_and(|what| what.contains("called by")));
        let depths =
            |text: &str| compare_depths(text, &calls, &functions, &[]).map_err(|error| error.to_string());
        assert_eq!(depths("1 | | p0_run() {\n1 | | p0_leaf();\n1 | | p0_leaf();\n1 | | }"), Ok(()));
        let entry = "1 | | p0_run() {\n1 | | /* p0_leaf <-p0_run */\n1 | | p0_leaf();\n1 | | }";
        assert_eq!(depths(entry), Ok(()));
        let flat = depths("1 | | p0_run() {\n1 | | p0_leaf();\n1 | | }\n1 | | p0_leaf();");
        assert!(flat.is_err_and(|what| what.contains("0 deep instead of 1 to 1")));
    }
}
