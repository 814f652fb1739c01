//! Selected functions that could not be traced; every view reports them first.

use crate::units::{MAX_NAMES, counted, first_of};
use calltap_names::demangle;
use calltap_trace::{Meta, Module, UntraceableFunction};
use std::collections::BTreeMap;

/// Returns one sentence about these functions of a trace, if there are any.
pub fn sentence(meta: &Meta) -> Option<String> {
    let all = number(meta);
    let first = named(meta).take(MAX_NAMES);
    let names: Vec<String> = first.map(|(_, function)| demangle(&function.name)).collect();
    (all > 0).then(|| {
        format!(
            "{} cannot be traced ({}): calls are missing, and callers' times include them; 'calltap info' has the reasons",
            counted(all, "selected function"),
            first_of(&names, all)
        )
    })
}

/// Returns the number of these functions.
pub fn number(meta: &Meta) -> u64 {
    files(meta).values().map(|module| module.untraceable.count).sum()
}

/// Returns those that the trace names, with their modules.
pub fn named(meta: &Meta) -> impl Iterator<Item = (&Module, &UntraceableFunction)> {
    files(meta).into_values().flat_map(named_of)
}

/// Returns one module of each file: processes that run the same file have the same functions.
fn files(meta: &Meta) -> BTreeMap<(&str, Option<&str>), &Module> {
    let mut files: BTreeMap<_, &Module> = BTreeMap::new();
    for module in &meta.modules {
        let file = files.entry((&*module.path, module.build_id.as_deref())).or_insert(module);
        if file.untraceable.count < module.untraceable.count {
            *file = module;
        }
    }
    files
}

fn named_of(module: &Module) -> impl Iterator<Item = (&Module, &UntraceableFunction)> {
    module.untraceable.named.iter().map(move |function| (module, function))
}
