//! Scripts: finds the interpreter, which is the traced program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The command that runs a script.
pub(super) struct Interpreted {
    /// The interpreter and its arguments.
    pub command: Vec<OsString>,
    /// Whether env would execute the interpreter, and not the kernel.
    pub by_env: bool,
}

/// Returns the command that the kernel makes of a script whose first line names an interpreter. For
/// `/usr/bin/env NAME`, the interpreter is the program that env would execute; for `-S`, its words.
pub(super) fn interpreted(path: &Path, data: &[u8], arguments: &[OsString]) -> Option<Interpreted> {
    let line = data.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    let rest = rest.trim_ascii();
    let is_env = Path::new(OsStr::from_bytes(interpreter)).file_name() == Some(OsStr::new("env"));
    let words: Vec<&[u8]> = match (is_env, rest.strip_prefix(b"-S")) {
        (true, Some(words)) => words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect(),
        (true, None) if !rest.is_empty() && !rest.starts_with(b"-") => vec![rest],
        _ if rest.is_empty() => vec![interpreter],
        _ => vec![interpreter, rest],
    };
    // env sets variables of this form.
    if words.is_empty() || words[0].is_empty() || is_env && words[0].contains(&b'=') {
        return None;
    }
    let words = words.into_iter().map(|word| OsStr::from_bytes(word).to_owned());
    let command = words.chain([path.as_os_str().to_owned()]).chain(arguments.iter().cloned()).collect();
    Some(Interpreted { command, by_env: is_env })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_is_parsed_as_kernel_and_env_do() {
        let check = |line: &str, expected: Option<&str>| {
            let made = interpreted(Path::new("/x/s"), line.as_bytes(), &["a b".into()]);
            let made = made.map(|made| {
                made.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("|")
            });
            assert_eq!(made.as_deref(), expected, "{line}");
        };
        check("#!/bin/sh\necho", Some("/bin/sh|/x/s|a b"));
        check("#! /bin/sh -e x \n", Some("/bin/sh|-e x|/x/s|a b"));
        check("#!/usr/bin/env python3\n", Some("python3|/x/s|a b"));
        check("#!/usr/bin/env -S python3 -u\n", Some("python3|-u|/x/s|a b"));
        check("#!/usr/bin/env A=1\n", None);
        check("#!", None);
        check("echo", None);
    }
}
