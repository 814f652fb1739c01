//! Compiles arguments, results and conditions from the user's words ([`words`]), with debugging
//! information where it exists, to programs that a hook runs (`calltap_abi::values`), and to the
//! meaning of the bytes that they store.
//!
//! Safe code that only computes.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod compile;
mod futures;
mod go;
mod program;
mod reason;
mod steps;
mod syntax;
pub mod words;

pub use go::{FirstArgument, READY, is_readied, readied};
pub use program::Program;
pub use reason::{Reason, Reasons};
pub use steps::DescribedFunction;
pub use syntax::Syntax;

use calltap_names::Word;
use calltap_sites::{Poll, PollKind};
use std::sync::Arc;
use words::{Condition, Item, Operand, Rule};

/// The values to read, and the conditions on which calls are recorded.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    arguments: Vec<Rule>,
    results: Vec<Rule>,
    conditions: Vec<Condition>,
    /// Whether the polled future is read in functions that poll futures.
    futures: bool,
}

impl Rules {
    /// Parses the user's words: arguments, results, conditions.
    pub fn new(arguments: &[String], results: &[String], conditions: &[String]) -> Result<Rules, Syntax> {
        let rules = |texts: &[String]| texts.iter().map(|text| words::rule(text)).collect::<Result<_, _>>();
        let conditions = conditions.iter().map(|text| words::condition(text)).collect::<Result<_, _>>()?;
        Ok(Rules { arguments: rules(arguments)?, results: rules(results)?, conditions, futures: false })
    }

    /// Sets whether polls also read what identifies their future.
    pub fn with_futures(self, futures: bool) -> Rules {
        Rules { futures, ..self }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.results.is_empty() && self.conditions.is_empty() && !self.futures
    }

    /// Whether there are conditions.
    pub fn have_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether the calls of a function are recorded on a condition. `is`: whether a word matches
    /// the function's names.
    pub fn have_condition_for(&self, is: &dyn Fn(&Word) -> bool) -> bool {
        self.conditions.iter().any(|condition| condition.glob.as_ref().is_none_or(is))
    }

    /// Returns the globs of the functions that the rules name.
    pub fn globs(&self) -> impl Iterator<Item = &Word> {
        let conditions = self.conditions.iter().filter_map(|condition| condition.glob.as_ref());
        self.arguments.iter().chain(&self.results).map(|rule| &rule.glob).chain(conditions)
    }

    /// Returns the globs of the functions of which values are named.
    pub fn naming(&self) -> impl Iterator<Item = &Word> {
        let rules = self.arguments.iter().chain(&self.results);
        rules.filter(|rule| !rule.items.is_empty()).map(|rule| &rule.glob)
    }

    /// Compiles the program of a function; None if no value is read. `is`: whether a word matches
    /// the function's names.
    pub fn of(
        &self,
        is: &dyn Fn(&Word) -> bool,
        poll: Option<&Poll>,
        known: &dyn Fn() -> Option<DescribedFunction>,
    ) -> Result<Option<Arc<Program>>, Reason> {
        let arguments: Vec<&Rule> = self.arguments.iter().filter(|rule| is(&rule.glob)).collect();
        let results: Vec<&Rule> = self.results.iter().filter(|rule| is(&rule.glob)).collect();
        let conditions: Vec<&Condition> =
            self.conditions.iter().filter(|condition| condition.glob.as_ref().is_none_or(is)).collect();
        let poll = poll.filter(|_| self.futures);
        let own = arguments.is_empty() && results.is_empty() && conditions.is_empty();
        if own && poll.is_none() {
            return Ok(None);
        }
        let tells = |poll: &Poll| !matches!(poll.kind, PollKind::Body | PollKind::Drop | PollKind::Wake);
        // A rule that applies to every function should not make calltap read all debugging
        // information.
        let plain = |rule: &&Rule| {
            matches!(&rule.items[..], [Item { operand: Operand::Stack | Operand::Callers(_), .. }])
        };
        let plain = conditions.is_empty() && results.is_empty() && arguments.iter().all(plain);
        let known = if plain && !poll.is_some_and(tells) { None } else { known() };
        let program = compile::compile(poll, &arguments, &results, &conditions, known.as_ref())?;
        Ok(program.map(Arc::new))
    }
}
