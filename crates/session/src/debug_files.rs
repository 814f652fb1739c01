//! Separate debugging files, for the names of functions whose symbols were stripped: where distributions install them, by build-id, and where the file itself says.

use crate::maps::open_file;
use calltap_sites::{Binary, add_names, build_id_of, debug_link, lacks_names, load};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where debugging files are installed.
const INSTALLED: &str = "usr/lib/debug";

/// Gives functions without a name those of the debugging file, if there is one. `path`: of the file in its own mount namespace, whose root is `root`.
pub fn name_functions(binary: &mut Binary, data: &[u8], path: &Path, root: &Path) {
    if !lacks_names(binary) {
        return;
    }
    let places = places(binary, data, path);
    // (Debugging files are often installed on the host only, and not in a container.)
    for place in [root, Path::new("/")].iter().flat_map(|root| places.iter().map(|place| root.join(place))) {
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

/// Where it may be, without the `/` in front.
fn places(binary: &Binary, data: &[u8], path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some((first, rest)) = binary.build_id.as_deref().and_then(|id| id.split_at_checked(2)) {
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
