//! Triggers: commands that are executed when a function is called, `FUNCTION:COMMAND[:COUNT]` in
//! `set_ftrace_filter`.

use crate::control::{matches, number_base};
use crate::errors::Wrong;
use calltap_names::Glob;
use calltap_selection::Listed;
pub(crate) use calltap_trace::Action as Command;
use calltap_trace::uses;
use rustix::io::Errno;

const NAMES: [(&str, Command); 6] = [
    ("traceon", Command::TraceOn),
    ("traceoff", Command::TraceOff),
    ("stacktrace", Command::StackTrace),
    ("snapshot", Command::Snapshot),
    ("dump", Command::Dump),
    ("cpudump", Command::CpuDump),
];

fn name(command: Command) -> &'static str {
    NAMES.into_iter().find(|(_, known)| *known == command).map_or("", |(name, _)| name)
}

/// A trigger at one function.
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    /// Linker symbol of the function.
    pub function: String,
    /// The command.
    pub command: Command,
    /// Remaining number of executions; `None` if unlimited.
    pub count: Option<i64>,
}

impl Trigger {
    /// Returns the trigger's line in `set_ftrace_filter`.
    pub(crate) fn line(&self) -> String {
        let count = match self.count {
            None => "unlimited".into(),
            Some(count) => format!("count={count}"),
        };
        format!("{}:{}:{count}\n", self.function, name(self.command))
    }

    /// Whether the command is executed now. Decrements the count.
    pub(crate) fn fires(&mut self) -> bool {
        uses(&mut self.count)
    }
}

/// The triggers of an instance. Those of one command and kind (counted or not) are together, the
/// newest kind first.
#[derive(Clone, Default, Debug)]
pub(crate) struct Triggers(Vec<Trigger>);

/// Parses a count. A decimal number has no sign.
fn number(text: &str) -> Option<i64> {
    let (digits, base) = number_base(text);
    i64::from_str_radix(digits, base).ok().filter(|_| base != 10 || !text.starts_with(['-', '+']))
}

impl Triggers {
    /// Returns all triggers, in the order of their lines.
    pub(crate) fn all(&self) -> &[Trigger] {
        &self.0
    }

    /// Returns all triggers for changes of their counts.
    pub(crate) fn all_mut(&mut self) -> &mut [Trigger] {
        &mut self.0
    }

    /// Applies a word with a colon: adds triggers, or removes them with `!`. A refused word changes
    /// nothing.
    pub(crate) fn change(&mut self, word: &str, functions: &[Listed]) -> Result<(), Wrong> {
        let (takes, word) = word.strip_prefix('!').map_or((false, word), |word| (true, word));
        // A `::` is part of a name.
        let word = word.replace("::", "\0");
        let mut parts = word.splitn(3, ':');
        let function = parts.next().unwrap_or_default().replace('\0', "::");
        let command = parts.next().unwrap_or_default();
        let parameter = parts.next();
        let start = usize::from(takes);
        let at = [start + function.len() + 1, start + function.len() + command.len() + 2];
        let Some((_, command)) = NAMES.into_iter().find(|(name, _)| *name == command) else {
            return Err(Wrong::argument(format!("no command '{command}'")).at(at[0]));
        };
        if function.is_empty() {
            return Err(Wrong::argument("no function named").at(start));
        }
        let glob = Glob::new(&function);
        if takes {
            let counted = parameter.is_some() || command == Command::Dump;
            let same = |trigger: &Trigger| trigger.command == command && trigger.count.is_some() == counted;
            if !self.0.iter().any(same) {
                let why = "no function has this trigger".into();
                return Err(Wrong { errno: Errno::NODEV, why, at: at[0] });
            }
            let before = self.0.len();
            self.0.retain(|trigger| !(same(trigger) && glob.matches(&trigger.function)));
            let none =
                || Wrong::argument(format!("no function with this trigger matches '{function}'")).at(start);
            return if self.0.len() == before { Err(none()) } else { Ok(()) };
        }
        let count = match (command, parameter) {
            (Command::Dump, _) => Some(1),
            (Command::CpuDump, _) | (_, None) => None,
            (_, Some("")) => Some(-1),
            (_, Some(text)) => {
                let none = || Wrong::argument(format!("'{text}' is no count")).at(at[1]);
                Some(number(text).ok_or_else(none)?)
            }
        };
        let known = |name: &str| {
            let same =
                |trigger: &&Trigger| trigger.command == command && trigger.count.is_some() == count.is_some();
            self.0.iter().filter(same).any(|trigger| trigger.function == name)
        };
        let new: Vec<Trigger> = functions
            .iter()
            .filter(|listed| matches(&glob, listed) && !known(&listed.function))
            .map(|listed| Trigger { function: listed.function.clone(), command, count })
            .collect();
        if new.is_empty() {
            let why = format!("no function without this trigger matches '{function}'");
            return Err(Wrong::argument(why));
        }
        let group = self
            .0
            .iter()
            .rposition(|trigger| trigger.command == command && trigger.count.is_some() == count.is_some());
        let at = group.map_or(0, |last| last + 1);
        self.0.splice(at..at, new);
        Ok(())
    }
}
