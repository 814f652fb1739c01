//! The search for functions in a file that a process has loaded.

use crate::plan::contents::{Failure, run_until};
use calltap_sites::{
    Binary, Discovery, Error, Function, SiteKind, Svma, add_packed_names, find_prologues, find_prologues_of,
    read_by,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Parameters of a search in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Search {
    /// Whether calls of the profiling function are found at their first execution.
    pub first_call: bool,
    /// Files in which to decode functions that were not built for tracing.
    pub decode: Decode,
    /// Whether to find functions without room for a jump as well.
    pub int3: bool,
}

/// Files in which to decode functions that were not built for tracing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Decode {
    /// No file.
    Nothing,
    /// A program in which nothing was built for tracing.
    BareProgram,
    /// Every file.
    Everything,
}

impl Search {
    /// Whether code was decoded for the result. Functions without names then matter.
    pub(crate) fn has_decoded(self, found: &Binary) -> bool {
        let is_bare = |function: &Function| matches!(function.kind(), SiteKind::Prologue | SiteKind::None);
        match self.decode {
            Decode::Nothing => false,
            Decode::BareProgram => found.is_program && found.functions.iter().all(is_bare),
            Decode::Everything => true,
        }
    }

    /// Lists the functions of a file. Returns also whether code has to be decoded for them.
    fn list(self, data: &[u8], name: &str) -> Result<(Binary, bool), Error> {
        let discovery = if self.first_call { Discovery::FirstCall } else { Discovery::AtLoad };
        let mut binary = read_by(data, name, discovery)?;
        let decodes = match self.decode {
            Decode::Nothing => false,
            Decode::BareProgram => binary.is_bare(),
            Decode::Everything => true,
        };
        if decodes {
            add_packed_names(data, &mut binary)?;
        }
        Ok((binary, decodes))
    }

    /// Decodes the code that decides about `few` functions and the watched ones, or about all.
    /// Other functions that were not built for tracing are then left out. Returns also whether none
    /// was left out.
    fn decode(
        self,
        data: &[u8],
        mut binary: Binary,
        few: Option<BTreeSet<Svma>>,
    ) -> Result<(Binary, bool), Error> {
        let Some(few) = few else {
            find_prologues(data, &mut binary, self.int3)?;
            return Ok((binary, true));
        };
        let is_one = |function: &Function| few.contains(&function.address) || function.watch.is_some();
        let is_whole = find_prologues_of(data, &mut binary, self.int3, &is_one)?;
        if !is_whole {
            binary.functions.retain(|function| function.is_traceable() || is_one(function));
        }
        Ok((binary, is_whole))
    }
}

/// Decodes the code that decides about the watched functions alone.
fn decode_watched(data: &[u8], mut binary: Binary) -> Result<Binary, Error> {
    let is_open = |function: &Function| function.watch.is_some() && !function.is_traceable();
    if !binary.functions.iter().any(is_open) {
        return Ok(binary);
    }
    let mut decoded = binary.clone();
    find_prologues_of(data, &mut decoded, false, &is_open)?;
    let decided: BTreeMap<Svma, Function> =
        decoded.functions.into_iter().map(|function| (function.address, function)).collect();
    for function in binary.functions.iter_mut().filter(|function| is_open(function)) {
        if let Some(decided) = decided.get(&function.address) {
            function.clone_from(decided);
        }
    }
    Ok(binary)
}

/// The inputs that choose functions of a file: equal inputs choose the same functions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ChosenBy {
    /// Words of filters.
    pub words: Vec<Vec<String>>,
    /// Whether a debugging file may have names for functions of this file.
    pub has_debugging_file: bool,
}

/// A restriction of a search to a few functions.
pub(crate) struct Few<'a> {
    /// The inputs of the choice.
    pub chosen_by: ChosenBy,
    /// Chooses the functions by address; None for all.
    pub choose: &'a dyn Fn(&Binary) -> Option<BTreeSet<Svma>>,
}

/// Searches the bytes of a file, which is called `name`. Fails when interrupted. Returns also
/// whether the whole file was searched, or only what concerns a `few` functions.
pub(crate) fn run(
    data: Arc<Vec<u8>>,
    name: &str,
    search: Search,
    few: Option<Few<'_>>,
    interrupted: &Arc<AtomicBool>,
) -> Result<(Binary, bool), Failure> {
    let (name, listed) = (name.to_owned(), Arc::clone(&data));
    let (binary, decodes) = run_until(interrupted, move || search.list(&listed, &name))??;
    if !decodes && search.first_call {
        return Ok((binary, true));
    }
    if !decodes {
        return Ok((run_until(interrupted, move || decode_watched(&data, binary))??, true));
    }
    let few = few.and_then(|few| (few.choose)(&binary));
    Ok(run_until(interrupted, move || search.decode(&data, binary, few))??)
}
