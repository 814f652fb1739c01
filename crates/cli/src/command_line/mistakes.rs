//! Messages about words that the parser does not understand: one line that says what to write
//! instead.

use super::grammar::is_hidden;
use super::processes;
use super::table::{Command, FAMILIES, Flag, Takes, commands};
use calltap_analysis::nearest_names;
use calltap_trace::TraceReader;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;
use std::path::Path;

/// Removes old names of commands from those that the parser suggests for an unknown one.
pub fn suggest_visible(error: &mut clap::Error) {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let visible: Vec<String> = names.iter().filter(|name| !is_hidden(name)).cloned().collect();
    let suggested = if visible.is_empty() { ContextValue::None } else { ContextValue::Strings(visible) };
    error.insert(ContextKind::SuggestedSubcommand, suggested);
}

/// Returns the message for an unknown option of a command, with the known option nearest to it, if
/// one is near.
pub fn no_option(word: &str, command: &str) -> String {
    let name = word.split('=').next().unwrap_or_default();
    let operand = meant(command).find_map(|command| command.operand.as_ref());
    let names_functions = operand.is_some_and(|operand| operand.name.contains("FUNCTION"));
    if names_functions && ["-F", "--filter", "--function"].contains(&name) {
        return format!("{word}: no option of {command}; its functions need none: calltap {command} GLOB");
    }
    let near = near_option(name, command).map_or(String::new(), |near| format!("; is it {near}?"));
    format!("{word}: no option of {command}{near}")
}

/// Returns the command with this name, or the commands of its family.
fn meant(name: &str) -> impl Iterator<Item = &'static Command> {
    let members = FAMILIES.iter().find(|family| family.name == name).map(|family| family.members);
    let is_meant = move |known: &&Command| {
        known.name == name || members.is_some_and(|members| members.contains(&known.name))
    };
    commands().filter(is_meant)
}

fn flags(command: &str) -> impl Iterator<Item = &'static Flag> {
    meant(command).flat_map(|command| command.flags).copied().flatten()
}

/// Returns the option that is nearest to an unknown one: of one letter, the same in the other case.
fn near_option(name: &str, command: &str) -> Option<String> {
    if let [b'-', letter] = name.as_bytes() {
        let other = char::from(letter ^ 0x20);
        return flags(command).any(|flag| flag.short == Some(other)).then(|| format!("-{other}"));
    }
    // `--format` of other commands is `--to FORMAT` of export.
    let value = name.strip_prefix("--").map(str::to_uppercase);
    if let Some(flag) = flags(command).find(|flag| flag.value.is_some() && flag.value == value.as_deref()) {
        return Some(format!("--{}", flag.long));
    }
    // `--to` of export names a format, so the end of a part has another name.
    if name == "--to" && flags(command).any(|flag| flag.long == "until") {
        return Some("--until".to_owned());
    }
    let known: Vec<String> = flags(command).map(|flag| format!("--{}", flag.long)).collect();
    nearest_names(name, known.iter().map(String::as_str), 1).pop().map(str::to_owned)
}

/// Returns the parser's error in one line, with a hint to the command's help. `words` are those of
/// the command line.
pub fn mistake(said: &str, words: &[OsString]) -> String {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    // The usage line and all that follows it are in the help.
    let lines = said.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let command = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let command = command.as_ref();
    let is_known =
        commands().any(|known| known.name == command) || FAMILIES.iter().any(|known| known.name == command);
    let option = said.strip_prefix("unexpected argument '").and_then(|said| said.split_once("' found"));
    if let Some((option, _)) = option.filter(|(option, _)| is_known && option.starts_with('-')) {
        return format!("{} ('calltap help {command}' lists them)", no_option(option, command));
    }
    if let Some((word, _)) = option.filter(|_| is_known) {
        let instead = instead_of_word(word, command, words);
        return instead.unwrap_or_else(|| {
            format!("{word}: {command} takes no such word ('calltap help {command}' tells its usage)")
        });
    }
    if let Some(instead) = instead_of_command(words).filter(|_| !is_known) {
        return format!("{command}: {instead}");
    }
    // An option whose value is a list takes the others in the same word.
    if let Some((option, _)) = said
        .strip_prefix("the argument '--")
        .and_then(|said| said.split_once("' cannot be used multiple times"))
        && option.ends_with(",...>")
    {
        let name = option.split(' ').next().unwrap_or_default();
        return format!("--{name}: given twice; it takes a list, separated by commas: --{option}");
    }
    let command = if is_known { format!(" {command}") } else { String::new() };
    let text = lines.join("; ").replace(":; ", ": ").replace("; [", " [").replace("tip: ", "");
    format!("{text} ('calltap help{command}' has the options)")
}

