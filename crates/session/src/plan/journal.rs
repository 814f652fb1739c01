//! The journal: changes to the processes of a session, recorded before they are made: every site
//! with every stub that it was ever led to, and every range of veneers. It lies in the session
//! directory, so that the controller after a killed one can undo the changes, or go on.
//!
//! Entries are 72 bytes, little-endian: kind, length, form, 0, process (4 bytes), address, target,
//! file (8 each), stub and program (20 and 12 bits), bytes (24), distance from the site to its
//! out-of-line copy (4; 0: none), base address of the file (8).

use calltap_abi::{stub, values};
use calltap_patch::{Avma, HookSet, MAX_SITE_LEN, Site};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// A site, and a stub that it may lead to from now on.
    Site {
        /// Index of the process.
        process: u32,
        /// The site.
        site: Site,
        /// Stub or veneer.
        target: Avma,
        /// Out-of-line copy of the instructions that the jump overwrites.
        copy: Option<Avma>,
        /// The stub's number and hook set; None for the dynamic linker's function, and for calls
        /// that only become NOPs.
        stub: Option<(u32, HookSet)>,
        /// Inode of the file that is mapped there.
        inode: u64,
        /// Address that corresponds to the file's first byte, according to its text. A file that is
        /// opened again may be mapped elsewhere, even partly over the former place.
        base: u64,
    },
    /// A range of veneers.
    Veneers {
        /// Index of the process.
        process: u32,
        /// First address in the process.
        address: u64,
        /// Offset in the code file.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// A site of earlier entries was not written: another tool had changed its code before.
    Unwritten {
        /// Index of the process.
        process: u32,
        /// Address of the site.
        address: Avma,
    },
    /// No thread is inside the sites of a process in earlier entries.
    Drained {
        /// Index of the process.
        process: u32,
    },
}

impl Entry {
    /// Returns the inode of a site's file.
    pub(crate) fn file(&self) -> Option<u64> {
        match self {
            Entry::Site { inode, .. } => Some(*inode),
            Entry::Veneers { .. } | Entry::Unwritten { .. } | Entry::Drained { .. } => None,
        }
    }
}

/// Bit of a process's number that marks a process id instead of an index, for a process in no
/// table. A forked child enters the table when it first calls a traced function; the changes made
/// to it before also apply to its children.
pub(crate) const UNLISTED: u32 = 1 << 31;

/// In place of an inode: code that was made at run time, and may change at any moment.
pub(crate) const NO_FILE: u64 = u64::MAX;

const SIZE: usize = 72;
/// Maximum size of a journal: some million changes.
const MAX_SIZE: u64 = 256 << 20;
const BYTES: usize = 24;
const _: () = assert!(MAX_SITE_LEN <= BYTES);
const VENEERS: u8 = 0xFF;
const DRAINED: u8 = 0xFE;
const UNWRITTEN: u8 = 0xFD;
const NO_STUB: u8 = 0xFF;
const STUB_BITS: u32 = stub::COUNT.ilog2();
const _: () = assert!(values::PROGRAMS << STUB_BITS <= 1 << 32);

/// Encoded entries. There are as many as functions, and a program waits until they are written.
#[derive(Default, Debug)]
pub(crate) struct Entries(Vec<[u8; SIZE]>);

impl Entries {
    /// Reserves memory for `count` more entries.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// Returns the sites with the addresses that they may lead to.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (Avma, Avma)> {
        self.0.iter().filter_map(|bytes| match decode(bytes)? {
            Entry::Site { site, target, .. } => Some((site.address(), target)),
            Entry::Veneers { .. } | Entry::Unwritten { .. } | Entry::Drained { .. } => None,
        })
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: &Entry) {
        self.0.push(encode(entry));
    }
}

impl<'a> FromIterator<&'a Entry> for Entries {
    fn from_iter<T: IntoIterator<Item = &'a Entry>>(entries: T) -> Entries {
        Entries(entries.into_iter().map(encode).collect())
    }
}

