//! The names of a module.

/// The names by which a word can select a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleNames<'a> {
    /// Name of its file.
    pub file: &'a str,
    /// Name of the symbolic link through which a program was started from it.
    pub link: Option<&'a str>,
}

impl<'a> From<&'a str> for ModuleNames<'a> {
    fn from(file: &'a str) -> ModuleNames<'a> {
        ModuleNames { file, link: None }
    }
}

impl<'a> ModuleNames<'a> {
    /// Iterates over the link and the spellings of the file name.
    pub(crate) fn spelled(self) -> impl Iterator<Item = &'a str> {
        spellings(self.file).chain(self.link)
    }
}

/// Mark of the kernel behind the path of a file that was removed or replaced.
const DELETED: &str = " (deleted)";

/// Returns a file's name without directories; of one that was removed or replaced while it was
/// mapped, its former name.
pub fn file_name(path: &str) -> &str {
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// Returns the spellings of a file name: `libssl.so.3` is also `libssl.so`, `libssl` and `ssl`;
/// `libc-2.31.so` also `libc` and `c`.
fn spellings(file: &str) -> impl Iterator<Item = &str> {
    let name = file_name(file);
    let stem = name.find(".so").filter(|at| name[at + 3..].is_empty() || name[at + 3..].starts_with('.'));
    let stem = stem.map(|at| &name[..at]);
    let linked = stem.map(|stem| &name[..stem.len() + 3]);
    let unversioned = stem.and_then(|stem| {
        let (start, version) = stem.rsplit_once('-')?;
        version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(start)
    });
    let names = [Some(name), linked, stem, unversioned];
    let bare = [stem, unversioned].map(|name| name?.strip_prefix("lib").filter(|name| !name.is_empty()));
    names.into_iter().chain(bare).flatten()
}
