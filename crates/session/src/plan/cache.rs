//! What was found in large files, kept in the user's cache directory for the next time: to decode a library of a hundred megabytes takes
//! seconds, and what is found is the same as long as the file and calltap are.
//!
//! An entry is named by the build-id of its file. It is used if it was written by this build of calltap, for a file with the same bytes and
//! the same search, and is whole; else it is ignored. The directory belongs to the user alone, and its size is bounded.

use calltap_sites::{Binary, Discovery, Error, Function, SiteKind, build_id_of, find_prologues, read_by};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{env, process};

/// All entries together take no more than this; the oldest go first.
const LARGEST: u64 = 256 << 20;
/// What takes less time is found anew each time.
const WORTH: Duration = Duration::from_millis(100);
/// An entry is no larger than this when it is unpacked.
const UNPACKED: usize = 1 << 30;
/// Fast, and small enough.
const COMPRESSION: i32 = 1;
/// What other users have in the mode of a directory.
const OTHERS: u32 = 0o077;

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

    fn run(self, data: &[u8], name: &str) -> Result<Binary, Error> {
        let discovery = if self.first_call { Discovery::FirstCall } else { Discovery::AtLoad };
        let mut binary = read_by(data, name, discovery)?;
        let decodes = match self.decode {
            Decode::Nothing => false,
            Decode::BareProgram => binary.is_bare(),
            Decode::Everything => true,
        };
        if decodes {
            find_prologues(data, &mut binary, self.int3)?;
        }
        Ok(binary)
    }
}

/// Looks for that in a file, which is called `name`, or finds what was found the last time.
pub fn analyse(data: &[u8], name: &str, search: Search) -> Result<Binary, Error> {
    Cache::of_user().map_or_else(|| search.run(data, name), |cache| cache.analyse(data, name, search))
}

/// What an entry is for, and by whom it was written.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Label {
    /// The executable file of calltap: device, inode, size, time of its last change.
    writer: [u64; 4],
    search: Search,
    name: String,
    size: u64,
    content: u32,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    label: Label,
    /// Of the packed bytes.
    checksum: u32,
    packed: Vec<u8>,
}

struct Cache {
    directory: PathBuf,
    largest: u64,
    worth: Duration,
}

impl Cache {
    /// That of the user. None: there is no place for it, or it is not this user's alone.
    fn of_user() -> Option<Cache> {
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        Cache::at(base.or_else(home)?.join("calltap"), LARGEST, WORTH)
    }

