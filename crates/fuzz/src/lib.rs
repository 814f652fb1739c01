//! The bodies of the fuzz targets, each of which accepts any bytes. `fuzz/` runs them under
//! libFuzzer, `main.rs` on mutated seeds with a stable compiler.
#![forbid(unsafe_code)]

pub mod mutate;
pub mod seeds;

use calltap_analysis::report;
use calltap_sites::types::Types;
use calltap_values::{DescribedFunction, Rules};
use seeds::TEXT;
use std::io::Write;
use std::sync::Arc;

/// A fuzz target.
pub type Body = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Body); 7] = [
    ("elf", elf),
    ("object", object),
    ("trace", trace),
    ("trace_dat", trace_dat),
    ("glob", glob),
    ("log", log),
    ("values", values),
];

/// Reads any bytes as an ELF file.
pub fn elf(data: &[u8]) {
    let _ = calltap_sites::may_have_sites(data);
    if let Ok(mut binary) = calltap_sites::read(data, "fuzz") {
        let _ = calltap_sites::find_prologues(data, &mut binary, true);
        let _ = calltap_sites::add_library_calls(data, &mut binary);
        assert!(binary.functions.is_sorted_by_key(|function| function.address), "in address order");
    }
}

/// Reads any bytes as an object file.
pub fn object(data: &[u8]) {
    if let Ok(Some(new)) = calltap_recordmcount::add(data) {
        assert!(new.len() > data.len() / 2, "nothing is taken away");
        let _ = calltap_recordmcount::add(&new);
    }
}

/// Reads any bytes as a trace file, and makes a report.
pub fn trace(data: &[u8]) {
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(data).is_err() {
        return;
    }
    if let Ok(reader) = calltap_trace::TraceReader::open(file.path()) {
        let _ = report::collect(&reader, &report::Options::default(), None);
    }
}

/// Imports any bytes as a trace.dat, and makes a report of the result.
pub fn trace_dat(data: &[u8]) {
    let Ok(output) = tempfile::NamedTempFile::new() else { return };
    let named = calltap_import::Named { file: "fuzz", calltap: "0" };
    if calltap_import::import(&data.to_vec(), named, output.path()).is_ok() {
        let reader = calltap_trace::TraceReader::open(output.path()).expect("what was written can be read");
        assert!(reader.complaints().iter().all(|complaint| !complaint.contains("damaged")));
        let _ = report::collect(&reader, &report::Options::default(), None);
    }
}

/// Matches any pattern with any name; a zero byte separates them.
pub fn glob(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pattern, name) = text.split_once('\0').unwrap_or((&text, &text));
    let _ = calltap_analysis::Glob::new(pattern).matches(name);
}

/// Audits any lines as a log of code changes.
pub fn log(data: &[u8]) {
    let lines = String::from_utf8_lossy(data);
    let _ = calltap_patch::Audit::of(lines.lines().filter_map(|line| line.parse().ok()));
}

/// Parses the first 64 bytes as the words of -A, -R and --if, and applies them to functions of the
/// rest, a file with debugging information.
pub fn values(data: &[u8]) {
    let (text, file) = data.split_at(data.len().min(TEXT));
    let text = [String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()];
    let types = Types::parse(file).ok().flatten().map(Arc::new);
    for words in [[&text[..], &[], &[]], [&[], &text, &[]], [&[], &[], &text]] {
        let Ok(rules) = Rules::new(words[0], words[1], words[2]) else { continue };
        let _ = rules.of(&|_| true, None, &|| None);
        for address in types.iter().flat_map(|types| types.functions()).take(100) {
            let known = || {
                let types = types.clone()?;
                let signature = types.signature(address)?;
                Some(DescribedFunction { types, signature, name: None })
            };
            let _ = rules.of(&|_| true, None, &known);
        }
    }
}
