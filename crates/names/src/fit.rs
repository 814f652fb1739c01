//! Names in little room.

use crate::path::parts;

/// Least width in which a name is shortened by its parts.
const MIN_WIDTH: usize = 12;
/// Sign for text that is left out.
const LEFT_OUT: char = '\u{2026}';

/// Returns a name in at most `width` characters. The own name of a function is kept before its
/// scopes, and then the end of its arguments, which tells overloads apart.
pub fn fitted(name: &str, width: usize) -> String {
    let length = |text: &str| text.chars().count();
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
}
