//! The sentence that says which functions are on.

use crate::command_line::processes;
use crate::terminal::progress;
use calltap_analysis::units;
use calltap_session::{LargestLibrary, MatchesElsewhere, Reports, Started, UntraceableFunctions};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Number of modules that are named; the others are counted.
const SHOWN: usize = 3;

/// Hints that were told.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reports of a recording on the terminal.
pub const REPORTS: Reports = Reports { tell: progress::tell, started: tell, recording: progress::recording };

/// Tells which functions are on, with the name of the process if this calltap is one of several.
pub fn tell(started: &Started) {
    tell_as(&processes::of_many(), started);
}

/// Tells which functions are on in a process that is one of several.
pub fn tell_of_one(started: &Started) {
    tell_as(&processes::of_one(started.pid), started);
}

fn tell_as(process: &str, started: &Started) {
    progress::clear();
    tell!("calltap: {process}{}", sentence(started));
    // Processes of one program have the same hint.
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let python = started.interpreter.as_ref().map(|file| {
        format!("{file} runs Python, whose functions are not among these: --python '*' traces them")
    });
    for hint in started.nameless.iter().chain(&python).filter(|hint| told.insert(hint.to_string())) {
        tell!("calltap: {hint}");
    }
}

/// Returns a sentence such as `1 function on, in haproxy; libssl.so.3 has 476 more: -F
/// 'libssl:SSL_*'`.
fn sentence(started: &Started) -> String {
    let all: usize = started.modules.iter().map(|(_, on)| on).sum();
    let functions = units::counted(all as u64, "function");
    let name = |module: &str| match &started.linked {
        Some((file, called)) if file == module => format!("{module} ({called} is a link to it)"),
        _ => module.to_owned(),
    };
    let shown = |(module, on): &(String, usize)| format!("{} in {}", units::count(*on as u64), name(module));
    let modules = match &started.modules[..] {
        [] if started.all_excluded => ": -N takes away all that is selected".to_owned(),
        [] => " so far".to_owned(),
        [(module, _)] => format!(", in {}", name(module)),
        [first @ .., last] if first.len() < SHOWN => {
            let first: Vec<String> = first.iter().map(shown).collect();
            format!(": {} and {}", first.join(", "), shown(last))
        }
        many => {
            let (first, rest) = many.split_at(SHOWN);
            let first: Vec<String> = first.iter().map(shown).collect();
            let on: usize = rest.iter().map(|(_, on)| on).sum();
            let modules = units::counted(rest.len() as u64, "other module");
            format!(": {} and {} in {modules}", first.join(", "), units::count(on as u64))
        }
    };
    let untraceable = match (&started.untraceable, started.untraced) {
        (Some(found), _) => untraceable(found),
        (None, 0) => String::new(),
        (None, count) => format!("; {} cannot be traced", units::count(count)),
    };
    let python = python(&started.python);
    format!("{functions} on{modules}{untraceable}{}{python}", elsewhere(&started.elsewhere))
}

/// Returns the part of a sentence about selected Python functions.
pub fn python(globs: &[String]) -> String {
    match globs {
        [] => String::new(),
        globs => format!("; Python functions named '{}' from their next call", globs.join(",")),
    }
}

/// Returns the part of the sentence about named functions that cannot be traced.
fn untraceable(found: &UntraceableFunctions) -> String {
    let UntraceableFunctions { count, function, reason } = found;
    match count {
        1 => format!("; not {function}: {reason}"),
        n => format!("; not {function} ({reason}) and {} more", units::count(*n as u64 - 1)),
    }
}

/// Returns the part of the sentence about other modules that have matching functions.
fn elsewhere(found: &[MatchesElsewhere]) -> String {
    let [first, rest @ ..] = found else { return String::new() };
    let modules: BTreeSet<&str> =
        rest.iter().map(|found| found.module.as_str()).filter(|module| *module != first.module).collect();
    let others = match modules.len() {
        0 => String::new(),
        1 => "; so has 1 other library".to_owned(),
        n => format!("; so have {n} other libraries"),
    };
    let (module, count) = (&first.module, units::count(first.count as u64));
    format!("; {module} has {count} more: -F '{}:{}'{others}", stem(module), first.word)
}

/// Returns `libssl` for `libssl.so.3`.
fn stem(module: &str) -> &str {
    module.split(".so").next().unwrap_or(module)
}

/// Returns a hint for a program that only starts a library: its code is in that library.
pub fn code_is_in(library: &LargestLibrary) -> String {
    let LargestLibrary { module, stem, program } = library;
    format!("{program} contains almost no code: most is in {module}; to trace that: -F '{stem}:*' --later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_line_counts_enabled_functions_by_module() {
        let module = |(name, on): &(&str, usize)| ((*name).to_owned(), *on);
        let check = |modules: &[(&str, usize)], elsewhere: &[(&str, &str, usize)], expected: &str| {
            let found = |(word, module, count): &(&str, &str, usize)| MatchesElsewhere {
                word: (*word).to_owned(),
                module: (*module).to_owned(),
                count: *count,
            };
            let started = Started {
                pid: 1,
                linked: Some(("redis-check-rdb".to_owned(), "redis-server".to_owned())),
                modules: modules.iter().map(module).collect(),
                elsewhere: elsewhere.iter().map(found).collect(),
                ..Started::default()
            };
            assert_eq!(sentence(&started), expected);
        };
        check(&[], &[], "0 functions on so far");
        check(&[("redis-server", 1842)], &[], "1,842 functions on, in redis-server");
        check(
            &[("redis-check-rdb", 2)],
            &[],
            "2 functions on, in redis-check-rdb (redis-server is a link to it)",
        );
        let module = ("a".to_owned(), 3);
        let some = Started { modules: vec![module], untraced: 1200, ..Started::default() };
        assert_eq!(sentence(&some), "3 functions on, in a; 1,200 cannot be traced");
        check(
            &[("haproxy", 1)],
            &[("SSL_*", "libssl.so.3", 476)],
            "1 function on, in haproxy; libssl.so.3 has 476 more: -F 'libssl:SSL_*'",
        );
        check(&[("a", 3), ("libb.so", 2)], &[], "5 functions on: 3 in a and 2 in libb.so");
        check(
            &[("a", 5), ("b", 4), ("c", 3), ("d", 2), ("e", 1)],
            &[("f", "x.so", 2), ("f", "y.so", 1), ("g", "z.so", 1)],
            "15 functions on: 5 in a, 4 in b, 3 in c and 3 in 2 other modules; x.so has 2 more: -F 'x:f'; so have 2 other libraries",
        );
    }
}
