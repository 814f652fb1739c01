//! A cache of search results, in the user's cache directory: decoding the C library takes 30 ms at
//! every start, and a library of a hundred megabytes seconds. The result depends only on the file
//! and on calltap.
//!
//! An entry is named by the build-id of its file. It is used if it is complete, was written by this
//! build of calltap, and is for the same search in the same version of the file or in a file with
//! the same bytes; otherwise it is ignored. A file of a known version is not read. The directory
//! and its entries belong to the user alone, and their size is bounded.

use crate::plan::contents::{Contents, Failure, Version};
use crate::plan::search::{ChosenBy, Few, Search, run};
use calltap_sites::Binary;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};
use std::{env, process};

/// Maximum size of all entries; the oldest are removed first.
const MAX_SIZE: u64 = 256 << 20;
/// Minimum duration of a search whose result is kept.
const WORTH: Duration = Duration::from_millis(10);
/// Maximum size of an unpacked entry.
const UNPACKED: usize = 1 << 30;
/// zstd level: fast, and small enough.
const COMPRESSION: i32 = 1;
/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Searches a file, which is called `name`, or returns the cached result of an earlier search.
/// Fails when interrupted. Returns also whether the whole file was searched, or only what concerns
/// a `few` functions.
pub(crate) fn analyse(
    contents: &Contents<'_>,
    name: &str,
    search: Search,
    few: Option<Few<'_>>,
    interrupted: &Arc<AtomicBool>,
) -> Result<(Binary, bool), Failure> {
    match Cache::of_user() {
        Some(cache) => cache.analyse(contents, name, search, few, interrupted),
        None => run(contents.bytes()?, name, search, few, interrupted),
    }
}

/// Key of an entry: its search and its writer.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Label {
    /// Executable of calltap: device, inode, size, time of the last change.
    writer: [u64; 4],
    search: Search,
    name: String,
    /// The choice of functions, if only those were searched for.
    few: Option<ChosenBy>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    label: Label,
    /// Version of the file. None if it had changed only shortly before.
    version: Option<Version>,
    /// Length and checksum of the file's bytes.
    content: (u64, u32),
    /// Checksum of the packed bytes.
    checksum: u32,
    packed: Vec<u8>,
}

/// Returns the user that all entries must belong to.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

struct Cache {
    directory: PathBuf,
    largest: u64,
    worth: Duration,
}

impl Cache {
    /// Opens the user's cache. None if there is no place for it, or if it is not the user's alone.
    fn of_user() -> Option<Cache> {
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        Cache::at(base.or_else(home)?.join("calltap"), MAX_SIZE, WORTH)
    }

