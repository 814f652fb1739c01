//! What a selection can choose from, and what is said where it chooses nothing.

use crate::debug_files::{inlined_functions, most_missing_names};
use crate::selector::NamesOf;
use calltap_names::{Glob, demangle, nearest_names};
use calltap_sites::{Binary, Function, Inlined};
use std::path::PathBuf;
use std::sync::Arc;

/// The functions a selection can choose from, kept for messages.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// By module: its name, and what was read of it.
    pub modules: Vec<(String, Arc<Binary>)>,
    /// And where their files are: in which root directory, and the path there.
    pub files: Vec<(PathBuf, PathBuf)>,
}

impl Candidates {
    /// All functions.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.modules.iter().flat_map(|(_, binary)| &binary.functions)
    }

    /// The traceable functions.
    pub fn traceable(&self) -> impl Iterator<Item = &Function> {
        self.functions().filter(|function| function.form.is_some())
    }

    /// Why nothing matches: the function exists and cannot be traced, or names that look alike.
    pub(crate) fn hint(&self, glob: &Glob) -> String {
        let exists = self
            .functions()
            .filter(|function| function.form.is_none())
            .find(|function| NamesOf::new(function).any(glob));
        if let Some((function, reason)) =
            exists.and_then(|function| Some((function, function.reason.as_ref()?)))
        {
            return format!(" ({} cannot be traced: {reason})", demangle(&function.name));
        }
        if let Some(hint) = self.inlined(glob) {
            return hint;
        }
        let names: Vec<String> = self.traceable().map(|function| demangle(&function.name)).collect();
        let near = nearest_names(glob.pattern(), names.iter().map(String::as_str), 3);
        // A library without names is no reason where something looks alike.
        let asked = if near.is_empty() { self.modules.len() } else { 1 };
        let near = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
        let files = self.modules.iter().zip(&self.files).take(asked);
        let files = files.map(|((name, binary), (_, path))| (name.as_str(), &**binary, path.as_path()));
        let missing = most_missing_names(files).map(|(name, place)| format!(" ({name}: {place})"));
        near + &missing.unwrap_or_default()
    }

    /// It is no function any more, as a file's debugging information says.
    fn inlined(&self, glob: &Glob) -> Option<String> {
        let is_it = |found: &Inlined| {
            !found.remains && (glob.matches(&found.name) || glob.matches(&demangle(&found.name)))
        };
        let all = self.files.iter().filter_map(|(root, path)| inlined_functions(path, root));
        let found = all.flatten().find(is_it)?;
        let (name, places) = (demangle(&found.name), found.places);
        Some(format!(" ({name} was inlined wherever it is called, in {places} places: it cannot be traced)"))
    }
}
