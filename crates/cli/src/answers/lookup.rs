//! Names of functions that are not traced, from the files of a process.

use calltap_analysis::answers::Lookup;
use calltap_trace::Module;
use std::collections::HashMap;
use std::path::Path;

/// Functions of a file: address, size, name; ascending.
type Functions = Vec<(u64, u64, String)>;

/// Looks in the files below `root`, where the process sees them. Each is read when it is first asked about.
pub fn in_files(root: String) -> Lookup {
    let mut files: HashMap<String, Functions> = HashMap::new();
    Box::new(move |module: &Module, address: u64| {
        let functions = files.entry(module.path.clone()).or_insert_with_key(|path| read(&root, path));
        let below = functions.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = functions.get(below.checked_sub(1)?)?;
        (*size == 0 || address - start < *size).then(|| name.clone())
    })
}

fn read(root: &str, path: &str) -> Functions {
    let file = calltap_sites::open(Path::new(&format!("{root}{path}")));
    let data = file.and_then(|file| calltap_sites::load(&file));
    // (Without it, a place in the module is all that can be said.)
    let binary = data.ok().and_then(|data| calltap_sites::read(&data, path).ok());
    let functions = binary.map(|binary| binary.functions).unwrap_or_default();
    let mut functions: Functions =
        functions.into_iter().map(|function| (function.address.0, function.size, function.name)).collect();
    functions.sort_unstable();
    functions
}
