//! Reasons why an argument, a result or a condition cannot be read, each with code, text and
//! advice. `docs/reference/reasons.md` lists them; a test compares it with this table.

use calltap_sites::types::Unread;
use std::fmt;

calltap_sites::reasons! {
    /// The reason why values of a function's calls are not read.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Reason;

    // The request itself.
    ResultOnly { name: String } = "known-at-return",
        "'{name}' is known only when the function returns: it belongs to -R", "give it to -R";
    EntryOnly { name: String } = "known-at-entry",
        "'{name}' is known only when the function is entered: it belongs to -A", "give it to -A";
    ResultInCondition { name: String } = "result-in-condition",
        "'{name}' is known only when the function returns: a condition decides at its entry", "record it by -R, and look for the calls in the trace";
    TooMany { most: usize } = "too-many", "more than {most} values of a call", "read fewer";
    TooLong = "too-long", "the values of one call take too many steps to read", "read fewer";
    CallersAreNoNumber = "callers-no-number",
        "callers are not a number: record them by '-A FUNCTION@$callers'", "record them so";
    Float { name: String } = "floating-point",
        "'{name}' is a floating-point number: only whole ones can be compared", "compare another value";

    // Missing or unsuitable debugging information.
    NoArguments = "no-arguments",
        "no debugging information describes its arguments: name them, as in FUNCTION@arg1,arg2/s", "name them, or install debugging information";
    Altered = "altered-arguments",
        "the compiler has changed its arguments, and debugging information does not say how", "read values of its callers, or build without optimisation";
    NoNames { name: String } = "no-names",
        "no debugging information tells which argument is '{name}': write arg1, arg2 ...", "write arg1, or install debugging information";
    NoParameter { name: String, others: String } = "no-parameter",
        "no parameter is called '{name}' (there are: {others})", "choose one of these";
    NoOffsets { name: String } = "no-offsets",
        "no debugging information has the offset of '{name}': write +8(arg1)", "write the offset, or install debugging information";
    NoMember { name: String, members: String } = "no-member", "there is no '{name}' (there are: {members})", "choose one of these";
    BitField { name: String } = "bit-field", "'{name}' is a bit field", "read the word around it: +8(arg1)/x32";
    NoWhole { name: String } = "no-whole", "'{name}' has no known structure to be a member of", "write the offset: +8(arg1)";
    FarMember { name: String } = "far-member", "'{name}' is too far away", "none";
    Returned = "no-result-place", "it is not known where the result is", "give its form: retval/x64";
    Nothing = "no-result", "the function returns nothing", "none";
    Parameter { name: String, why: Unread } = "parameter", "'{name}' {why}", "see the second table";
    Result { why: Unread } = "result", "the result {why}", "see the second table";

    // The way the function is traced.
    GoFunction = "go-entry-only", "it is a Go function: its values need debugging information and Go 1.17 to 1.27, and exclude --if and $callers; 'stacks -F' needs no values", "keep its debugging information (no -ldflags=-s)";
    GoClock = "go-clock", "it is a Go function, whose values need a clock that orders the events of threads: --clock tsc or counter", "use one of these clocks";
    CollectedCode = "collected-code", "the program's collector finds code by return addresses on stacks, and its returns need a return stub", "trace its callers";
    ShadowMemory = "shadow-memory", "the program's sanitizer uses the memory where calltap would keep return addresses, so that returns are not recorded", "build it without the sanitizer";
    ThrowsByLibunwind = "libunwind", "the program throws exceptions by libunwind, and its returns need a return stub", "link libgcc_s in front of libunwind";
    Unseen { why: Box<calltap_sites::Reason> } = "return-unseen", "its returns are not recorded: {why}", "see the table of functions";

    NoFutures = "no-futures",
        "no symbol polls a future: this needs a Rust program with symbols, or a Python interpreter", "trace a program in Rust that has its symbols, or the interpreter that runs a program in Python";
    Several { all: Reasons } = "several", "{all}", "see each";
}

/// Several reasons, joined in a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reasons(pub Vec<Reason>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut texts, mut told) = (Vec::new(), Vec::new());
        for reason in &self.0 {
            let Reason::Parameter { why, .. } = reason else {
                texts.push(reason.to_string());
                continue;
            };
            if told.contains(why) {
                continue;
            }
            told.push(*why);
            let names: Vec<String> = self.0.iter().filter_map(|other| other.parameter(*why)).collect();
            texts.push(match names.len() {
                1 => reason.to_string(),
                _ => format!("each of {} {why}", names.join(", ")),
            });
        }
        f.write_str(&texts.join("; "))
    }
}

impl Reason {
    /// Returns the parameter, in quotes, that cannot be read for this reason.
    fn parameter(&self, unread: Unread) -> Option<String> {
        match self {
            Reason::Parameter { name, why } if *why == unread => Some(format!("'{name}'")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn reasons_include_their_facts() {
        let why = Reason::Parameter { name: "x".to_owned(), why: Unread::X87 };
        let all = Reason::Several { all: Reasons(vec![why, Reason::TooLong]) };
        assert_eq!(
            all.to_string(),
            "'x' is a number of x87; the values of one call take too many steps to read"
        );
        let of = |name: &str| Reason::Parameter { name: name.to_owned(), why: Unread::X87 };
        let all = Reasons(vec![of("x"), Reason::TooLong, of("y")]);
        assert_eq!(
            all.to_string(),
            "each of 'x', 'y' is a number of x87; the values of one call take too many steps to read"
        );
    }

    #[test]
    fn codes_are_unique_and_documented() {
        for all in [Reason::ALL, Unread::ALL] {
            assert_documented(all);
        }
    }
}
