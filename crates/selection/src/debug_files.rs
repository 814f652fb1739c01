//! Separate debugging files, which have the names of functions whose symbols were stripped. They
//! are found where distributions install them, by build-id, and by the name in the file itself.

use crate::named::{MayChoose, Named};
use calltap_sites::types::Types;
use calltap_sites::{
    Binary, Function, Inlined, Svma, add_names, build_id_of, debug_link, file_may_define, inlined,
    is_unnamed, lacks_names, load, load_all, open, open_itself,
};
use object::{Object, ReadCache};
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Directory in which debugging files are installed.
const INSTALLED: &str = "usr/lib/debug";

/// Reads the debugging information of a file: its own, or that of its debugging file. `path`: as
/// for [`name_functions`].
pub fn read_types(file: &File, build_id: Option<&str>, path: &Path, root: &Path) -> Option<Arc<Types>> {
    let own = Types::read(file).ok().flatten();
    let separate = || {
        let data = load(file).ok()?;
        candidates(build_id, debug_link(&data), path, root).find_map(|place| {
            let file = open_itself(&place).ok()?;
            let is_same = build_id.is_some() && build_id_of(&load(&file).ok()?).as_deref() == build_id;
            Types::read(&file).ok().flatten().filter(|_| is_same)
        })
    };
    own.or_else(separate).map(Arc::new)
}

/// Gives functions without a name those of the debugging file, if there is one. `link`: its
/// [name](debug_link) in the file. `path`: path of the file in its own mount namespace, whose root
/// is `root`.
pub fn name_functions(binary: &mut Binary, link: impl FnOnce() -> Option<Vec<u8>>, path: &Path, root: &Path) {
    if !lacks_names(binary) {
        return;
    }
    for place in candidates(binary.build_id.as_deref(), link(), path, root) {
        let Some(found) = open_itself(&place).ok().and_then(|file| load(&file).ok()) else { continue };
        // The debugging file may belong to another build.
        if binary.build_id.is_some()
            && build_id_of(&found) == binary.build_id
            && add_names(binary, &found) > 0
        {
            return;
        }
    }
}

/// Whether a function of a file may be chosen, by the names in its symbol tables. Called before the
/// file is decoded. `path`: as for [`name_functions`].
pub fn may_choose_in(file: &File, path: &Path, root: &Path, may_choose: &MayChoose<'_>) -> bool {
    let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    may_choose(Named::ByPlace(&module))
        || file_may_define(file, |name| may_choose(Named::By(&[name], &module)))
        || has_debugging_file(file, path, root)
}

/// Returns the functions of a file that may be chosen, by their addresses; None if any may be, or
/// if that depends on names still missing.
pub fn chosen_in(
    binary: &Binary,
    file: &File,
    (path, root): (&Path, &Path),
    may_choose: &MayChoose<'_>,
) -> Option<BTreeSet<Svma>> {
    let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let by_place = may_choose(Named::ByPlace(&module));
    if lacks_names(binary) && (by_place || has_debugging_file(file, path, root)) {
        return None;
    }
    let is_chosen = |function: &&Function| {
        let mut names = [&function.name].into_iter().chain(&function.aliases);
        !is_unnamed(function) && names.any(|name| may_choose(Named::By(&[name], &module)))
    };
    let chosen: BTreeSet<Svma> =
        binary.functions.iter().filter(is_chosen).map(|function| function.address).collect();
    // For more of them, decoding the whole file takes no longer.
    (chosen.len() <= binary.functions.len() / MAX_SHARE).then_some(chosen)
}

/// The inverse of the largest share of a file's functions that is decoded separately.
const MAX_SHARE: usize = 8;

/// Returns the [name](debug_link) of a file's debugging file. Reads only headers.
pub fn debug_link_of(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let (name, _) = object::File::parse(&cache).ok()?.gnu_debuglink().ok()??;
    Some(name.to_vec())
}

/// Whether another file may have names for functions of this one.
pub fn has_debugging_file(file: &File, path: &Path, root: &Path) -> bool {
    let cache = ReadCache::new(file);
    let Ok(parsed) = object::File::parse(&cache) else { return true };
    let id = parsed.build_id().ok().flatten();
    let id = id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let link = parsed.gnu_debuglink().ok().flatten().map(|(name, _)| name.to_vec());
    let places = places(id.as_deref(), link, path);
    let roots = [root, Path::new("/")];
    id.as_deref().and_then(fetched).is_some_and(|place| place.exists())
        || roots.into_iter().any(|root| places.iter().any(|place| root.join(place).exists()))
}

/// Possible paths of a debugging file. These files are often installed on the host only, and not in
/// a container.
fn candidates(
    build_id: Option<&str>,
    link: Option<Vec<u8>>,
    path: &Path,
    root: &Path,
) -> impl Iterator<Item = PathBuf> + use<> {
    let places = places(build_id, link, path);
    let roots = [root.to_owned(), PathBuf::from("/")];
    let installed = roots
        .into_iter()
        .flat_map(move |root| places.iter().map(|place| root.join(place)).collect::<Vec<_>>());
    installed.chain(build_id.and_then(fetched))
}

/// Directory in which clients of debuginfod, such as calltap, keep the files that they have fetched
/// for this user.
pub fn fetched_files() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    variable("DEBUGINFOD_CACHE_PATH").or_else(|| Some(cache()?.join("debuginfod_client")))
}

/// Path in that directory of the debugging file of a build.
pub fn fetched(build_id: &str) -> Option<PathBuf> {
    let is_hexadecimal = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(fetched_files().filter(|_| is_hexadecimal && !build_id.is_empty())?.join(build_id).join("debuginfo"))
}

