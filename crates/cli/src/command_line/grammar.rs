//! The parser, the manual page and the completions, made from the
//! [table](crate::command_line::table).

use crate::command_line::table::{Command, FAMILIES, Family, Flag, GROUPS, OLD, Operand, Takes, commands};
use crate::width::columns;
use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ValueHint};
use std::io::Write;

/// Name of the program.
pub const NAME: &str = "calltap";

/// Completion of processes behind -p, in bash: the generator knows no changing values.
const PROCESSES_IN_BASH: &str = r#"
_calltap_or_process() {
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        -p|--pid) COMPREPLY=($(compgen -W "$(ps -eo pid=,comm=)" -- "${COMP_WORDS[COMP_CWORD]}")) ;;
        *) _calltap "$@" ;;
    esac
}
complete -F _calltap_or_process -o bashdefault -o default calltap
"#;

/// Returns the parser of the whole command line.
pub fn grammar() -> clap::Command {
    grammar_of(|_| true)
}

/// Returns the parser of some commands and all families.
fn grammar_of(is_chosen: fn(&str) -> bool) -> clap::Command {
    let chosen = commands().filter(move |from| is_chosen(from.name));
    clap::Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about("ftrace for user space: trace every function of a Linux program, exactly and cheaply")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .infer_subcommands(false)
        .help_template(overview())
        .subcommands(chosen.map(|from| command(from).hide(is_hidden(from.name))))
        .subcommands(FAMILIES.iter().map(family))
}

/// Whether help leaves a command out at the top level, as it is old or belongs to a family.
pub(super) fn is_hidden(name: &str) -> bool {
    OLD.contains(&name) || FAMILIES.iter().any(|family| family.members.contains(&name))
}

fn family(from: &Family) -> clap::Command {
    let members = commands().filter(|command| from.members.contains(&command.name));
    clap::Command::new(from.name)
        .about(from.about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(members.map(command))
}

/// Breaks a text into lines of at most this many characters, between words.
fn wrapped(text: &str, most: Option<usize>) -> Vec<String> {
    let Some(most) = most else { return vec![text.to_owned()] };
    text.split(' ').fold(Vec::new(), |mut lines: Vec<String>, word| {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
        lines
    })
}

/// Returns the commands by group, for help. On a terminal, lines fit its width.
fn overview() -> String {
    let columns = columns();
    let about = |name: &str| {
        let own = commands().find(|command| command.name == name).map(|command| command.about);
        own.or_else(|| FAMILIES.iter().find(|family| family.name == name).map(|family| family.about))
    };
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let rest: Vec<&str> =
        commands().map(|command| command.name).filter(|name| !is_hidden(name) && !grouped(name)).collect();
    let more = (!rest.is_empty()).then_some(("More", &rest[..]));
    let names = GROUPS.iter().flat_map(|(_, names)| *names).chain(&rest);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS.iter().copied().chain(more) {
        text += &format!("\n{title}:\n");
        for name in names {
            let about = about(name).unwrap_or_default();
            let lines = wrapped(about, columns.map(|columns| columns.saturating_sub(width + 4)));
            text += &format!("  {name:<width$}  {}\n", lines.join(&format!("\n{:1$}", "", width + 4)));
        }
    }
    text + "\nOptions:\n{options}\n\n'calltap help COMMAND' describes COMMAND;\ndocs/reference/commands.md has the commands by task."
}

fn command(from: &Command) -> clap::Command {
    let flags = || from.flags.iter().copied().flatten();
    let mut command = clap::Command::new(from.name).about(from.about).args(flags().map(flag));
    let has_json = flags().any(|flag| flag.long == "format" && flag.choices.contains(&"json"));
    if has_json && !flags().any(|flag| flag.long == "json") {
        command = command.arg(json());
    }
    if !from.details.is_empty() {
        command = command.after_long_help(from.details);
    }
    let has_input = flags().any(|flag| flag.long == "input");
    let Some(from) = &from.operand else { return command };
    let arg = operand(from);
    let is_input = has_input && matches!(from.takes, Takes::One);
    command = command.arg(if is_input { arg.conflicts_with("input") } else { arg });
    match from.takes {
        Takes::ManyAndProgram => command.arg(program()),
        Takes::ManyAndMore => command.arg(more(from)),
        _ => command,
    }
}

/// Returns `--json`, for commands whose `--format` may be `json`.
fn json() -> Arg {
    let json = Arg::new("json").long("json").help("The same as --format json.");
    json.action(ArgAction::SetTrue).conflicts_with("format")
}

fn flag(from: &Flag) -> Arg {
    let mut arg = Arg::new(from.long).long(from.long).help(from.help);
    if let Some(short) = from.short {
        arg = arg.short(short);
    }
    let Some(value) = from.value else { return arg.action(ArgAction::SetTrue) };
    arg = arg.value_name(value).action(if from.many { ArgAction::Append } else { ArgAction::Set });
    arg = arg.value_parser(if from.choices.is_empty() {
        ValueParser::os_string()
    } else {
        PossibleValuesParser::new(from.choices).into()
    });
    // Without a hint, shells offer names of files.
    arg = arg.value_hint(match value {
        "FILE" | "PATHS" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Other,
    });
    match from.default {
        Some(default) => arg.default_value(default),
        None => arg,
    }
}

fn operand(from: &Operand) -> Arg {
    let arg = Arg::new("operand")
        .value_name(from.name)
        .help(from.help)
        .required(!from.optional)
        .value_parser(ValueParser::os_string());
    match from.takes {
        Takes::One => arg.value_hint(ValueHint::FilePath),
        Takes::Many | Takes::ManyAndMore => arg.num_args(1..).value_hint(ValueHint::FilePath),
        Takes::ManyAndProgram => arg.num_args(1..),
        Takes::Rest => arg
            .num_args(1..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_hint(ValueHint::CommandWithArguments),
    }
}

/// Returns the operand behind `--` that is a program with its arguments.
fn program() -> Arg {
    behind("program")
        .value_name("PROGRAM")
        .help("A program to run, and its arguments.")
        .value_hint(ValueHint::CommandWithArguments)
}

/// Returns the operand behind `--` that is a list of further files.
fn more(from: &Operand) -> Arg {
    behind("more")
        .value_name(from.name)
        .help("The traces to compare with those before '--'.")
        .value_hint(ValueHint::FilePath)
}

fn behind(id: &'static str) -> Arg {
    Arg::new(id).num_args(1..).last(true).value_parser(ValueParser::os_string())
}

/// Writes the manual page: an overview and every command.
pub fn manual(out: &mut dyn Write) -> Result<()> {
    let page = clap_mangen::Man::new(grammar());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    let grammar = grammar();
    let shown = grammar.get_subcommands().filter(|command| !command.is_hide_set());
    let all = shown.flat_map(|command| {
        let own = (command.get_name().to_owned(), command.clone());
        let members = command
            .get_subcommands()
            .map(|member| (format!("{} {}", command.get_name(), member.get_name()), member.clone()));
        [own].into_iter().chain(members).collect::<Vec<_>>()
    });
    for (name, command) in all {
        let command = command.bin_name(format!("{NAME} {name}")).disable_help_flag(true);
        let section = clap_mangen::Man::new(command);
        writeln!(out, ".SH {}", name.to_uppercase())?;
        section.render_description_section(&mut without_heading(out))?;
        section.render_options_section(&mut without_heading(out))?;
        section.render_extra_section(&mut without_heading(out))?;
    }
    Ok(())
}

/// Returns a writer that drops the `.SH` lines of a section, so that the section stands under the
/// command's own heading.
fn without_heading(out: &mut dyn Write) -> impl Write + '_ {
    struct Filter<'a>(&'a mut dyn Write, Vec<u8>);
    impl Write for Filter<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.extend_from_slice(bytes);
            while let Some(end) = self.1.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                if !line.starts_with(b".SH") {
                    self.0.write_all(&line)?;
                }
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            self.0.flush()
        }
    }
    Filter(out, Vec::new())
}

