//! The list of `calltap sites` for a file, summed up.

use crate::shell;
use anyhow::Result;
use calltap_names::demangle;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The functions of a file.
#[derive(Default)]
pub struct Listed {
    /// Number of functions, without cold parts.
    pub functions: usize,
    /// Number of functions that can be traced.
    pub traceable: usize,
    /// Number of the other functions, by the code of their reason.
    pub refused: BTreeMap<String, usize>,
    /// Linker names of each function that can be traced.
    pub names: Vec<Vec<String>>,
}

impl Listed {
    /// Returns every name, both mangled and demangled.
    pub fn all_names(&self) -> impl Iterator<Item = String> + '_ {
        self.names.iter().flatten().flat_map(|name| [name.clone(), demangle(name)])
    }
}

/// Lists the functions of a file.
pub fn list(calltap: &Path, path: &Path) -> Result<Listed> {
    let mut sites = Command::new(calltap);
    sites.args(["sites", "--linker-names", "--format", "json"]).arg(path);
    let rows: Vec<Value> = serde_json::from_slice(&shell::output(&mut sites)?.stdout)?;
    Ok(sum(&rows))
}

fn sum(rows: &[Value]) -> Listed {
    let mut listed = Listed::default();
    for row in rows {
        let code = row["reason_code"].as_str().unwrap_or("unknown");
        if code.starts_with("cold-part") {
            continue;
        }
        listed.functions += 1;
        if row["traceable"] != true {
            *listed.refused.entry(code.to_owned()).or_default() += 1;
            continue;
        }
        listed.traceable += 1;
        let aliases = row["aliases"].as_array().into_iter().flatten();
        let names = std::iter::once(&row["function"]).chain(aliases);
        listed.names.push(names.filter_map(|name| Some(name.as_str()?.to_owned())).collect());
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_are_not_counted_and_refused_functions_are_counted_by_reason() {
        let rows = [
            json!({"function": "f", "aliases": ["g"], "traceable": true, "reason_code": null}),
            json!({"function": "f.cold", "aliases": [], "traceable": false, "reason_code": "cold-part-of"}),
            json!({"function": "s", "aliases": [], "traceable": false, "reason_code": "short"}),
            json!({"function": "t", "aliases": [], "traceable": false, "reason_code": "short"}),
        ];
        let listed = sum(&rows);
        assert_eq!((listed.functions, listed.traceable), (3, 1));
        assert_eq!(listed.refused, BTreeMap::from([("short".to_owned(), 2)]));
        assert_eq!(listed.names, [["f", "g"]]);
    }
}
