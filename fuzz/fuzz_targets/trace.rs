//! Any bytes as a trace file, through the reader and a view. `cargo +nightly fuzz run trace`
#![no_main]

use calltap_analysis::report;
use std::io::Write;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(data).unwrap();
    if let Ok(reader) = calltap_trace::TraceReader::open(file.path()) {
        let _ = report::collect(&reader, &report::Options::default(), None);
    }
});
