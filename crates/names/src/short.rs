//! Shortens the names in a table to what distinguishes them.

use crate::fit::without_modules;
use crate::path::{Part, parts};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Level of detail of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Detail {
    /// As [`Detail::Path`], and a trait's function without the modules of its type and trait.
    Types,
    /// The path without template arguments and argument lists.
    Path,
    /// The path with argument lists.
    Arguments,
}

/// The levels of a short name, the shortest first.
const DETAILS: [Detail; 3] = [Detail::Types, Detail::Path, Detail::Arguments];

/// A set of names, and the shortest form of each that no other name has: without template arguments
/// (`<..>`, in Go `[..]`) and argument lists, with argument lists, or in full. Names that are not
/// in the set stay as they are.
#[derive(Clone, Default, Debug)]
pub struct ShortNames {
    names: HashSet<String>,
    /// Number of names that have each form.
    forms: HashMap<String, usize>,
}

impl ShortNames {
    /// Adds a name. The shortest forms of other names may become longer.
    pub fn add(&mut self, name: &str) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let forms: HashSet<String> = DETAILS.map(|detail| fold(name, detail)).into();
        for form in forms {
            *self.forms.entry(form).or_default() += 1;
        }
    }

    /// Returns the shortest distinguishing form of a name.
    pub fn of(&self, name: &str) -> String {
        let mut forms = DETAILS.into_iter().map(|detail| fold(name, detail));
        let is_its_own = |form: &String| self.forms.get(form).is_none_or(|names| *names == 1);
        forms.find(is_its_own).unwrap_or_else(|| name.to_owned())
    }
}

impl<'n> FromIterator<&'n str> for ShortNames {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> ShortNames {
        let mut short = ShortNames::default();
        names.into_iter().for_each(|name| short.add(name));
        short
    }
}

/// Characters of a name in a message of one line, at most.
const IN_MESSAGE: usize = 100;

/// Returns the demangled name of a linker symbol for a message of one line: without template
/// arguments and argument lists if it is long, and cut if it is still long.
pub fn in_message(symbol: &str) -> String {
    let name = crate::demangle(symbol);
    if name.chars().count() <= IN_MESSAGE {
        return name;
    }
    let short = fold(&name, Detail::Path);
    match short.char_indices().nth(IN_MESSAGE - 1) {
        Some((end, last)) if end + last.len_utf8() < short.len() => format!("{}\u{2026}", &short[..end]),
        _ => short,
    }
}

/// Returns the last parts of a demangled name, as many as a user's word has, without template
/// arguments and argument lists. A word with brackets is compared with whole names.
pub fn last_parts(name: &str, word: &str) -> String {
    if word.contains(['<', '(']) {
        return name.to_owned();
    }
    let name = name.split(" [clone ").next().unwrap_or(name);
    let (short, count) = (fold(name, Detail::Path), word.split("::").count());
    let parts: Vec<&str> = short.split("::").collect();
    parts[parts.len().saturating_sub(count)..].join("::")
}

fn fold(name: &str, detail: Detail) -> String {
    let name = &*fold_shapes(name);
    // A method of Go has its receiver, and no arguments, in parentheses: `main.(*List).Push`.
    if !name.contains(['<', '(']) || name.contains(".(") {
        return name.to_owned();
    }
    let end = name.find(" [clone ").unwrap_or(name.len());
    // In `<T as Trait>::method` the first part is part of the name: it stays, folded itself.
    let show = |part: &Part| {
        let base = &name[part.base.clone()];
        let base = match base.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')) {
            Some(inner) if detail == Detail::Types => format!("<{}>", without_modules(&fold_type(inner))),
            Some(inner) => format!("<{}>", fold_type(inner)),
            None => base.to_owned(),
        };
        let generics = if part.generics.is_empty() { "" } else { "<..>" };
        let (arguments, tail) = match detail {
            Detail::Arguments => (&name[part.arguments.clone()], &name[part.tail.clone()]),
            _ => ("", ""),
        };
        format!("{base}{generics}{arguments}{tail}")
    };
    let path: Vec<String> = parts(&name[..end]).iter().map(show).collect();
    path.join("::") + &name[end..]
}

