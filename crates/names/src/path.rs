//! Parses a demangled name into the parts of its path, each with template arguments and argument
//! list.

use std::ops::Range;

/// A range of the text.
type Span = Range<usize>;

/// A part of a path. An ABI tag (`[abi:cxx11]`) is in none of its spans.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Part {
    /// The identifier, operator, lambda or closure.
    pub base: Span,
    /// Template arguments `<...>`.
    pub generics: Span,
    /// Argument list `(...)`.
    pub arguments: Span,
    /// The text up to the next part: ` const`, `&&`.
    pub tail: Span,
}

/// The parts of a path, outermost first.
pub(crate) type Path = Vec<Part>;

/// Operators longer than one character, each before its own prefixes.
const OPERATORS: [&str; 26] = [
    "()", "[]", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "==", "!=", "&&", "||", "++", "--",
    "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "\"\"",
];
const OPERATOR: &str = "operator";

/// Returns the paths of a function with this demangled name.
pub(crate) fn paths(text: &str) -> Vec<Path> {
    let end = text.find(" [clone ").unwrap_or(text.len());
    let whole = parse(text, 0..end);
    let Some((at, inside)) = whole.iter().enumerate().find_map(|(n, part)| Some((n, qualified(text, part)?)))
    else {
        return vec![whole];
    };
    let (before, after) = (&whole[..at], &whole[at + 1..]);
    let mut paths: Vec<Path> = inside
        .into_iter()
        .map(|span| [parse(text, without_sigils(text, span)), after.to_vec()].concat())
        .collect();
    if !before.is_empty() {
        paths.push([before, after].concat());
    }
    paths
}

/// Returns the parts of a name as written, as one path.
pub(crate) fn parts(text: &str) -> Path {
    parse(text, 0..text.len())
}

/// Returns the types and traits in `<T as Trait>`, `<impl T>` and `<impl Trait for T>`.
fn qualified(text: &str, part: &Part) -> Option<Vec<Span>> {
    text[part.base.clone()].strip_prefix('<')?.strip_suffix('>')?;
    let (start, end) = (part.base.start + 1, part.base.end - 1);
    let inner = &text[start..end];
    let (skipped, between) = if inner.starts_with("impl ") { (5, " for ") } else { (0, " as ") };
    let start = start + skipped;
    Some(match at_top(&text[start..end], between) {
        Some(at) => vec![start..start + at, start + at + between.len()..end],
        None => std::iter::once(start..end).collect(),
    })
}

/// Returns a type without the sigils before its path: `&`, `mut`, `dyn`.
fn without_sigils(text: &str, span: Span) -> Span {
    let mut start = span.start;
    while let Some(found) = ["&", "*const ", "*mut ", "mut ", "dyn ", " "]
        .iter()
        .find(|sigil| text[start..span.end].starts_with(**sigil))
    {
        start += found.len();
    }
    start..span.end
}

/// Returns the position of a text outside of all brackets.
pub(crate) fn at_top(text: &str, wanted: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        at = next(text, at);
    }
    None
}

/// Returns the position after the character at `at`, or after the operator's name or bracketed
/// group that begins there.
fn next(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    if let Some(length) = operator(text, at) {
        return at + length;
    }
    match rest.chars().next() {
        Some('<' | '(' | '{') => group(text, at),
        Some(c) => at + c.len_utf8(),
        None => text.len(),
    }
}

/// Returns the position after the group that begins at `at`; the end of the text if it is not
/// closed.
fn group(text: &str, at: usize) -> usize {
    let (mut depth, mut before) = (0usize, ' ');
    for (n, c) in text[at..].char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
        if depth == 0 {
            return at + n + c.len_utf8();
        }
    }
    text.len()
}

/// Returns the length of an operator's name at `at`: `operator<`, `operator()`, `operator new`,
/// `operator std::string`.
fn operator(text: &str, at: usize) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let rest = text[at..].strip_prefix(OPERATOR)?;
    if text[..at].ends_with(is_word) || rest.starts_with(is_word) {
        return None;
    }
    if rest.starts_with(' ') {
        let mut end = 1;
        while end < rest.len() && !rest[end..].starts_with('(') {
            let is_group = rest[end..].starts_with(['<', '{']);
            end = if is_group {
                group(rest, end)
            } else {
                end + rest[end..].chars().next().map_or(1, char::len_utf8)
            };
        }
        return Some(OPERATOR.len() + end);
    }
    let longer =
        OPERATORS.iter().find(|operator| rest.starts_with(**operator)).map(|operator| operator.len());
    let length = longer.or_else(|| rest.chars().next().filter(|c| !c.is_whitespace()).map(char::len_utf8));
    length.map(|length| OPERATOR.len() + length)
}

/// Parses a range of text into parts.
fn parse(text: &str, span: Span) -> Path {
    let text = &text[..span.end];
    let (mut path, mut at) = (Path::new(), span.start);
    while at < span.end {
        at = part(text, at, &mut path);
    }
    path
}

