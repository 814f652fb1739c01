//! Gives calls that are open when calltap detaches their return addresses back.

use super::{WORD, words};
use crate::agent::Loaded;
use crate::memory::text::ProcessText;
use crate::proc;
use calltap_abi::PAGE;
use calltap_abi::{profile, stub};
use calltap_patch::{Avma, Text};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Number of pages of shadow stacks that are read at a time: few enough that their bytes stay in
/// the cache.
const PAGES: usize = 64;

/// Restores the return addresses of open calls from the shadow stack, where their slots still hold
/// a stub's address. Returns the number of calls.
///
/// Walks the shadow stack instead of the threads: while a coroutine is suspended, its stack belongs
/// to no thread.
pub fn close_calls(text: &mut ProcessText, pid: u32, agent: &Loaded, stubs: (u64, u64)) -> usize {
    let pieces = shadow_pieces(text, agent);
    let Ok(pagemap) = File::open(proc::place(pid).join("pagemap")) else { return 0 };
    let mut pages = Vec::new();
    for piece in pieces {
        let slots = u64::from(piece) << stub::SHADOW_GRANULE;
        let count = 1usize << stub::SHADOW_GRANULE >> 12;
        let mut entries = vec![0; count * WORD];
        if pagemap.read_exact_at(&mut entries, shadow_of(slots) / PAGE * WORD as u64).is_err() {
            continue;
        }
        // Bits 62 and 63 of an entry of pagemap: the page is swapped out, or in memory.
        let used = words(&entries).enumerate().filter(|(_, entry)| entry >> 62 != 0);
        pages.extend(used.map(|(n, _)| slots + n as u64 * PAGE));
    }
    pages.chunks(PAGES).map(|pages| close_pages(text, pages, stubs)).sum()
}

fn shadow_of(slot: u64) -> u64 {
    slot ^ 1 << stub::SHADOW_BIT
}

/// Restores the return addresses of the slots in these pages. Returns the number of calls.
fn close_pages(text: &mut ProcessText, pages: &[u64], stubs: (u64, u64)) -> usize {
    let shadows: Vec<(u64, usize)> = pages.iter().map(|page| (shadow_of(*page), PAGE as usize)).collect();
    let kept = text.read_many(&shadows);
    let kept: Vec<Kept> =
        pages.iter().enumerate().filter_map(|(n, page)| Kept::of(*page, kept.get(n)?)).collect();
    let slots: Vec<(u64, usize)> = kept.iter().map(Kept::slots).collect();
    let now = text.read_many(&slots);
    let mut closed = 0;
    for (n, kept) in kept.iter().enumerate() {
        let Some(now) = now.get(n) else { continue };
        let first = kept.slots().0;
        for (slot, address) in &kept.addresses {
            let now = now.get((slot - first) as usize..).and_then(|now| words(now).next());
            if now.is_some_and(|now| (stubs.0..stubs.1).contains(&now)) {
                closed += usize::from(text.write(Avma(*slot), &address.to_le_bytes()).is_ok());
            }
        }
    }
    closed
}

/// The return addresses that a page of a shadow stack holds, each with its slot. Never empty.
struct Kept {
    addresses: Vec<(u64, u64)>,
}

impl Kept {
    fn of(page: u64, shadow: &[u8]) -> Option<Kept> {
        // The shadow stack also holds times beside the slots.
        let is_address = |kept: u64| kept != 0 && kept >> profile::TIMED == 0;
        let all = words(shadow).enumerate().filter(|(_, kept)| is_address(*kept));
        let addresses: Vec<(u64, u64)> = all.map(|(n, kept)| (page + (n * WORD) as u64, kept)).collect();
        (!addresses.is_empty()).then_some(Kept { addresses })
    }

    /// Address and length of the memory from the first slot through the last.
    fn slots(&self) -> (u64, usize) {
        let (first, last) = (self.addresses[0].0, self.addresses[self.addresses.len() - 1].0);
        (first, (last - first) as usize + WORD)
    }
}

/// Returns the numbers of the granules of shadow stack that the agent has mapped.
fn shadow_pieces(text: &mut ProcessText, agent: &Loaded) -> Vec<u32> {
    let Some(at) = agent.symbol("calltap_shadows").map(Avma) else { return Vec::new() };
    let mut count = [0; 4];
    if text.read(at, &mut count).is_err() {
        return Vec::new();
    }
    let count = (u32::from_le_bytes(count) as usize).min(8191);
    let mut bytes = vec![0; count * 4];
    if text.read(Avma(at.0 + 4), &mut bytes).is_err() {
        return Vec::new();
    }
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default())).collect()
}
