//! Names for tables that people read: shortened to what tells them apart.

use crate::path::{Part, parts};
use std::collections::{HashMap, HashSet};

/// How much of a name is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Detail {
    /// Paths without template arguments and argument lists.
    Path,
    /// With argument lists.
    Arguments,
    /// All of it.
    Full,
}

/// Of each name the shortest form that no other of them has: without template arguments (`<..>`) and argument lists, with argument lists, or in full. Names
/// that have none stay as they are.
pub fn shorten<'n>(names: impl IntoIterator<Item = &'n str>) -> HashMap<&'n str, String> {
    let all: HashSet<&str> = names.into_iter().collect();
    let (mut left, mut shown): (Vec<&str>, HashMap<&str, String>) =
        (all.into_iter().collect(), HashMap::new());
    for detail in [Detail::Path, Detail::Arguments, Detail::Full] {
        let mut by_form: HashMap<String, Vec<&str>> = HashMap::new();
        for name in std::mem::take(&mut left) {
            by_form.entry(fold(name, detail)).or_default().push(name);
        }
        for (form, of) in by_form {
            match &of[..] {
                [name] => drop(shown.insert(name, form)),
                // The full name is the last form.
                many => left.extend(many),
            }
        }
    }
    shown
}

fn fold(name: &str, detail: Detail) -> String {
    let is_plain = !name.contains(['<', '(']);
    if is_plain || detail == Detail::Full {
        return name.to_owned();
    }
    let end = name.find(" [clone ").unwrap_or(name.len());
    // `<T as Trait>::method`: what is in front is the name, and stays, folded itself.
    let show = |part: &Part| {
        let base = &name[part.base.clone()];
        let base = match base.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')) {
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

/// A type, or a type with its trait, without template arguments.
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
    use super::shorten;

    #[test]
    fn names_keep_what_tells_them_apart() {
        let cases = [
            ("main", "main"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<..>::push_back"),
            ("Srv::handle(int)", "Srv::handle(int)"),
            ("Srv::handle(double) const", "Srv::handle(double) const"),
            ("compute<int>(long)", "compute<int>(long)"),
            ("compute<char>(long)", "compute<char>(long)"),
            ("std::operator<< <char>(int)", "std::operator<<<..>"),
            ("<app::Job<u8> as core::Task<T>>::run", "<app::Job<..> as core::Task<..>>::run"),
            ("app::parse::<u8, fn(u8) -> u8>", "app::parse<..>"),
            ("f(int) [clone .cold]", "f [clone .cold]"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
        ];
        let shown = shorten(cases.iter().map(|(name, _)| *name));
        for (name, expected) in cases {
            assert_eq!(shown[name], expected, "{name}");
        }
    }
}
