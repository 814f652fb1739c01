//! Colours of modules on a terminal.
//!
//! The functions of the first module, which is normally the program, keep the terminal's colour.
//! Each other module has one of the terminal's own colours, which its theme makes legible.

use calltap_names::file_name;
use calltap_trace::Meta;
use std::borrow::Cow;
use std::collections::HashSet;

/// Parameters of the SGR sequences that begin a colour: cyan, green, yellow, magenta and bright
/// blue, green, magenta and cyan. Red is left to errors.
const COLOURS: [&str; 8] = ["36", "32", "33", "35", "94", "92", "95", "96"];
/// Begins a sequence that selects a colour; `m` ends it.
const BEGIN: &str = "\x1b[";
/// Selects the terminal's own colour.
const END: &str = "\x1b[39m";

/// The colours of the modules of a trace, by file name. Empty: no module has a colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Colours {
    modules: Vec<String>,
}

impl Colours {
    /// Returns the colours of the modules that have functions.
    pub(crate) fn new(meta: &Meta) -> Colours {
        let with_functions: HashSet<usize> = meta.sites.iter().map(|site| site.module as usize).collect();
        let mut modules: Vec<String> = Vec::new();
        for (at, module) in meta.modules.iter().enumerate() {
            let name = file_name(&module.path);
            if with_functions.contains(&at) && !modules.iter().any(|known| known == name) {
                modules.push(name.to_owned());
            }
        }
        Colours { modules }
    }

    /// Returns a text in the colour of a module.
    pub(crate) fn paint<'a>(&self, module: &str, text: Cow<'a, str>) -> Cow<'a, str> {
        let number = self.modules.iter().position(|known| known == module);
        match number.and_then(|number| number.checked_sub(1)) {
            Some(number) => format!("{BEGIN}{}m{text}{END}", COLOURS[number % COLOURS.len()]).into(),
            None => text,
        }
    }
}

/// Returns the number of characters of a text on a terminal: without sequences that select colours.
pub(crate) fn width(text: &str) -> usize {
    let pieces = text.split(BEGIN).skip(1).map(|piece| piece.split_once('m').map_or("", |(_, rest)| rest));
    text.split(BEGIN).take(1).chain(pieces).map(|piece| piece.chars().count()).sum()
}

/// Applies a change to a text, without the sequences that select its colour.
pub(crate) fn map(text: &str, change: impl Fn(&str) -> String) -> String {
    let begun = text.strip_prefix(BEGIN).and_then(|rest| rest.split_once('m'));
    match begun.and_then(|(colour, rest)| Some((colour, rest.strip_suffix(END)?))) {
        Some((colour, inner)) => format!("{BEGIN}{colour}m{}{END}", change(inner)),
        None => change(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_columns() {
        let modules = ["app", "libc.so.6", "libm.so.6"].map(str::to_owned).to_vec();
        let colours = Colours { modules };
        assert_eq!(colours.paint("app", "main".into()), "main");
        assert_eq!(colours.paint("other", "f".into()), "f");
        let (one, other) =
            (colours.paint("libc.so.6", "m\u{e4}h".into()), colours.paint("libm.so.6", "m".into()));
        assert_eq!((one.as_ref(), other.as_ref()), ("\x1b[36mm\u{e4}h\x1b[39m", "\x1b[32mm\x1b[39m"));
        assert_eq!(map(&one, |text| text.to_uppercase()), "\x1b[36mM\u{c4}H\x1b[39m");
        assert_eq!(map("plain", |text| text.to_uppercase()), "PLAIN");
        assert_eq!([width(&one), width(&other), width("ab"), width("")], [3, 1, 2, 0]);
    }
}