/// Returns what to write for a word that a command does not take: a process, or a second file.
fn instead_of_word(word: &str, command: &str, words: &[OsString]) -> Option<String> {
    let has_process = |word: &OsString| {
        ["-p", "--pid"].iter().any(|flag| word.as_encoded_bytes().starts_with(flag.as_bytes()))
    };
    let takes_process = flags(command).any(|flag| flag.long == "pid") && !words.iter().any(has_process);
    if takes_process && processes::is_one(word) {
        return Some(format!(
            "{word}: {command} takes no such word; a process is named behind -p: calltap {command} -p {word}"
        ));
    }
    let path = Path::new(word);
    let reads_files = flags(command).any(|flag| flag.long == "input");
    if takes_process && !reads_files && path.is_file() {
        let instead = match TraceReader::is_trace(path) {
            true => format!("'calltap report {word}' shows a trace"),
            false => format!("'calltap record -- {word}' records a program from its start"),
        };
        return Some(format!("{word}: {command} takes a process, behind -p; {instead}"));
    }
    // A choice before the file was taken for the file.
    let first = words.get(1).and_then(|first| first.to_str()).unwrap_or_default();
    for word in [word, first] {
        if let Some(flag) = flags(command).find(|flag| flag.choices.contains(&word)) {
            return Some(format!("{word}: {command} takes no such word; is it --{} {word}?", flag.long));
        }
    }
    let operand = meant(command).find_map(|command| command.operand.as_ref())?;
    let takes_file = matches!(operand.takes, Takes::One) && flags(command).any(|flag| flag.long == "input");
    let traces = words.iter().filter(|word| TraceReader::is_trace(Path::new(word))).count();
    if takes_file && traces > 1 {
        return Some(format!(
            "{word}: {command} takes one FILE; 'calltap merge FILES -o all.data' makes one trace of several"
        ));
    }
    let names_functions = flags(command).any(|flag| flag.long == "function");
    (takes_file && names_functions)
        .then(|| format!("{word}: {command} takes one FILE, a trace; functions are named behind -F"))
}

/// Returns what to write if the first word is a trace, a program, or an option of `record`.
fn instead_of_command(words: &[OsString]) -> Option<String> {
    let word = words.first()?.to_str()?;
    let is_named = |flag: &Flag| {
        let named = word.strip_prefix("--").map(|name| name.split('=').next() == Some(flag.long));
        named.unwrap_or_else(|| flag.short.is_some() && word.chars().nth(1) == flag.short)
    };
    if word.starts_with('-') && flags("record").any(is_named) {
        let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        return Some(format!("an option, and no command; 'calltap record {}' records", line.join(" ")));
    }
    let path = Path::new(word);
    if TraceReader::is_trace(path) {
        return Some(format!("a trace, and no command; 'calltap report {word}' shows it"));
    }
    let is_program = word.contains('/') && path.is_file();
    is_program.then(|| format!("a file, and no command; 'calltap record -- {word}' records a program"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::grammar::grammar;

    #[test]
    fn old_names_of_commands_are_not_suggested() {
        let said = |word: &str| {
            let mut error = grammar().try_get_matches_from(["calltap", word]).unwrap_err();
            suggest_visible(&mut error);
            mistake(&error.to_string(), &[word.into()])
        };
        let record = said("recrod");
        assert!(record.contains("'record'") && !record.contains("recordmcount"), "{record}");
        let nothing = said("recordmcoun");
        assert!(!nothing.contains("recordmcount") && !nothing.contains("  "), "{nothing}");
    }

    #[test]
    fn an_unknown_option_has_a_near_one() {
        assert_eq!(no_option("-f", "record"), "-f: no option of record; is it -F?");
        assert_eq!(no_option("-q", "report"), "-q: no option of report");
        assert_eq!(no_option("--follw", "record"), "--follw: no option of record; is it --follow?");
        assert_eq!(no_option("--format", "export"), "--format: no option of export; is it --to?");
        assert_eq!(no_option("--to", "replay"), "--to: no option of replay; is it --until?");
    }
}
