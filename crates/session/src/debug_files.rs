//! Separate debugging files, for the names of functions whose symbols were stripped: where distributions install them, by build-id, and where the file itself says.

use crate::maps::open_file;
use crate::modules::Mapped;
use crate::proc;
use calltap_sites::types::Types;
use calltap_sites::{Binary, add_names, build_id_of, debug_link, lacks_names, load};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where debugging files are installed.
const INSTALLED: &str = "usr/lib/debug";

/// The debugging information of a file: its own, or that of its debugging file.
pub fn read_types(mapped: &Mapped, build_id: Option<&str>, pid: u32) -> Option<Arc<Types>> {
    let file = mapped.open(pid)?;
    let own = Types::read(&file).ok().flatten();
    let separate = || {
        let data = load(&file).ok()?;
        let root = proc::place(pid).join("root");
        candidates(build_id, &data, &mapped.path, &root).find_map(|place| {
            let file = open_file(&place).ok()?;
            let is_same = build_id.is_some() && build_id_of(&load(&file).ok()?).as_deref() == build_id;
            Types::read(&file).ok().flatten().filter(|_| is_same)
        })
    };
    own.or_else(separate).map(Arc::new)
}

/// Gives functions without a name those of the debugging file, if there is one. `path`: of the file in its own mount namespace, whose root is `root`.
pub fn name_functions(binary: &mut Binary, data: &[u8], path: &Path, root: &Path) {
    if !lacks_names(binary) {
        return;
    }
    for place in candidates(binary.build_id.as_deref(), data, path, root) {
        let Some(found) = open_file(&place).ok().and_then(|file| load(&file).ok()) else { continue };
        // It may be another build's.
        if binary.build_id.is_some()
            && build_id_of(&found) == binary.build_id
            && add_names(binary, &found) > 0
        {
            return;
        }
    }
}

/// Where it may be. (Debugging files are often installed on the host only, and not in a container.)
fn candidates(
    build_id: Option<&str>,
    data: &[u8],
    path: &Path,
    root: &Path,
) -> impl Iterator<Item = PathBuf> + use<> {
    let places = places(build_id, data, path);
    let roots = [root.to_owned(), PathBuf::from("/")];
    roots.into_iter().flat_map(move |root| places.iter().map(|place| root.join(place)).collect::<Vec<_>>())
}

/// The same, without the `/` in front.
fn places(build_id: Option<&str>, data: &[u8], path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some((first, rest)) = build_id.and_then(|id| id.split_at_checked(2)) {
        places.push(Path::new(INSTALLED).join(".build-id").join(first).join(format!("{rest}.debug")));
    }
    let directory = path.parent().and_then(|parent| parent.strip_prefix("/").ok());
    let link = debug_link(data).filter(|link| !link.contains(&b'/'));
    if let Some((directory, link)) = directory.zip(link) {
        let name = Path::new(OsStr::from_bytes(&link));
        places.push(directory.join(name));
        places.push(directory.join(".debug").join(name));
        places.push(Path::new(INSTALLED).join(directory).join(name));
    }
    places
}
