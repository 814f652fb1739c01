//! What is looked for in a file that a process has loaded.

use crate::plan::contents::{Failure, run_until};
use calltap_sites::{
    Binary, Discovery, Error, Function, SiteKind, Svma, add_packed_names, find_prologues, find_prologues_of,
    read_by,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is looked for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Search {
    /// How calls of the profiling function are found.
    pub first_call: bool,
    /// Whose functions are decoded that were not built for tracing.
    pub decode: Decode,
    /// Those of them that have no room for a jump are found, too.
    pub int3: bool,
}

/// Whose functions are decoded that were not built for tracing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Decode {
    /// No file's.
    Nothing,
    /// A program's of which nothing was built for it.
    BareProgram,
    /// Every file's.
    Everything,
}

impl Search {
    /// Was code decoded for what was found? Then functions without a name matter.
    pub fn has_decoded(self, found: &Binary) -> bool {
        let is_bare = |function: &Function| matches!(function.kind, SiteKind::Prologue | SiteKind::None);
        match self.decode {
            Decode::Nothing => false,
            Decode::BareProgram => found.is_program && found.functions.iter().all(is_bare),
            Decode::Everything => true,
        }
    }

    /// The functions of a file, and whether code has to be decoded for them.
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

    /// Decodes what decides about these functions. What was neither built for tracing nor is one of them is left out then; was nothing?
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
        let is_one = |function: &Function| few.contains(&function.address);
        let is_whole = find_prologues_of(data, &mut binary, self.int3, &is_one)?;
        if !is_whole {
            binary.functions.retain(|function| function.form.is_some() || is_one(function));
        }
        Ok((binary, is_whole))
    }
}

/// What chooses functions of a file: by the same, the same ones are chosen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ChosenBy {
    /// The words of filters.
    pub words: Vec<Vec<String>>,
    /// Another file may have names for functions of this one.
    pub has_debugging_file: bool,
}

/// The functions that are looked for alone.
pub struct Few<'a> {
    /// What chooses them.
    pub chosen_by: ChosenBy,
    /// Chooses them by address; None: all of them.
    pub choose: &'a dyn Fn(&Binary) -> Option<BTreeSet<Svma>>,
}

/// Looks for that in the bytes of a file, which is called `name`, until it is interrupted. Was all of it looked for, or only what concerns a `few` functions?
pub fn run(
    data: Arc<Vec<u8>>,
    name: &str,
    search: Search,
    few: Option<Few<'_>>,
    interrupted: &Arc<AtomicBool>,
) -> Result<(Binary, bool), Failure> {
    let (name, listed) = (name.to_owned(), Arc::clone(&data));
    let (binary, decodes) = run_until(interrupted, move || search.list(&listed, &name))??;
    if !decodes {
        return Ok((binary, true));
    }
    let few = few.and_then(|few| (few.choose)(&binary));
    Ok(run_until(interrupted, move || search.decode(&data, binary, few))??)
}
