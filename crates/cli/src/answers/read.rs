//! The values of calls that a question reads: `malloc@arg1`, `accept@retval .. close@arg1`.

use crate::command_line::arguments::Arguments;
use crate::command_line::values;
use anyhow::{Result, bail};
use calltap_analysis::answers::{Side, Widths};
use calltap_analysis::{Names, Word};
use calltap_trace::Meta;
use std::collections::BTreeSet;

/// The values of calls that are read.
#[derive(Clone)]
pub struct Read {
    /// Globs of the functions.
    pub functions: Vec<String>,
    /// Names of the values that are named one by one.
    pub items: Vec<String>,
    /// Rules as for `-A`.
    pub arguments: Vec<String>,
    /// Rules as for `-R`.
    pub results: Vec<String>,
    /// The two ends of a span.
    pub sides: [Side; 2],
}

impl Default for Read {
    fn default() -> Read {
        let none = || Side { text: String::new(), item: String::new(), returns: false };
        Read {
            functions: Vec::new(),
            items: Vec::new(),
            arguments: Vec::new(),
            results: Vec::new(),
            sides: [none(), none()],
        }
    }
}

impl Read {
    /// Parses `BEGIN@ITEM .. END@ITEM`.
    pub fn sides(text: &str) -> Result<Read> {
        let ends = text
            .split_once("..")
            .filter(|(begin, end)| ![begin, end].iter().any(|end| end.trim().is_empty()));
        let Some((begin, end)) = ends else {
            bail!(
                "'{text}': a span has two ends, 'BEGIN@ITEM .. END@ITEM', as in 'accept@retval .. close@arg1'"
            );
        };
        let mut read = Read::default();
        for (at, text) in [begin.trim(), end.trim()].into_iter().enumerate() {
            let (function, item) = text.split_once('@').unwrap_or((text, ""));
            if function.is_empty() || item.is_empty() || item.contains(',') {
                bail!("'{text}': one value of a function is named, as in 'close@arg1' or 'accept@retval'");
            }
            read.sides[at] = read.add(text, function, item);
        }
        Ok(read)
    }

    /// Takes the results with a format, as in `-R retval/x`, from a list of functions.
    pub fn take_results(&mut self, functions: &mut Vec<String>) {
        let is_result = |word: &String| matches!(word.split('/').next(), Some("retval" | "fpretval"));
        let items: Vec<String> = functions.extract_if(.., |word| is_result(word)).collect();
        let of_one =
            |function: &String| items.iter().map(|item| format!("{function}@{item}")).collect::<Vec<_>>();
        self.results.extend(functions.iter().flat_map(of_one));
    }

    /// Parses words of the form `FUNCTION@ITEM,...`.
    pub fn values(words: &[String]) -> Result<Read> {
        let mut read = Read::default();
        for text in words {
            let Some((function, items)) =
                text.split_once('@').filter(|(function, items)| !function.is_empty() && !items.is_empty())
            else {
                let function =
                    text.split('@').next().filter(|function| !function.is_empty()).unwrap_or("FUNCTION");
                bail!("'{text}' names no value: write '{function}@arg1' or '{function}@retval'");
            };
            for item in items.split(',') {
                read.add(text, function, item);
            }
        }
        Ok(read)
    }

    fn add(&mut self, text: &str, function: &str, item: &str) -> Side {
        let name = item.rsplit_once('/').map_or(item, |(name, _)| name).trim().to_owned();
        let returns = name.contains("retval");
        self.items.push(name.clone());
        let rule = format!("{function}@{item}");
        if returns {
            self.results.push(rule)
        } else {
            self.arguments.push(rule)
        }
        self.functions.push(function.to_owned());
        Side { text: text.to_owned(), item: name, returns }
    }

    /// Checks that a trace has the values.
    pub fn check(&self, meta: &Meta) -> Result<()> {
        let names = Names::new(meta, false);
        for (rules, flag, returns) in [(&self.arguments, "-A", false), (&self.results, "-R", true)] {
            for rule in rules {
                let (function, item) = rule.split_once('@').unwrap_or((rule, ""));
                let (word, name) =
                    (Word::new(function), item.rsplit_once('/').map_or(item, |(name, _)| name));
                let sites = meta.sites.iter().filter(|site| names.is(site.id, &word));
                let captured = sites.filter_map(|site| site.captured.as_deref());
                let values = captured.flat_map(|captured| match returns {
                    true => &captured.results,
                    false => &captured.arguments,
                });
                let recorded: BTreeSet<&str> = values.map(|value| value.name.as_str()).collect();
                if !recorded.contains(name) {
                    let recorded: Vec<String> =
                        recorded.iter().map(|name| format!("{function}@{name}")).collect();
                    let others = match &recorded[..] {
                        [] => String::new(),
                        names => format!(", and has {}", names.join(", ")),
                    };
                    bail!(
                        "the trace does not have {function}@{name}{others}: 'calltap record {flag} {rule}' reads it"
                    );
                }
            }
        }
        Ok(())
    }
}

/// Returns the widths of a histogram's buckets, as `--linear` and `--each` ask for.
pub fn widths(arguments: &Arguments) -> Result<Widths> {
    if arguments.is_set("each") && arguments.is_given("linear") {
        bail!(
            "--each and --linear exclude each other: one has a line for each value, the other one for each step"
        );
    }
    if arguments.is_set("each") || arguments.text("by").as_deref() == Some("value") {
        return Ok(Widths::Each);
    }
    match values::size_of(arguments, "linear")? {
        None => Ok(Widths::Log2),
        Some(0) => bail!("--linear: a width of 0 is not possible"),
        Some(width) => Ok(Widths::Linear(width)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_ends_of_one_value_each() {
        let read = Read::sides("accept@retval/d32 .. close@arg1").unwrap();
        assert_eq!(read.functions, ["accept", "close"]);
        assert_eq!(
            (&read.arguments[..], &read.results[..]),
            (&["close@arg1".to_owned()][..], &["accept@retval/d32".to_owned()][..])
        );
        assert_eq!((read.sides[0].item.as_str(), read.sides[0].returns), ("retval", true));
        for bad in ["f@arg1", "f .. g@arg1", "f@arg1 .. g", "f@arg1,arg2 .. g@arg1", "@arg1 .. g@arg1"] {
            assert!(Read::sides(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_named_with_their_functions() {
        let read = Read::values(&["malloc@arg1,retval".to_owned()]).unwrap();
        assert_eq!((read.arguments.len(), read.results.len()), (1, 1));
        assert!(Read::values(&["malloc".to_owned()]).is_err());
    }
}
