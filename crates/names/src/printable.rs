//! Makes text from files and processes safe to show: the owner of a file chooses the names in it.

use std::borrow::Cow;

/// Escapes control characters, and characters that change the direction or the lines of text around
/// them (`\n`, `\u{1b}`, `\u{202e}`): a name cannot move the cursor, begin a line of its own or
/// look like another name.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Nearly every text is plain ASCII, for which this check is much faster.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(is_unseen) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unseen(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Decodes bytes that should be text, and escapes the text as [`printable`] does.
pub fn printable_bytes(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Whether a character is a control character, or one of Unicode's for directions, lines and
/// paragraphs.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_bytes};

    #[test]
    fn invisible_characters_are_escaped_and_others_kept() {
        let cases = [
            ("std::vec<int>::push(int const&)", "std::vec<int>::push(int const&)"),
            ("größe_\u{4e16}", "größe_\u{4e16}"),
            ("a\x1b[2J\nb\t", "a\\u{1b}[2J\\nb\\t"),
            ("\u{202e}cba\u{2066}\u{2069}\u{202a}", "\\u{202e}cba\\u{2066}\\u{2069}\\u{202a}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(shown), shown, "once is enough");
        }
        assert_eq!(printable_bytes(b"a\xffb\r"), "a\u{fffd}b\\r");
    }
}
