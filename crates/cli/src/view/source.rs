//! Source lines of functions, from the debugging information of their files.

use calltap_selection::debug_files::read_types;
use calltap_sites::Svma;
use calltap_sites::types::{SourceLine, Types};
use calltap_trace::{Meta, Site, SiteId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The debugging information that was read, by path and build-id; `None` if a file has none.
type Files = BTreeMap<(String, String), Option<Arc<Types>>>;

/// Kind of the sites of Python functions.
const PYTHON: &str = "python";

static READ: Mutex<Files> = Mutex::new(BTreeMap::new());

/// Returns the source line of a site's function. `None` if its file has no debugging information,
/// is missing, or has another build-id. A Python function has its own in the trace.
pub fn of(meta: &Meta, site: SiteId) -> Option<SourceLine> {
    let site = meta.sites.get(site.0 as usize)?;
    if site.kind == PYTHON {
        return of_python(site);
    }
    let module = meta.modules.get(site.module as usize)?;
    let build_id = module.build_id.as_deref()?;
    let mut files = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (module.path.clone(), build_id.to_owned());
    let types = files.entry(key).or_insert_with(|| read(Path::new(&module.path), build_id));
    types.as_ref()?.source(Svma(site.address))
}

/// Returns file and line of a Python function, which are its alias.
fn of_python(site: &Site) -> Option<SourceLine> {
    let (file, line) = site.aliases.first()?.rsplit_once(':')?;
    Some(SourceLine { file: file.to_owned(), line: line.parse().ok()? })
}

fn read(path: &Path, build_id: &str) -> Option<Arc<Types>> {
    let file = calltap_sites::open(path).ok()?;
    let found = calltap_sites::build_id_of(&calltap_sites::load(&file).ok()?);
    (found.as_deref() == Some(build_id))
        .then(|| read_types(&file, Some(build_id), path, Path::new("/")))
        .flatten()
}
