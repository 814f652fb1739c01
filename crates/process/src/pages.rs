//! Finds pages of text that were written to and are again as in their files: private copies, which
//! the kernel can drop.

use crate::memory::maps::{self, Region};
use crate::memory::text::ProcessText;
use crate::target::Target;
use calltap_abi::PAGE;
use calltap_patch::{Avma, Text};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Returns the pages (address, length) with one of these ascending addresses whose bytes equal
/// those of the mapped file.
pub fn as_in_files(
    target: &Target,
    text: &mut ProcessText,
    regions: &[Region],
    addresses: impl Iterator<Item = u64>,
) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut file: Option<(u64, Option<File>)> = None;
    for page in addresses.map(|address| address / PAGE * PAGE) {
        if runs.last().is_some_and(|(start, length)| page < start + length) {
            continue;
        }
        let Some(region) = maps::at(regions, page) else { continue };
        if file.as_ref().is_none_or(|(start, _)| *start != region.start) {
            file = Some((region.start, open(target, region)));
        }
        let Some((_, Some(file))) = &file else { continue };
        if !is_same(text, file, page, page - region.start + region.offset) {
            continue;
        }
        match runs.last_mut().filter(|(start, length)| start + *length == page) {
            Some((_, length)) => *length += PAGE,
            None => runs.push((page, PAGE)),
        }
    }
    runs
}

/// Opens the mapped file, unless its path names another file by now. None if the mapping is
/// writable.
fn open(target: &Target, region: &Region) -> Option<File> {
    let file = region.open(target.pid).ok()?;
    let same = file.metadata().is_ok_and(|meta| meta.ino() == region.file.1);
    (same && !region.writable).then_some(file)
}

fn is_same(text: &mut ProcessText, file: &File, at: u64, offset: u64) -> bool {
    let (mut now, mut then) = ([0; PAGE as usize], [0; PAGE as usize]);
    let mut read = 0;
    // The rest of a page beyond the end of the file is zero.
    while let Ok(more @ 1..) = file.read_at(&mut then[read..], offset + read as u64) {
        read += more;
    }
    read > 0 && text.read(Avma(at), &mut now).is_ok() && now == then
}
