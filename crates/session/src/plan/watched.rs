//! The watched functions of a library, where the selection reaches no function of the library.

use crate::plan::cache;
use crate::plan::contents::{Contents, Failure};
use crate::plan::search::{ChosenBy, Decode, Few, Search};
use calltap_sites::{Binary, Function};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns the watched functions of a library. None if it has none that can be patched.
pub(crate) fn watched_functions(
    contents: &Contents<'_>,
    name: &str,
    interrupted: &Arc<AtomicBool>,
) -> Result<Option<Binary>, Failure> {
    let search = Search { first_call: false, decode: Decode::Everything, int3: false };
    let few = Few { chosen_by: ChosenBy::default(), choose: &|_| Some(BTreeSet::new()) };
    let (mut binary, _) = cache::analyse(contents, name, search, Some(few), interrupted)?;
    let functions = std::mem::take(&mut binary.functions).into_iter();
    let is_one = |function: &Function| function.is_traceable() && function.watch.is_some();
    binary.functions = functions.filter(is_one).collect();
    Ok((!binary.functions.is_empty()).then_some(binary))
}
