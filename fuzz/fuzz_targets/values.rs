//! What users write after -A, -R and --if, and what a file says of its functions.
#![no_main]
use calltap_sites::types::Types;
use calltap_values::{Known, Rules};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let (text, file) = data.split_at(data.len().min(64));
    let text = [String::from_utf8_lossy(text).into_owned()];
    let types = Types::parse(file).ok().flatten().map(Arc::new);
    for words in [[&text[..], &[], &[]], [&[], &text, &[]], [&[], &[], &text]] {
        let Ok(rules) = Rules::new(words[0], words[1], words[2]) else { continue };
        let _ = rules.of(&|_| true, &|| None);
        for address in types.iter().flat_map(|types| types.functions()).take(100) {
            let known = || {
                let types = types.clone()?;
                let signature = types.signature(address)?;
                Some(Known { types, signature })
            };
            let _ = rules.of(&|_| true, &known);
        }
    }
});
