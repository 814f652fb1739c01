//! Names of functions that are not traced, from the files of a process.

use calltap_analysis::answers::{Lookup, is_place};
use calltap_selection::debug_files::name_functions;
use calltap_sites::{Binary, Role};
use calltap_trace::Module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Number of functions in front of an address that are searched for the one that holds it.
const SEARCHED: usize = 64;

/// The functions of a file: address, size, name; ascending. A function without a size extends to
/// the next.
type Functions = Vec<(u64, u64, String)>;

/// Returns a lookup in the files below `root`, as the process sees them. A file is read when an
/// address in it is first looked up.
pub fn in_files(root: String) -> Lookup {
    let mut files: HashMap<(String, Option<String>), Functions> = HashMap::new();
    Box::new(move |module: &Module, address: u64| {
        let key = (module.path.clone(), module.build_id.clone());
        let functions = files.entry(key).or_insert_with(|| read(&root, module));
        find(functions, address).map(str::to_owned)
    })
}

fn find(functions: &Functions, address: u64) -> Option<&str> {
    let before = functions.partition_point(|(start, ..)| *start <= address);
    let candidates = functions[..before].iter().rev().take(SEARCHED);
    let last = candidates.clone().next().map(|(start, ..)| *start);
    let holds = |(start, size, _): &&(u64, u64, String)| match size {
        0 => Some(*start) == last,
        size => address - start < *size,
    };
    // A name says more than the place of a piece in the same function.
    let holding = || candidates.clone().filter(holds).map(|(.., name)| name.as_str());
    holding().find(|name| !is_place(name)).or_else(|| holding().next())
}

/// Reads the functions of a module's file: below the process's root or, once the process has ended,
/// by its own path. A file with another build-id is ignored.
fn read(root: &str, module: &Module) -> Functions {
    let path = Path::new(&module.path);
    let inside = PathBuf::from(format!("{root}{}", module.path));
    let of_file = |place: &Path| {
        let data = calltap_sites::load(&calltap_sites::open(place).ok()?).ok()?;
        let name = path.file_name()?.to_string_lossy();
        let mut binary = calltap_sites::read(&data, &name).ok()?;
        let is_it = module.build_id.is_none() || binary.build_id == module.build_id;
        let root = Path::new(if root.is_empty() { "/" } else { root });
        name_functions(&mut binary, || calltap_sites::debug_link(&data), path, root);
        is_it.then_some(binary)
    };
    [inside.as_path(), path].into_iter().find_map(of_file).map(functions).unwrap_or_default()
}

/// Collects the functions. A cold part has the name of its function, and a function without a name
/// that of its place, by which it can be selected.
fn functions(binary: Binary) -> Functions {
    let mut functions: Functions = Vec::new();
    for function in binary.functions {
        let name = match &function.role {
            Role::ColdPart(Some(owner)) => owner.clone(),
            Role::ColdPart(None) => without_cold_suffix(&function.name).to_owned(),
            Role::Function => function.name.clone(),
        };
        let is_cold = matches!(function.role, Role::ColdPart(_));
        if !is_place(&name) || function.size > 0 && !is_cold {
            functions.push((function.address.0, function.size, name));
        }
    }
    functions.sort_unstable();
    functions
}

/// Returns `f` for `f.cold` and `f.cold.1`.
fn without_cold_suffix(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('.');
    name.strip_suffix(".cold").or_else(|| stem.strip_suffix(".cold")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: u64, expected: Option<&str>) {
        let function = |start, size, name: &str| (start, size, name.to_owned());
        let functions = vec![
            function(0x100, 0x80, "outer"),
            function(0x120, 0x10, "inner"),
            function(0x150, 0x10, "a.so+0x150"),
            function(0x180, 0x10, "a.so+0x180"),
            function(0x200, 0, "last"),
        ];
        assert_eq!(find(&functions, address), expected, "{address:#x}");
    }

    #[test]
    fn address_belongs_to_innermost_function() {
        check(0xff, None);
        check(0x100, Some("outer"));
        check(0x125, Some("inner"));
        check(0x130, Some("outer"));
        check(0x17f, Some("outer"));
        check(0x155, Some("outer"));
        check(0x18f, Some("a.so+0x180"));
        check(0x190, None);
        check(0x1_0000, Some("last"));
    }

    #[test]
    fn a_cold_part_has_the_name_of_its_function() {
        for (name, expected) in
            [("f", "f"), ("f.cold", "f"), ("f.cold.12", "f"), ("f.part.0", "f.part.0"), ("f2", "f2")]
        {
            assert_eq!(without_cold_suffix(name), expected);
        }
    }
}