    fn at(directory: PathBuf, largest: u64, worth: Duration) -> Option<Cache> {
        if let Some(parent) = directory.parent().filter(|parent| !parent.exists()) {
            DirBuilder::new().mode(0o700).create(parent).ok()?;
        }
        let user = rustix::process::geteuid().as_raw();
        let is_ours = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.uid() == user);
        if !is_ours(directory.parent()?) {
            return None;
        }
        let _ = DirBuilder::new().mode(0o700).create(&directory);
        let meta = fs::symlink_metadata(&directory).ok()?;
        let is_private = meta.is_dir() && meta.uid() == user && meta.mode() & OTHERS == 0;
        is_private.then_some(Cache { directory, largest, worth })
    }

    fn analyse(&self, data: &[u8], name: &str, search: Search) -> Result<Binary, Error> {
        let place = self.place(data, name, search);
        if let Some(found) = place.as_ref().and_then(|(path, label)| self.find(path, label)) {
            return Ok(found);
        }
        let start = Instant::now();
        let binary = search.run(data, name)?;
        if let Some((path, label)) = place.filter(|_| start.elapsed() >= self.worth) {
            // A full disk is no reason to fail: the file is searched again the next time.
            let _ = self.keep(&path, label, &binary);
        }
        Ok(binary)
    }

    /// Where an entry for this is, and what it must say.
    fn place(&self, data: &[u8], name: &str, search: Search) -> Option<(PathBuf, Label)> {
        let id = build_id_of(data).filter(|id| !id.is_empty())?;
        let own = fs::metadata("/proc/self/exe").ok()?;
        let changed = own.mtime() as u64 ^ (own.mtime_nsec() as u64) << 32;
        let Search { first_call, decode, int3 } = search;
        let file = format!("{id}-{decode:?}{}{}", u8::from(first_call), u8::from(int3));
        let label = Label {
            writer: [own.dev(), own.ino(), own.size(), changed],
            search,
            name: name.to_owned(),
            size: data.len() as u64,
            content: crc32fast::hash(data),
        };
        Some((self.directory.join(file), label))
    }

    fn find(&self, path: &Path, label: &Label) -> Option<Binary> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        if !file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= self.largest) {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let entry: Entry = postcard::from_bytes(&bytes).ok()?;
        if entry.label != *label || crc32fast::hash(&entry.packed) != entry.checksum {
            return None;
        }
        let unpacked = zstd::bulk::decompress(&entry.packed, UNPACKED).ok()?;
        let binary = postcard::from_bytes(&unpacked).ok()?;
        // What is used stays.
        let _ = file.set_modified(SystemTime::now());
        Some(binary)
    }

    /// Writes an entry, so that readers find all of it or none, and removes what is too much.
    fn keep(&self, path: &Path, label: Label, binary: &Binary) -> io::Result<()> {
        let unpacked = postcard::to_stdvec(binary).map_err(io::Error::other)?;
        let packed = zstd::bulk::compress(&unpacked, COMPRESSION)?;
        let checksum = crc32fast::hash(&packed);
        let bytes = postcard::to_stdvec(&Entry { label, checksum, packed }).map_err(io::Error::other)?;
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

    /// Removes the entries that were not used for longest, until the rest is small enough.
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

    const ALL: Search = Search { first_call: false, decode: Decode::Everything, int3: false };

    /// This test's own program with another end, as a file of the same build that was changed has.
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

    /// After this was done to the only entry, what is found is what is there.
    fn check(change: impl Fn(&Path, &[u8])) {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), LARGEST);
        let fresh = ALL.run(&file(0), "env").unwrap();
        assert_eq!(cache.analyse(&file(0), "env", ALL), Ok(fresh.clone()));
        let [entry] = &entries(&cache)[..] else { panic!("one file, one entry") };
        change(entry, &fs::read(entry).unwrap());
        assert_eq!(cache.analyse(&file(0), "env", ALL), Ok(fresh));
    }

    #[test]
    fn the_second_time_an_entry_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), LARGEST);
        let (path, label) = cache.place(&file(0), "env", ALL).unwrap();
        assert_eq!(cache.find(&path, &label), None);
        let fresh = cache.analyse(&file(0), "env", ALL).unwrap();
        assert_eq!(cache.find(&path, &label), Some(fresh));
        for other in [cache.place(&file(1), "env", ALL), cache.place(&file(0), "false", ALL)] {
            let (same, label) = other.unwrap();
            assert_eq!((same, cache.find(&path, &label)), (path.clone(), None), "{label:?}");
        }
    }

    #[test]
    fn what_is_not_whole_is_ignored() {
        check(|entry, bytes| fs::write(entry, &bytes[..bytes.len() / 2]).unwrap());
        check(|entry, bytes| {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(entry, bytes).unwrap();
        });
        check(|entry, _| fs::write(entry, b"").unwrap());
        check(|entry, _| {
            fs::remove_file(entry).unwrap();
            fs::create_dir(entry).unwrap();
        });
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let directory = tempfile::tempdir().unwrap();
        let roomy = cache(directory.path(), LARGEST);
        roomy.analyse(&file(0), "env", ALL).unwrap();
        let size = fs::metadata(&entries(&roomy)[0]).unwrap().len();
        let narrow = cache(directory.path(), size * 3 / 2);
        for decode in [Decode::Nothing, Decode::BareProgram, Decode::Everything] {
            narrow.analyse(&file(0), "env", Search { decode, int3: true, ..ALL }).unwrap();
        }
        let sum: u64 = entries(&narrow).iter().map(|entry| fs::metadata(entry).unwrap().len()).sum();
        assert!(sum <= size * 3 / 2, "{sum} of {size}");
    }

    #[test]
    fn what_others_may_write_to_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), LARGEST);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o770);
        fs::set_permissions(&cache.directory, mode).unwrap();
        assert!(Cache::at(cache.directory, LARGEST, WORTH).is_none());
    }
}