/// Servers of debuginfod that the user has configured.
pub fn servers() -> Vec<String> {
    let text = env::var("DEBUGINFOD_URLS").unwrap_or_default();
    text.split_whitespace().map(|url| url.trim_end_matches('/').to_owned()).collect()
}

/// Returns the functions that were inlined, by the debugging information of a file or of its
/// debugging file. Reads both from disk.
pub fn inlined_functions(path: &Path, root: &Path) -> Option<Vec<Inlined>> {
    let inside = root.join(path.strip_prefix("/").unwrap_or(path));
    let data = load_all(&open(&inside).ok()?).ok()?;
    if let Some(found) = inlined(&data) {
        return Some(found);
    }
    let id = build_id_of(&data)?;
    let mut found = candidates(Some(&id), debug_link(&data), path, root)
        .filter_map(|place| load_all(&open_itself(&place).ok()?).ok());
    inlined(&found.find(|data| build_id_of(data).is_some_and(|found| found == id))?)
}

/// Number of functions of a file without a name.
fn unnamed(binary: &Binary) -> usize {
    binary.functions.iter().filter(|function| is_unnamed(function)).count()
}

/// Returns the file in which a function that is not found is most likely: the one with most
/// functions without a name. Also returns where their names are, without a package: to read the
/// package lists would take seconds.
pub(crate) fn most_missing_names<'a>(
    files: impl Iterator<Item = (&'a str, &'a Binary, &'a Path)>,
) -> Option<(&'a str, String)> {
    // Some functions of the C compiler itself never have a name.
    let lacks = |(_, binary, _): &(&str, &Binary, &Path)| unnamed(binary) * 10 >= binary.functions.len();
    let (name, binary, path) = files.filter(lacks).max_by_key(|(_, binary, _)| unnamed(binary))?;
    Some((name, where_names_are(binary, path, None)?))
}

/// Describes to the user where the names of a file's functions are, if most have none.
pub fn missing_names(binary: &Binary, path: &Path) -> Option<String> {
    (unnamed(binary) * 2 >= binary.functions.len()).then(|| where_names_are(binary, path, package(path)))?
}

fn where_names_are(binary: &Binary, path: &Path, package: Option<String>) -> Option<String> {
    let id = binary.build_id.as_deref().filter(|_| lacks_names(binary))?;
    let unnamed = unnamed(binary);
    let file = Path::new("/").join(of_build(id)?);
    let package = package.map_or(String::new(), |name| format!(" (apt install {name})"));
    let server = if servers().is_empty() {
        String::new()
    } else {
        format!("; 'calltap tools debuginfo {}' asks DEBUGINFOD_URLS for it", path.display())
    };
    Some(format!(
        "{unnamed} of {} functions have no names; they would be in {}{package}{server}",
        binary.functions.len(),
        file.display()
    ))
}

/// Message at the start of a recording: most functions of a file have no names, and how to get
/// them.
pub fn hint(binary: &Binary, path: &Path) -> Option<String> {
    let unnamed = unnamed(binary);
    if unnamed * 2 < binary.functions.len() || !lacks_names(binary) {
        return None;
    }
    let what = match (&binary.build_id, servers().is_empty()) {
        (None, _) => "it has no build-id, by which a debugging file is found".to_owned(),
        (_, true) => format!("'calltap sites {}' says where they are", path.display()),
        (_, false) => format!("'calltap tools debuginfo {}' asks DEBUGINFOD_URLS for them", path.display()),
    };
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Some(format!("{unnamed} of {} functions of {name} have no names: {what}", binary.functions.len()))
}

/// Debian's package of the debugging file, if the package lists have one. A file of /usr/bin may be
/// listed in /bin.
fn package(path: &Path) -> Option<String> {
    let short = path.strip_prefix("/usr").ok().map(|short| Path::new("/").join(short));
    let name = [Some(path.to_owned()), short].into_iter().flatten().find_map(|path| {
        let found = Command::new("dpkg-query").arg("--search").arg(path).output().ok()?;
        let text = String::from_utf8(found.stdout).ok()?;
        let (name, _) = text.split_once(": ").filter(|_| found.status.success())?;
        name.split([':', ',']).next().map(str::to_owned)
    })?;
    let is_known = |package: &String| {
        let listed = Command::new("apt-cache").args(["show", "--no-all-versions"]).arg(package).output();
        listed.is_ok_and(|listed| listed.status.success() && !listed.stdout.is_empty())
    };
    [format!("{name}-dbgsym"), format!("{name}-dbg")].into_iter().find(is_known)
}

/// Path at which the debugging file of a build is installed, without the leading `/`.
fn of_build(id: &str) -> Option<PathBuf> {
    let (first, rest) = id.split_at_checked(2)?;
    Some(Path::new(INSTALLED).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Possible paths of a debugging file, without the leading `/`.
fn places(build_id: Option<&str>, link: Option<Vec<u8>>, path: &Path) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = build_id.and_then(of_build).into_iter().collect();
    let directory = path.parent().and_then(|parent| parent.strip_prefix("/").ok());
    let link = link.filter(|link| !link.contains(&b'/'));
    if let Some((directory, link)) = directory.zip(link) {
        let name = Path::new(OsStr::from_bytes(&link));
        places.push(directory.join(name));
        places.push(directory.join(".debug").join(name));
        places.push(Path::new(INSTALLED).join(directory).join(name));
    }
    places
}