/// Writes a shell's completion script.
pub fn completions(shell: &str, out: &mut dyn Write) -> Result<()> {
    let shell: clap_complete::Shell = shell.parse().ok().context("unknown shell")?;
    // The generator panics where its output is closed.
    let mut script = Vec::new();
    // Some shells' generators also offer what help leaves out.
    let mut shown = grammar_of(|name| !is_hidden(name));
    clap_complete::generate(shell, &mut shown, NAME, &mut script);
    if shell == clap_complete::Shell::Bash {
        script.extend(PROCESSES_IN_BASH.as_bytes());
    }
    Ok(out.write_all(&script)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::arguments::Arguments;

    #[test]
    fn the_table_makes_a_consistent_grammar() {
        grammar().debug_assert();
    }

    #[test]
    fn a_command_is_known_to_have_a_switch_or_not() {
        let has = |command: &str, switch: &str| {
            let matches = grammar().try_get_matches_from([NAME, command]).unwrap();
            let (_, matches) = matches.subcommand().unwrap();
            Arguments::new(matches.clone()).has_switch(switch)
        };
        assert!(has("report", "no-pager") && has("report", "full-names"));
        assert!(!has("status", "no-pager") && !has("report", "no-such-switch"));
    }

    #[test]
    fn lines_of_the_overview_fit() {
        let lines = wrapped("Show the locks at which threads waited", Some(16));
        assert_eq!(lines, ["Show the locks", "at which threads", "waited"]);
        assert_eq!(wrapped("a-word-that-is-too-long", Some(5)), ["a-word-that-is-too-long"]);
        assert_eq!(wrapped("one line", None), ["one line"]);
    }

    #[test]
    fn every_command_is_shown_once() {
        let help = grammar().render_help().to_string();
        for command in commands().filter(|command| !is_hidden(command.name)) {
            let lines = help.lines().filter(|line| line.starts_with(&format!("  {} ", command.name)));
            assert_eq!(lines.count(), 1, "{} in {help}", command.name);
        }
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            let exists = commands().any(|command| command.name == *name)
                || FAMILIES.iter().any(|family| family.name == *name);
            assert!(exists && !is_hidden(name), "{name}");
        }
        assert!(!help.contains("  recordmcount ") && !help.contains("  stat "), "{help}");
    }

    #[test]
    fn manual_and_completions_know_every_command() {
        let (mut page, mut script) = (Vec::new(), Vec::new());
        manual(&mut page).unwrap();
        completions("bash", &mut script).unwrap();
        let (page, script) = (String::from_utf8(page).unwrap(), String::from_utf8(script).unwrap());
        for command in commands() {
            let name = command.name.to_uppercase();
            let family = FAMILIES.iter().find(|family| family.members.contains(&command.name));
            let title =
                family.map_or(name.clone(), |family| format!("{} {name}", family.name.to_uppercase()));
            assert_eq!(
                page.contains(&format!(".SH {title}\n")),
                !OLD.contains(&command.name),
                "{title} in the manual"
            );
            assert!(script.contains(command.name), "{} in the completions", command.name);
            for flag in command.flags.iter().copied().flatten() {
                assert!(script.contains(&format!("--{}", flag.long)), "--{} in the completions", flag.long);
            }
        }
    }
}