/// Returns the entries that apply to a process.
///
/// - `line`: the process, then those it was forked from; None for a process in no table, whose
///   parent may be any process.
/// - `shows(address, offset)`: whether that byte of the code file is mapped at the address.
///
/// Veneers are recorded before they are mapped. If an earlier controller failed or was killed in
/// between, sites that were to lead there have no such stub.
pub(crate) fn standing<'e>(
    entries: &'e [Entry],
    line: Option<&[u32]>,
    shows: impl Fn(u64, u64) -> bool,
) -> Vec<&'e Entry> {
    let unwritten: HashMap<Avma, usize> = entries
        .iter()
        .enumerate()
        .filter_map(|(n, entry)| match *entry {
            // A related process may have been written at the same address.
            Entry::Unwritten { process, address } if line.and_then(<[u32]>::first) == Some(&process) => {
                Some((address, n))
            }
            _ => None,
        })
        .collect();
    let mut veneers = Vec::new();
    let stands = |(n, entry): &(usize, &Entry)| match **entry {
        Entry::Veneers { process, address, offset, length } => {
            let ours = is_ours(process, line);
            if ours {
                veneers.push((address..address.saturating_add(length), shows(address, offset)));
            }
            ours
        }
        Entry::Site { process, site, target, copy, .. } => {
            // Addresses are used again if nothing was mapped there.
            let is_there = |at: &Avma| {
                let last = veneers.iter().rfind(|(range, _)| range.contains(&at.0));
                last.is_none_or(|(_, mapped)| *mapped)
            };
            let is_written = unwritten.get(&site.address()).is_none_or(|last| last < n);
            is_ours(process, line) && is_written && [Some(target), copy].iter().flatten().all(is_there)
        }
        Entry::Drained { process } => line.is_some_and(|line| line.contains(&process)),
        Entry::Unwritten { .. } => false,
    };
    entries.iter().enumerate().filter(stands).map(|(_, entry)| entry).collect()
}

/// Whether changes to a process may also be in a process of this [line](standing).
pub(crate) fn is_ours(process: u32, line: Option<&[u32]>) -> bool {
    process & UNLISTED != 0 || line.is_none_or(|line| line.contains(&process))
}

/// The journal's file.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    /// Wraps an open file.
    pub(crate) fn new(file: File) -> Journal {
        Journal(file)
    }

    /// Appends entries.
    pub(crate) fn add(&self, entries: &Entries) -> io::Result<()> {
        // Starts behind the last whole entry: a killed writer may have left a part of one.
        let end = self.0.metadata()?.len() / SIZE as u64 * SIZE as u64;
        self.0.write_all_at(entries.0.as_flattened(), end)
    }

    /// Returns all entries. Fails if one cannot be decoded: its site would be left behind.
    pub(crate) fn read(&self) -> io::Result<Vec<Entry>> {
        let length = self.0.metadata()?.len();
        if length > MAX_SIZE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the session's journal is too large"));
        }
        let mut bytes = vec![0; length as usize];
        self.0.read_exact_at(&mut bytes, 0)?;
        let entries = bytes.chunks_exact(SIZE).map(decode).collect::<Option<Vec<Entry>>>();
        entries.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the session's journal is damaged"))
    }
}

