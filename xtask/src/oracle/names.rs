//! A single name for functions that have several, as callgrind and calltap may choose different
//! ones.

use anyhow::{Context, Result};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::path::Path;

/// Maps each name of a function to the first of all names of the functions at its addresses.
pub struct Aliases(HashMap<String, String>);

impl Aliases {
    /// Reads a program's symbols.
    pub fn read(path: &Path) -> Result<Aliases> {
        let data = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let file = object::File::parse(&*data)?;
        let mut at: HashMap<u64, Vec<&str>> = HashMap::new();
        for symbol in
            file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        {
            at.entry(symbol.address()).or_default().push(symbol.name()?);
        }
        let mut first: HashMap<String, String> = HashMap::new();
        loop {
            let mut changed = false;
            for names in at.values() {
                let of = |name: &&str| first.get(*name).cloned().unwrap_or_else(|| (*name).to_owned());
                let Some(least) = names.iter().map(of).min() else { continue };
                for name in names {
                    changed |= first.insert((*name).to_owned(), least.clone()).as_ref() != Some(&least);
                }
            }
            if !changed {
                return Ok(Aliases(first));
            }
        }
    }

    /// Returns the one name for a name.
    pub fn one(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}