    fn at(directory: PathBuf, largest: u64, worth: Duration) -> Option<Cache> {
        if let Some(parent) = directory.parent().filter(|parent| !parent.exists()) {
            DirBuilder::new().mode(0o700).create(parent).ok()?;
        }
        let is_ours = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.uid() == user());
        if !is_ours(directory.parent()?) {
            return None;
        }
        let _ = DirBuilder::new().mode(0o700).create(&directory);
        let meta = fs::symlink_metadata(&directory).ok()?;
        let is_private = meta.is_dir() && meta.uid() == user() && meta.mode() & OTHERS == 0;
        is_private.then_some(Cache { directory, largest, worth })
    }

    fn analyse(
        &self,
        contents: &Contents<'_>,
        name: &str,
        search: Search,
        few: Option<Few<'_>>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<(Binary, bool), Failure> {
        let find = |(path, label): &(PathBuf, Label)| self.find(path, label, contents);
        let chosen_by = few.as_ref().map(|few| few.chosen_by.clone());
        let place = self.place(contents, name, search, None);
        let of_few = chosen_by.and_then(|by| self.place(contents, name, search, Some(by)));
        if let Some(found) = of_few.as_ref().and_then(find) {
            return Ok((found, false));
        }
        if let Some(found) = place.as_ref().and_then(find) {
            return Ok((found, true));
        }
        let data = contents.bytes()?;
        let start = Instant::now();
        let (binary, is_whole) = run(Arc::clone(&data), name, search, few, interrupted)?;
        let place = if is_whole { place } else { of_few };
        if let Some((path, label)) = place.filter(|_| start.elapsed() >= self.worth) {
            // An error, such as a full disk, is ignored: the file is searched again the next time.
            let _ = self.keep(&path, label, contents, &binary);
        }
        Ok((binary, is_whole))
    }

    /// Returns path and key of an entry.
    fn place(
        &self,
        contents: &Contents<'_>,
        name: &str,
        search: Search,
        few: Option<ChosenBy>,
    ) -> Option<(PathBuf, Label)> {
        let id = contents.build_id().filter(|id| !id.is_empty())?;
        let own = fs::metadata("/proc/self/exe").ok()?;
        let changed = own.mtime() as u64 ^ (own.mtime_nsec() as u64) << 32;
        let Search { first_call, decode, int3 } = search;
        let words =
            few.as_ref().map(|few| format!("-{:08x}", crc32fast::hash(format!("{few:?}").as_bytes())));
        let words = words.unwrap_or_default();
        let file = format!("{id}-{decode:?}{}{}{words}", u8::from(first_call), u8::from(int3));
        let writer = [own.dev(), own.ino(), own.size(), changed];
        Some((self.directory.join(file), Label { writer, search, name: name.to_owned(), few }))
    }

    fn find(&self, path: &Path, label: &Label, contents: &Contents<'_>) -> Option<Binary> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > self.largest || meta.uid() != user() {
            return None;
        }
        let mut bytes = Vec::new();
        // The entry may grow meanwhile.
        (&mut file).take(self.largest).read_to_end(&mut bytes).ok()?;
        let entry: Entry = postcard::from_bytes(&bytes).ok()?;
        if entry.label != *label || crc32fast::hash(&entry.packed) != entry.checksum {
            return None;
        }
        let is_version = entry.version.is_some() && entry.version == contents.version;
        if !is_version && contents.sum().ok()? != entry.content {
            return None;
        }
        let unpacked = zstd::bulk::decompress(&entry.packed, UNPACKED).ok()?;
        let binary = postcard::from_bytes(&unpacked).ok()?;
        // A used entry counts as new, so that it is removed later.
        let _ = file.set_modified(SystemTime::now());
        Some(binary)
    }

    /// Writes an entry so that readers see all of it or nothing, and trims the cache.
    fn keep(&self, path: &Path, label: Label, contents: &Contents<'_>, binary: &Binary) -> io::Result<()> {
        let unpacked = postcard::to_stdvec(binary).map_err(io::Error::other)?;
        let packed = zstd::bulk::compress(&unpacked, COMPRESSION)?;
        let checksum = crc32fast::hash(&packed);
        let version = contents.version.clone().filter(Version::is_settled);
        let entry = Entry { label, version, content: contents.sum()?, checksum, packed };
        let bytes = postcard::to_stdvec(&entry).map_err(io::Error::other)?;
        if bytes.len() as u64 > self.largest || unpacked.len() > UNPACKED {
            return Ok(());
        }
        let mut new: OsString = path.into();
        new.push(format!(".{}", process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        self.trim();
        written
    }

    /// Removes the entries unused for longest, until the rest is small enough.
    fn trim(&self) {
        let all = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut all: Vec<(SystemTime, u64, PathBuf)> = all
            .filter_map(|entry| {
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        for (_, size, path) in all {
            sum += size;
            if sum > self.largest {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::search::Decode;
    use calltap_sites::Function;
    use std::collections::BTreeSet;

    const ALL: Search = Search { first_call: false, decode: Decode::Everything, int3: false };
    /// A user other than the superuser.
    const OTHER: u32 = 65534;

    /// A system program with another last byte: a changed file of the same build.
    fn file(end: u8) -> Vec<u8> {
        let mut data = fs::read("/usr/bin/env").expect("a program of the system's");
        data.push(end);
        data
    }

    fn cache(directory: &Path, largest: u64) -> Cache {
        Cache::at(directory.join("cache").join("calltap"), largest, Duration::ZERO)
            .expect("calltap's own directory")
    }

    fn entries(cache: &Cache) -> Vec<PathBuf> {
        fs::read_dir(&cache.directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn analyse(cache: &Cache, data: Vec<u8>, search: Search) -> Binary {
        let found = cache.analyse(&Contents::read(data, None), "env", search, None, &Arc::default());
        found.map(|(binary, is_whole)| (assert!(is_whole), binary).1).unwrap()
    }

    /// Checks whether the only entry is used after this change. The result is correct in any case.
    fn check(change: impl Fn(&Path, &[u8]), expected: bool) {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let fresh = run(Arc::new(file(0)), "env", ALL, None, &Arc::default()).unwrap().0;
        assert_eq!(analyse(&cache, file(0), ALL), fresh);
        let [entry] = &entries(&cache)[..] else { panic!("one file, one entry") };
        change(entry, &fs::read(entry).unwrap());
        let contents = Contents::read(file(0), None);
        let (path, label) = cache.place(&contents, "env", ALL, None).unwrap();
        assert_eq!(cache.find(&path, &label, &contents).is_some(), expected);
        assert_eq!(analyse(&cache, file(0), ALL), fresh);
    }

    #[test]
    fn the_second_time_an_entry_is_used() {
        check(|_, _| {}, true);
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let contents = |end| Contents::read(file(end), None);
        let (path, label) = cache.place(&contents(0), "env", ALL, None).unwrap();
        assert_eq!(cache.find(&path, &label, &contents(0)), None);
        let fresh = analyse(&cache, file(0), ALL);
        assert_eq!(cache.find(&path, &label, &contents(0)), Some(fresh));
        assert_eq!(cache.find(&path, &label, &contents(1)), None, "other bytes");
        let (same, label) = cache.place(&contents(0), "false", ALL, None).unwrap();
        assert_eq!((same, cache.find(&path, &label, &contents(0))), (path.clone(), None), "{label:?}");
    }

    #[test]
    fn a_file_of_a_known_version_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let program = fs::File::open("/usr/bin/env").unwrap();
        let first = Contents::of(&program);
        let search =
            |contents: &Contents<'_>| cache.analyse(contents, "env", ALL, None, &Arc::default()).unwrap();
        let found = search(&first);
        assert!(first.is_read());
        let second = Contents::of(&program);
        assert_eq!(search(&second), found);
        assert!(!second.is_read());
        // A file with equal bytes is the same program.
        let copy = directory.path().join("copy");
        fs::copy("/usr/bin/env", &copy).unwrap();
        let copy = fs::File::open(copy).unwrap();
        let third = Contents::of(&copy);
        assert_eq!(search(&third), found);
        assert!(third.is_read());
    }

    #[test]
    fn recently_changed_file_is_not_cached() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let path = directory.path().join("program");
        fs::write(&path, file(0)).unwrap();
        let program = fs::File::open(&path).unwrap();
        for _ in 0..2 {
            let contents = Contents::of(&program);
            cache.analyse(&contents, "env", ALL, None, &Arc::default()).unwrap();
            assert!(contents.is_read());
        }
    }

    #[test]
    fn damaged_entry_is_ignored() {
        check(|entry, bytes| fs::write(entry, &bytes[..bytes.len() / 2]).unwrap(), false);
        check(
            |entry, bytes| {
                let mut bytes = bytes.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(entry, bytes).unwrap();
            },
            false,
        );
        check(|entry, _| fs::write(entry, b"").unwrap(), false);
        check(
            |entry, _| {
                fs::remove_file(entry).unwrap();
                fs::create_dir(entry).unwrap();
            },
            false,
        );
    }

    #[test]
    fn oversized_entry_is_ignored() {
        let lengthen = |entry: &Path, _: &[u8]| {
            OpenOptions::new().write(true).open(entry).unwrap().set_len(MAX_SIZE + 1).unwrap()
        };
        check(lengthen, false);
    }

    #[test]
    fn entry_of_another_user_is_ignored() {
        if user() != 0 {
            println!("SKIPPED: files can be given to another user by the superuser only");
            return;
        }
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(OTHER), None).unwrap();
        check(|entry, _| give(entry), false);
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        give(&cache.directory);
        assert!(Cache::at(cache.directory, MAX_SIZE, WORTH).is_none());
    }

    #[test]
    fn a_search_that_is_interrupted_ends_and_leaves_no_entry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let told = Arc::new(AtomicBool::new(true));
        let found = cache.analyse(&Contents::read(file(0), None), "env", ALL, None, &told);
        assert!(matches!(found, Err(Failure::Interrupted)), "{found:?}");
        assert_eq!(entries(&cache), [] as [PathBuf; 0]);
    }

    #[test]
    fn cache_size_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let roomy = cache(directory.path(), MAX_SIZE);
        analyse(&roomy, file(0), ALL);
        let size = fs::metadata(&entries(&roomy)[0]).unwrap().len();
        let narrow = cache(directory.path(), size * 3 / 2);
        for decode in [Decode::Nothing, Decode::BareProgram, Decode::Everything] {
            analyse(&narrow, file(0), Search { decode, int3: true, ..ALL });
        }
        let sum: u64 = entries(&narrow).iter().map(|entry| fs::metadata(entry).unwrap().len()).sum();
        assert!(sum <= size * 3 / 2, "{sum} of {size}");
    }

    #[test]
    fn partial_entry_is_used_for_the_same_functions() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let linker = || fs::read("/lib64/ld-linux-x86-64.so.2").unwrap();
        let whole = run(Arc::new(linker()), "ld.so", ALL, None, &Arc::default()).unwrap().0;
        let named = whole.functions.iter().filter(|function| function.is_traceable());
        let named = named.filter(|function| !calltap_sites::is_unnamed(function));
        let address = named.map(|function| function.address).next().expect("a function with a name");
        let analyse = |word: &str, has_debugging_file| {
            let chosen_by = ChosenBy { words: vec![vec![word.to_owned()]], has_debugging_file };
            let asked = std::cell::Cell::new(false);
            let choose = |_: &Binary| {
                asked.set(true);
                Some(BTreeSet::from([address]))
            };
            let few = Some(Few { chosen_by, choose: &choose });
            let found = cache.analyse(&Contents::read(linker(), None), "ld.so", ALL, few, &Arc::default());
            (found.unwrap(), asked.get())
        };
        let (first, asked) = analyse("one", false);
        assert!(asked && !first.1, "the whole file was decoded");
        assert_eq!(analyse("one", false), (first.clone(), false), "kept");
        // Other words, or names that may by now come from another debugging file.
        assert!(analyse("two", false).1);
        assert!(analyse("one", true).1);
        let is_it = |function: &&Function| function.address == address;
        assert_eq!(first.0.functions.iter().find(is_it), whole.functions.iter().find(is_it));
    }

    #[test]
    fn directory_writable_by_others_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), MAX_SIZE);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o770);
        fs::set_permissions(&cache.directory, mode).unwrap();
        assert!(Cache::at(cache.directory, MAX_SIZE, WORTH).is_none());
    }
}