/// Parses the part that begins at `start`; returns the beginning of the next one.
fn part(text: &str, start: usize, path: &mut Path) -> usize {
    let mut part = Part { base: start..start, ..Part::default() };
    let mut at = start;
    // Whether the base has ended.
    let mut ended = false;
    while at < text.len() && !text[at..].starts_with("::") {
        let rest = &text[at..];
        let end = next(text, at);
        if rest.starts_with('<') && at == start && is_turbofish(text, at, path) {
            // `f::<u8>`: the arguments belong to the part before.
            if let Some(last) = path.last_mut() {
                last.generics = at..end;
            }
            return text.len().min(if text[end..].starts_with("::") { end + 2 } else { end });
        } else if rest.starts_with("[abi:") {
            ended = true;
            at = rest.find(']').map_or(text.len(), |close| at + close + 1);
            continue;
        } else if rest.starts_with('<') && at > start && part.arguments.is_empty() && part.generics.is_empty()
        {
            (ended, part.generics) = (true, at..end);
        } else if rest.starts_with('(') && at > start && part.arguments.is_empty() {
            (ended, part.arguments) = (true, at..end);
        } else if ended {
            let from = if part.tail.is_empty() { at } else { part.tail.start };
            part.tail = from..end;
        } else {
            part.base.end = end;
        }
        at = end;
    }
    // `operator<< <char>` has a blank after the operator.
    part.base.end = part.base.start + text[part.base.clone()].trim_end().len();
    path.push(part);
    (at + 2).min(text.len())
}

/// Whether the brackets are arguments of the part before, rather than a type with its trait.
fn is_turbofish(text: &str, at: usize, path: &Path) -> bool {
    !path.is_empty() && !text[at..].starts_with("<impl ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the paths of a name, with parts separated by `|`: base, template arguments, argument
    /// list, rest.
    fn check(name: &str, expected: &[&str]) {
        let show = |path: &Path| {
            let part = |part: &Part| {
                let spans = [&part.base, &part.generics, &part.arguments, &part.tail];
                spans.map(|span| &name[span.clone()]).join("~").trim_end_matches('~').to_owned()
            };
            path.iter().map(part).collect::<Vec<_>>().join("|")
        };
        assert_eq!(paths(name).iter().map(show).collect::<Vec<_>>(), expected, "{name}");
    }

    #[test]
    fn names_of_cpp() {
        check("main", &["main"]);
        check("ns::Box<int>::put<char>(char) const", &["ns|Box~<int>|put~<char>~(char)~ const"]);
        check(
            "ns::name[abi:cxx11](std::vector<int, std::allocator<int> > const&)",
            &["ns|name~~(std::vector<int, std::allocator<int> > const&)"],
        );
        check("Box<int>::operator()(int)", &["Box~<int>|operator()~~(int)"]);
        check("Box<int>::operator[](int)", &["Box~<int>|operator[]~~(int)"]);
        check("Box<int>::operator->()", &["Box~<int>|operator->~~()"]);
        check(
            "Box<int>::operator<(Box<int> const&) const",
            &["Box~<int>|operator<~~(Box<int> const&)~ const"],
        );
        check("std::operator<< <char>(int)", &["std|operator<<~<char>~(int)"]);
        check(
            "Box<int>::operator std::vector<int>() const",
            &["Box~<int>|operator std::vector<int>~~()~ const"],
        );
        check("operator new(unsigned long)", &["operator new~~(unsigned long)"]);
        check("(anonymous namespace)::anon(int)", &["(anonymous namespace)|anon~~(int)"]);
        check(
            "Srv::handle(int) const::{lambda(int)#1}::operator()(int) const",
            &["Srv|handle~~(int)~ const|{lambda(int)#1}|operator()~~(int)~ const"],
        );
        check(
            "std::_Function_handler<int (char), main::{lambda(char)#1}>::_M_invoke(char&&)",
            &["std|_Function_handler~<int (char), main::{lambda(char)#1}>|_M_invoke~~(char&&)"],
        );
        check("f(int) [clone .isra.0]", &["f~~(int)"]);
    }

    #[test]
    fn names_of_rust() {
        check("app::serve::{closure#0}", &["app|serve|{closure#0}"]);
        check("app::parse::<u8, fn(u8) -> u8>", &["app|parse~<u8, fn(u8) -> u8>"]);
        check("<app::T as core::fmt::Debug>::fmt", &["app|T|fmt", "core|fmt|Debug|fmt"]);
        check("<alloc::vec::Vec<u8>>::push", &["alloc|vec|Vec~<u8>|push"]);
        check("<&mut app::T as Tr<u8>>::go::<i8>", &["app|T|go~<i8>", "Tr~<u8>|go~<i8>"]);
        check("core::str::<impl str>::parse", &["str|parse", "core|str|parse"]);
        check("app::<impl app::Tr for app::T>::go", &["app|Tr|go", "app|T|go", "app|go"]);
    }

    #[test]
    fn nothing_that_is_not_closed_is_in_the_way() {
        for text in [
            "f(",
            "a<b",
            "<",
            "<a",
            "operator",
            "operator ",
            "::",
            "a::",
            "[abi:",
            "a[abi:",
            "(",
            "{x",
            "é<é",
        ] {
            let _ = paths(text);
        }
    }
}
