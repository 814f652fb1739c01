//! The selection that the command line names.

use crate::command_line::arguments::Arguments;
use anyhow::{Result, bail};
use calltap_analysis::split_list;
use calltap_selection::{Selection, add_coroutines, add_python, take_python_arguments, tracer};
use calltap_session::{Subject, process_runs_python, runs_python};

/// Returns the selection that the flags name.
pub fn words(given: &Arguments) -> Result<Selection> {
    let mut tracers = Vec::new();
    for text in given.texts("tracer") {
        // An empty word resets the tracer to the default.
        tracers.push(tracer(if text.is_empty() { "function_graph" } else { &text }, &tracers)?);
    }
    let (filter, mut notrace) = (given.names("filter"), given.names("notrace"));
    let [arguments, results] = ["arguments", "results"].map(|flag| rules(given.texts(flag)));
    if arguments.iter().chain(&results).any(|rule| rule == "all") {
        // A rule traces its functions, whatever the filter excludes.
        notrace.extend(filter.iter().filter_map(|word| word.strip_prefix('!')).map(str::to_owned));
    }
    let [arguments, results] = [arguments, results].map(|rules| of_filter(rules, &filter));
    let conditions = given.texts("if");
    let (futures, int3) = (given.is_set("async"), given.is_set("allow-int3"));
    let words =
        Selection { tracers, filter, notrace, arguments, results, conditions, ..Selection::default() };
    if given.is_set("libcalls") && given.text("discovery").as_deref() == Some("first-call") {
        bail!(
            "--libcalls and --discovery first-call exclude each other: calls into libraries are known at load"
        );
    }
    let mut words = Selection { futures, int3, libcalls: given.is_set("libcalls"), ..words };
    add_python(&mut words, &python(given)?);
    take_python_arguments(&mut words)?;
    Ok(words)
}

/// Splits lists of rules: `f,g@a,b,h@c` is `f`, `g@a,b` and `h@c`.
fn rules(texts: Vec<String>) -> Vec<String> {
    texts.iter().flat_map(|text| split_rules(text)).collect()
}

fn split_rules(text: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for part in split_list(text) {
        match rules.last_mut() {
            // Behind an `@`, commas separate items.
            Some(rule) if rule.contains('@') && !part.contains('@') => *rule += &format!(",{part}"),
            _ => rules.push(part),
        }
    }
    rules
}

/// Replaces the rule `all` by the functions of the filter: all functions if it names none.
fn of_filter(rules: Vec<String>, filter: &[String]) -> Vec<String> {
    let mut named: Vec<String> = filter.iter().filter(|word| !word.starts_with('!')).cloned().collect();
    if named.is_empty() {
        named.push("*".to_owned());
    }
    rules.into_iter().flat_map(|rule| if rule == "all" { named.clone() } else { vec![rule] }).collect()
}

/// Adds coroutines to a selection of futures, if the subject runs Python. Rules for arguments may
/// then be about Python functions.
pub fn add_futures(words: &mut Selection, subject: &Subject) -> Result<()> {
    let runs = || match subject {
        Subject::Program(command) => runs_python(command),
        Subject::Process { pid, .. } => process_runs_python(*pid),
    };
    if words.polls() && runs() {
        add_coroutines(words);
        take_python_arguments(words)?;
    }
    Ok(())
}

/// Returns the globs of the Python functions that the command line names.
pub fn python(given: &Arguments) -> Result<Vec<String>> {
    let python = given.names("python");
    match python.iter().find(|glob| glob.contains(['[', '\\', '\n'])) {
        Some(glob) => bail!("--python: '{glob}': only * and ? stand for other characters in its patterns"),
        None => Ok(python),
    }
}

#[cfg(test)]
mod tests {
    use super::split_rules;

    #[test]
    fn lists_of_rules_are_split_at_functions() {
        assert_eq!(split_rules("f,g@a,b,h@c"), ["f", "g@a,b", "h@c"]);
        assert_eq!(split_rules("f(int, long)@arg1,arg2"), ["f(int, long)@arg1,arg2"]);
        assert_eq!(split_rules("f@+8(arg1),*"), ["f@+8(arg1),*"]);
        assert_eq!(split_rules(""), [""]);
    }
}
