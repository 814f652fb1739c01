//! Names in little room.

use crate::path::parts;

/// Least width in which a name is shortened by its parts.
const MIN_WIDTH: usize = 12;
/// Sign for text that is left out.
const LEFT_OUT: char = '\u{2026}';

/// Returns a name in at most `width` characters. The own name of a function is kept before its
/// scopes, and then the end of its arguments, which tells overloads apart. Of a trait's function,
/// the type is kept, which tells implementations apart.
pub fn fitted(name: &str, width: usize) -> String {
    if length(name) <= width {
        return name.to_owned();
    }
    let Some([of, of_trait, own]) = implementation(name).filter(|_| width >= MIN_WIDTH) else {
        return fitted_path(name, width);
    };
    let [of, of_trait] = [of, of_trait].map(without_modules);
    let whole = format!("<{of}{of_trait}{own}");
    if length(&whole) <= width {
        return whole;
    }
    let with_type = format!("<{of}{own}");
    match width.checked_sub(length(own) + 2).filter(|_| length(&with_type) > width) {
        Some(room) => format!("<{}{LEFT_OUT}{own}", of.chars().take(room).collect::<String>()),
        None => fitted_path(&with_type, width),
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Splits the name of a trait's function, `<T as Trait>::function`, into `T`, ` as Trait` and the
/// rest.
pub(crate) fn implementation(name: &str) -> Option<[&str; 3]> {
    let inside = name.strip_prefix('<')?;
    let (mut depth, mut of) = (0, None);
    for (at, character) in inside.char_indices() {
        match character {
            '<' | '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !inside[..at].ends_with('-') => depth -= 1,
            ' ' if depth == 0 && inside[at..].starts_with(" as ") => of = of.or(Some(at)),
            _ => {}
        }
        if depth < 0 {
            return of.map(|of| [&inside[..of], &inside[of..at], &inside[at..]]);
        }
    }
    None
}

/// Returns a text without the modules of its paths: `&mut a::b::C<d::E>` as `&mut C<E>`.
pub(crate) fn without_modules(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("::") {
        let (before, behind) = rest.split_at(at);
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let module = before.chars().rev().take_while(|character| is_part(*character)).count();
        kept.push_str(&before[..before.len() - end(before, module).len()]);
        // Behind a type in brackets is what belongs to it.
        kept.push_str(if module == 0 { "::" } else { "" });
        rest = &behind[2..];
    }
    kept + rest
}

fn fitted_path(name: &str, width: usize) -> String {
    if length(name) <= width {
        return name.to_owned();
    }
    if width < MIN_WIDTH {
        return name.chars().take(width.saturating_sub(1)).chain([LEFT_OUT]).take(width).collect();
    }
    let (own, arguments) = name.split_at(arguments_at(name).unwrap_or(name.len()));
    if arguments.is_empty() {
        return format!("{LEFT_OUT}{}", end(own, width - 1));
    }
    // `(`, the sign, and `)`.
    let around = 3;
    match width.checked_sub(length(own) + around) {
        Some(room) => {
            let inside = arguments.get(1..).unwrap_or_default();
            format!("{own}({LEFT_OUT}{}", end(inside, room + 1))
        }
        None => format!("{LEFT_OUT}{}({LEFT_OUT})", end(own, width - 1 - around)),
    }
}

/// Returns the last characters of a text, at most `most`.
fn end(text: &str, most: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(most);
    text.char_indices().nth(skipped).map_or("", |(at, _)| &text[at..])
}

/// Returns the position of the argument list of a function. In names of Go, parentheses are those
/// of a receiver: `main.(*List).Push`.
fn arguments_at(name: &str) -> Option<usize> {
    let last = parts(name).pop().filter(|_| !name.contains(".("))?;
    (!last.arguments.is_empty()).then_some(last.arguments.start)
}

#[cfg(test)]
mod tests {
    use super::fitted;

    fn check(name: &str, width: usize, expected: &str) {
        let found = fitted(name, width);
        assert_eq!(found, expected, "{name} in {width}");
        assert!(found.chars().count() <= width, "{found}");
    }

    #[test]
    fn own_names_are_kept_before_scopes_and_arguments() {
        check("main", 12, "main");
        check("a::b::handle(int)", 17, "a::b::handle(int)");
        check("a::b::handle(std::string const&)", 24, "a::b::handle(\u{2026}ng const&)");
        check("a::b::handle(std::string const&)", 16, "a::b::handle(\u{2026}&)");
        check("scope::of::handle(std::string const&)", 14, "\u{2026}of::handle(\u{2026})");
        check("scope::of::handle() const", 20, "scope::of::handle(\u{2026}t");
        check("github.com/a/b.(*T).Do", 12, "\u{2026}a/b.(*T).Do");
        check("krate::module::function", 16, "\u{2026}odule::function");
        check("(anonymous namespace)::f", 12, "\u{2026}mespace)::f");
        check("\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", 3, "\u{e4}\u{e4}\u{2026}");
        check("abc", 0, "");
    }

    #[test]
    fn types_of_implementations_are_kept() {
        let name = "<web::net::conn::Tcp<web::Tls> as web::net::conn::Handler>::handle";
        check(name, 66, name);
        check(name, 40, "<Tcp<Tls> as Handler>::handle");
        check(name, 20, "<Tcp<Tls>>::handle");
        check(name, 16, "<Tcp<T\u{2026}>::handle");
        check(name, 12, "<T\u{2026}>::handle");
        check("<&mut a::b::C as core::ops::Fn<(a::D,)>>::call", 30, "<&mut C as Fn<(D,)>>::call");
        check("<a::b::C>::function_of_type", 24, "\u{2026}b::C>::function_of_type");
        check("<fn(a::B) -> a::C as a::D>::e", 24, "<fn(B) -> C as D>::e");
        check("<a::B as c::D<dyn e::F>>::long_name::{closure#0}", 24, "\u{2026}:long_name::{closure#0}");
    }
}