fn encode(entry: &Entry) -> [u8; SIZE] {
    let mut out = [0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    match entry {
        Entry::Site { process, site, target, copy, stub, inode, base } => {
            let (kind, bytes) = site.parts();
            let hook_set = stub.map_or(NO_STUB, |(_, hook_set)| hook_set.number());
            put(0, &[kind, bytes.len() as u8, hook_set, 0]);
            put(4, &process.to_le_bytes());
            put(8, &site.address().0.to_le_bytes());
            put(16, &target.0.to_le_bytes());
            put(24, &inode.to_le_bytes());
            let numbers =
                stub.map_or(0, |(stub, hook_set)| stub | u32::from(hook_set.program()) << STUB_BITS);
            put(32, &numbers.to_le_bytes());
            put(36, bytes);
            let distance = copy.map_or(0, |copy| copy.0.wrapping_sub(site.address().0) as i32);
            put(60, &distance.to_le_bytes());
            put(64, &base.to_le_bytes());
        }
        Entry::Veneers { process, address, offset, length } => {
            put(0, &[VENEERS]);
            put(4, &process.to_le_bytes());
            put(8, &address.to_le_bytes());
            put(16, &offset.to_le_bytes());
            put(24, &length.to_le_bytes());
        }
        Entry::Unwritten { process, address } => {
            put(0, &[UNWRITTEN]);
            put(4, &process.to_le_bytes());
            put(8, &address.0.to_le_bytes());
        }
        Entry::Drained { process } => {
            put(0, &[DRAINED]);
            put(4, &process.to_le_bytes());
        }
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let half = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let process = half(4)?;
    if bytes[0] == VENEERS {
        return Some(Entry::Veneers { process, address: word(8)?, offset: word(16)?, length: word(24)? });
    }
    if bytes[0] == UNWRITTEN {
        return Some(Entry::Unwritten { process, address: Avma(word(8)?) });
    }
    if bytes[0] == DRAINED {
        return Some(Entry::Drained { process });
    }
    let site = Site::from_parts(Avma(word(8)?), bytes[0], bytes[36..36 + BYTES].get(..bytes[1] as usize)?)?;
    let numbers = half(32)?;
    let (stub, program) = (numbers & ((1 << STUB_BITS) - 1), (numbers >> STUB_BITS) as u16);
    let stub = match bytes[2] {
        NO_STUB => None,
        hook_set => Some((stub, HookSet::from_number(hook_set, program)?)),
    };
    let copy = match half(60)? as i32 {
        0 => None,
        distance => Some(Avma(site.address().0.wrapping_add_signed(distance.into()))),
    };
    let (target, inode, base) = (Avma(word(16)?), word(24)?, word(64)?);
    Some(Entry::Site { process, site, target, copy, stub, inode, base })
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_patch::Bias;
    use calltap_sites::{SiteForm, Svma};

    #[test]
    fn journal_round_trips_without_torn_entries() {
        let at = Svma(0x1000);
        let forms = [
            SiteForm::Entry { at, old: vec![0x90; 5] },
            SiteForm::AfterPrologue { at, old: vec![0xE8, 1, 2, 3, 4] },
            SiteForm::Prologue { at, old: vec![0x55, 0x48, 0x89, 0xE5, 0x41, 0x57] },
            SiteForm::Trap { at, old: vec![0xC3] },
            SiteForm::PaddingJump {
                front: at,
                front_old: vec![0xCC; 5],
                at: Svma(0x1005),
                old: vec![0x48, 0x89, 0xF8],
            },
            SiteForm::Prefix {
                prefix: at,
                prefix_old: vec![0x90; 5],
                entry: Svma(0x1009),
                entry_old: vec![0x66, 0x90],
            },
        ];
        let mut entries: Vec<Entry> = forms
            .iter()
            .map(|form| Entry::Site {
                process: 3,
                site: Site::new(form, Bias(0x5555_0000_0000)).unwrap(),
                target: Avma(0x7f00_0000_1234),
                copy: matches!(form, SiteForm::Prologue { .. }).then_some(Avma(0x5555_4000_0040)),
                stub: Some((77, HookSet::GRAPH.reading(4095))),
                inode: 12345,
                base: 0x5555_0000_0000,
            })
            .collect();
        entries.push(Entry::Veneers { process: 1, address: 0x4000, offset: 0x200_0000, length: 4096 });
        let site = Site::empty_function(Avma(0x7f00_0000_0010), [0xC3, 0x66, 0x2E, 0x0F, 0x1F]).unwrap();
        entries.push(Entry::Drained { process: 5 });
        entries.push(Entry::Unwritten { process: 3, address: Avma(0x5555_0000_1000) });
        entries.push(Entry::Site {
            process: 0,
            site,
            target: Avma(9),
            copy: None,
            stub: None,
            inode: 1,
            base: 0,
        });
        // No set of hooks that a request may ask for is lost.
        let any = HookSet::all()
            .flat_map(|all| [all, all.on_small_stack(), all.on_goroutine(true), all.on_goroutine(false)]);
        let special = [HookSet::EVALUATOR, HookSet::EVALUATOR_ENTRY, HookSet::NONLOCAL, HookSet::PRCTL];
        entries.extend(any.chain(special).flat_map(|all| [all, all.reading(7)]).map(|hook_set| {
            Entry::Site {
                process: 3,
                site: Site::new(&forms[0], Bias(0x5555_0000_0000)).unwrap(),
                target: Avma(0x7f00_0000_1234),
                copy: None,
                stub: Some((77, hook_set)),
                inode: 12345,
                base: 0x5555_0000_0000,
            }
        }));
        let file = tempfile::tempfile().unwrap();
        let journal = Journal::new(file.try_clone().unwrap());
        journal.add(&entries[..2].iter().collect()).unwrap();
        file.set_len(2 * SIZE as u64 + 11).unwrap();
        journal.add(&entries[2..].iter().collect()).unwrap();
        file.set_len(entries.len() as u64 * SIZE as u64 + 7).unwrap();
        assert_eq!(journal.read().unwrap(), entries);
        file.write_all_at(&[0x77], SIZE as u64).unwrap();
        assert_eq!(journal.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