/// Returns a name of Go without the types that its compiler has put for type arguments.
fn fold_shapes(name: &str) -> Cow<'_, str> {
    let Some(start) = name.find("[go.shape.") else { return name.into() };
    let mut depth = 0;
    let end = name[start..].find(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        depth == 0
    });
    let Some(end) = end else { return name.into() };
    format!("{}[..]{}", &name[..start], fold_shapes(&name[start + end + 1..])).into()
}

/// Returns a type, or a type with its trait, without template arguments.
fn fold_type(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let (mut depth, mut before) = (0usize, ' ');
    for c in text.chars() {
        match c {
            '<' => {
                if depth == 0 {
                    folded.push_str("<..");
                }
                depth += 1;
            }
            '>' if before != '-' && depth > 0 => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            folded.push(c);
        }
        before = c;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::{IN_MESSAGE, ShortNames, in_message, last_parts};

    #[test]
    fn names_end_as_the_word_does() {
        let check = |name: &str, word: &str, expected: &str| {
            assert_eq!(last_parts(name, word), expected, "{name} {word}");
        };
        check("net::Srv::handle(int)", "handel", "handle");
        check("net::Srv::handle(int)", "Srv::handel", "Srv::handle");
        check("net::Srv::handle(int)", "a::b::c::d", "net::Srv::handle");
        check("net::Srv::handle(int)", "handel(int)", "net::Srv::handle(int)");
        check("std::vector<int>::push_back(int const&)", "pushback", "push_back");
        check("malloc", "mallok", "malloc");
        check("Srv::handle(int) [clone .isra.0]", "Handle", "handle");
    }

    #[test]
    fn a_name_in_a_message_is_short() {
        let check = |name: &str, expected: &str| assert_eq!(in_message(name), expected, "{name}");
        check("_ZN3Srv6handleEi", "Srv::handle(int)");
        let long = format!("std::map<{}>::~map()", "std::less<int>, ".repeat(20));
        check(&long, "std::map<..>::~map");
        check(&"f".repeat(IN_MESSAGE), &"f".repeat(IN_MESSAGE));
        check(&"\u{e4}".repeat(IN_MESSAGE + 1), &("\u{e4}".repeat(IN_MESSAGE - 1) + "\u{2026}"));
    }

    #[test]
    fn shortened_names_stay_distinct() {
        let cases = [
            ("main", "main"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<..>::push_back"),
            ("Srv::handle(int)", "Srv::handle(int)"),
            ("Srv::handle(double) const", "Srv::handle(double) const"),
            ("compute<int>(long)", "compute<int>(long)"),
            ("compute<char>(long)", "compute<char>(long)"),
            ("std::operator<< <char>(int)", "std::operator<<<..>"),
            ("<app::Job<u8> as core::Task<T>>::run", "<Job<..> as Task<..>>::run"),
            ("<app::a::Job as core::Drop>::drop", "<app::a::Job as core::Drop>::drop"),
            ("<app::b::Job as core::Drop>::drop", "<app::b::Job as core::Drop>::drop"),
            ("app::parse::<u8, fn(u8) -> u8>", "app::parse<..>"),
            ("f(int) [clone .cold]", "f [clone .cold]"),
            ("main.pair[go.shape.struct { main.a int },go.shape.[]int]", "main.pair[..]"),
            ("main.Map[go.shape.int,go.shape.string]", "main.Map[go.shape.int,go.shape.string]"),
            ("main.Map[go.shape.string,go.shape.int]", "main.Map[go.shape.string,go.shape.int]"),
            ("main.(*List[go.shape.int]).Push", "main.(*List[..]).Push"),
            ("sync.(*Mutex).Lock", "sync.(*Mutex).Lock"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
        ];
        let mut short: ShortNames = cases.iter().map(|(name, _)| *name).collect();
        for (name, expected) in cases {
            assert_eq!(short.of(name), expected, "{name}");
        }
        // A name that is added later has a longer form, and so has the name that shared its short
        // form.
        short.add("std::vector<char>::push_back(char)");
        assert_eq!(short.of("std::vector<char>::push_back(char)"), "std::vector<..>::push_back(char)");
        let first = "std::vector<int, std::allocator<int> >::push_back(int const&)";
        assert_eq!(short.of(first), "std::vector<..>::push_back(int const&)");
    }
}
