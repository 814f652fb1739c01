//! Texts in the file's head that come from the recording.

use crate::labels::tid_of;
use calltap_analysis::units::one_line;
use calltap_trace::Meta;
use std::collections::BTreeMap;

/// Returns a name without blanks, which would end it for readers: blanks after a comma are dropped,
/// others become underscores. A name that begins with a dollar sign, which readers leave out as an
/// assembler's mark, gets an underscore in front.
pub(super) fn word(name: &str) -> String {
    let mut word = String::with_capacity(name.len());
    if name.is_empty() || name.starts_with('$') {
        word.push('_');
    }
    for letter in name.chars() {
        match letter {
            ' ' if word.ends_with(',') => {}
            letter if letter.is_whitespace() || letter.is_control() => word.push('_'),
            letter => word.push(letter),
        }
    }
    word
}

/// Returns `saved_cmdlines`: names of threads. A reused id has its newest name.
pub(super) fn cmdlines(meta: &Meta) -> String {
    let named = meta.threads.iter().filter(|thread| !thread.comm.trim().is_empty());
    let newest: BTreeMap<u32, &str> = named.map(|thread| (tid_of(thread), thread.comm.as_str())).collect();
    newest.into_iter().map(|(tid, comm)| format!("{tid} {}\n", one_line(comm))).collect()
}

/// Returns `trace_clock`: all clocks, with the one in use in brackets.
pub(super) fn clocks(has_time: bool) -> &'static str {
    if has_time {
        "local global counter uptime perf [mono] mono_raw boot x86-tsc\n"
    } else {
        "local global [counter] uptime perf mono mono_raw boot x86-tsc\n"
    }
}

/// Returns the beginning of the output of `uname -a`.
pub(super) fn system(meta: &Meta) -> String {
    meta.session
        .as_ref()
        .map_or_else(String::new, |session| format!("Linux {} {}", session.host, session.kernel))
}

/// Returns name and version of the program that wrote the recording.
pub(super) fn writer(meta: &Meta) -> String {
    meta.session
        .as_ref()
        .map_or_else(|| "calltap".to_owned(), |session| format!("calltap {}", session.calltap))
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn names_have_no_blanks() {
        let cases = [
            ("main", "main"),
            ("std::swap<int>(int&, int&)", "std::swap<int>(int&,int&)"),
            ("f(unsigned int, char const*)", "f(unsigned_int,char_const*)"),
            ("<core::iter::Map<I, F> as Iterator>::fold", "<core::iter::Map<I,F>_as_Iterator>::fold"),
            ("$a", "_$a"),
            ("a\tb\nc\u{1}", "a_b_c_"),
            ("", "_"),
        ];
        for (name, expected) in cases {
            assert_eq!(word(name), expected);
        }
    }
}
