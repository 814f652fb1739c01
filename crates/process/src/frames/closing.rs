//! Gives calls that are open when calltap detaches their return addresses back.

use super::{WORD, find, words};
use crate::agent::LoadedAgent;
use crate::memory::faults::Page;
use crate::memory::text::ProcessText;
use crate::proc;
use calltap_abi::PAGE;
use calltap_abi::{SHADOWS, profile, stub};
use calltap_patch::{Avma, Text};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Number of pages of shadow stacks that are read at a time: few enough that their bytes stay in
/// the cache.
const PAGES: usize = 64;

/// Restores the return addresses of open calls from the shadow stack, where their slots still hold
/// a stub's address. `except`: sorted, disjoint ranges of stacks whose calls stay open. Returns the
/// number of calls. After an error, calls may still return to stubs.
///
/// Walks the shadow stack instead of the threads: while a coroutine is suspended, its stack belongs
/// to no thread.
pub fn close_calls(
    text: &mut ProcessText,
    pid: u32,
    agent: &LoadedAgent,
    stubs: (u64, u64),
    except: &[(u64, u64)],
) -> io::Result<usize> {
    let pieces = shadow_pieces(text, agent)?;
    let mut pages = Vec::new();
    if pieces.is_empty() {
        return Ok(0);
    }
    let pagemap = File::open(proc::place(pid).join("pagemap"))?;
    for piece in pieces {
        let slots = u64::from(piece) << stub::SHADOW_GRANULE;
        let count = 1usize << stub::SHADOW_GRANULE >> 12;
        let mut entries = vec![0; count * WORD];
        pagemap.read_exact_at(&mut entries, shadow_of(slots) / PAGE * WORD as u64)?;
        // Bits 62 and 63 of an entry of pagemap: the page is swapped out, or in memory.
        let used = words(&entries).enumerate().filter(|(_, entry)| entry >> 62 != 0);
        pages.extend(used.map(|(n, _)| slots + n as u64 * PAGE));
    }
    pages.chunks(PAGES).map(|pages| close_pages(text, pages, stubs, except)).sum()
}

fn shadow_of(slot: u64) -> u64 {
    slot ^ 1 << stub::SHADOW_BIT
}

/// Restores the return addresses of the slots in these pages. Returns the number of calls.
fn close_pages(
    text: &mut ProcessText,
    pages: &[u64],
    stubs: (u64, u64),
    except: &[(u64, u64)],
) -> io::Result<usize> {
    let shadows: Vec<(u64, usize)> = pages.iter().map(|page| (shadow_of(*page), PAGE as usize)).collect();
    let shadows = text.read_many(&shadows);
    let mut all = Vec::new();
    for (n, page) in pages.iter().enumerate() {
        let shadow = shadows.get(n).ok_or_else(|| unreadable("a page of the shadow stack", *page))?;
        all.extend(SavedAddresses::of(*page, shadow));
    }
    let slots: Vec<(u64, usize)> = all.iter().map(SavedAddresses::slots).collect();
    let now = text.read_many(&slots);
    let mut closed = 0;
    for (n, kept) in all.iter().enumerate() {
        let first = kept.slots().0;
        let Some(now) = now.get(n) else {
            // The stack of a call that was left may be unmapped.
            match text.page(first) {
                Page::Missing => continue,
                Page::Present | Page::Swapped => return Err(unreadable("a stack", first)),
            }
        };
        for (slot, address) in &kept.addresses {
            let now = now.get((slot - first) as usize..).and_then(|now| words(now).next());
            if now.is_some_and(|now| (stubs.0..stubs.1).contains(&now)) && !find(except, *slot) {
                text.write(Avma(*slot), &address.to_le_bytes())?;
                closed += 1;
            }
        }
    }
    Ok(closed)
}

fn unreadable(what: &str, at: u64) -> io::Error {
    io::Error::other(format!("{what} cannot be read at {at:#x}"))
}

/// The return addresses that a page of a shadow stack holds, each with its slot. Never empty.
struct SavedAddresses {
    addresses: Vec<(u64, u64)>,
}

impl SavedAddresses {
    fn of(page: u64, shadow: &[u8]) -> Option<SavedAddresses> {
        // The shadow stack also holds times beside the slots.
        let is_address = |kept: u64| kept != 0 && kept >> profile::TIMED == 0;
        let all = words(shadow).enumerate().filter(|(_, kept)| is_address(*kept));
        let addresses: Vec<(u64, u64)> = all.map(|(n, kept)| (page + (n * WORD) as u64, kept)).collect();
        (!addresses.is_empty()).then_some(SavedAddresses { addresses })
    }

    /// Address and length of the memory from the first slot through the last.
    fn slots(&self) -> (u64, usize) {
        let (first, last) = (self.addresses[0].0, self.addresses[self.addresses.len() - 1].0);
        (first, (last - first) as usize + WORD)
    }
}

/// Returns the numbers of the granules of shadow stack that the agent has mapped.
fn shadow_pieces(text: &mut ProcessText, agent: &LoadedAgent) -> io::Result<Vec<u32>> {
    let Some(at) = agent.symbol("calltap_shadows").map(Avma) else { return Ok(Vec::new()) };
    let mut count = [0; 4];
    text.read(at, &mut count)?;
    let count = (u32::from_le_bytes(count) as usize).min(SHADOWS);
    let mut bytes = vec![0; count * 4];
    text.read(Avma(at.0 + 4), &mut bytes)?;
    let words = bytes.chunks_exact(4);
    Ok(words.map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default())).collect())
}
