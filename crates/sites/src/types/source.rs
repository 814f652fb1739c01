//! Source lines of functions.

use super::{Bytes, Types, Unit};
use crate::address::Svma;
use gimli::{AttributeValue, DW_AT_decl_file, DW_AT_decl_line, Reader as _};
use std::path::PathBuf;

/// A place in a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// Path of the file, as the compiler was given it.
    pub file: String,
    /// Line number, from 1 on.
    pub line: u64,
}

impl Types {
    /// Returns where the function at an address is declared in its source: by its definition or, if
    /// that has no position, by its declaration.
    pub fn source(&self, address: Svma) -> Option<SourceLine> {
        let at = self.functions.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        let place = self.functions[at].1;
        let (_, line) = self.inherited(place, DW_AT_decl_line)?;
        let (unit, file) = self.inherited(place, DW_AT_decl_file)?;
        let index = match file {
            AttributeValue::FileIndex(index) => index,
            other => other.udata_value()?,
        };
        let line = line.udata_value().filter(|line| *line > 0)?;
        Some(SourceLine { file: self.source_file(self.units.get(unit)?, index)?, line })
    }

    /// Path of a file of a unit's line program: below its directory, and that below the directory
    /// of the compilation.
    fn source_file(&self, unit: &Unit, index: u64) -> Option<String> {
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value: AttributeValue<Bytes>| {
            let text = self.dwarf.attr_string(unit, value).ok()?;
            Some(text.to_string_lossy().ok()?.into_owned())
        };
        let compiled_in =
            unit.comp_dir.as_ref().and_then(|text| Some(text.to_string_lossy().ok()?.into_owned()));
        let mut path = PathBuf::from(compiled_in.unwrap_or_default());
        // `push` replaces the path if the new part is absolute.
        path.push(file.directory(header).and_then(text).unwrap_or_default());
        path.push(text(file.path_name())?);
        Some(calltap_names::printable(&path.to_string_lossy()).into_owned())
    }
}
