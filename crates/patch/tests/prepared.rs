//! Tests that a batch planned ahead is carried out like any other, even if the code has changed
//! since.

use calltap_patch::log::Entry;
use calltap_patch::{Audit, Avma, Bias, Change, ChangeError, Demand, Failed, Prepared, Site, State, Text};
use calltap_sites::{SiteForm, Svma};

const BASE: u64 = 0x1000;
const ON: State = State::Enabled(Avma(0x9_0000));
/// Sites on three spans: the pages between them have none.
const PLACES: [u64; 4] = [0x10, 0x40, 0x6000, 0xC010];
const NOPS: [u8; 5] = [0x90; 5];

/// Memory of which a part may be unreadable, with a log of its reads and writes.
struct Memory {
    bytes: Vec<u8>,
    end: u64,
    entries: Vec<Entry>,
}

impl Memory {
    fn new() -> Memory {
        let mut bytes = vec![0xC3; 0xE000];
        for place in PLACES {
            bytes[place as usize..][..NOPS.len()].copy_from_slice(&NOPS);
        }
        Memory { bytes, end: BASE + 0xE000, entries: Vec::new() }
    }

    fn at(&self, place: u64) -> &[u8] {
        &self.bytes[place as usize..][..NOPS.len()]
    }
}

impl Text for Memory {
    type Error = ();

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), ()> {
        if at.0 + into.len() as u64 > self.end {
            return Err(());
        }
        into.copy_from_slice(&self.bytes[(at.0 - BASE) as usize..][..into.len()]);
        self.entries.push(Entry::Read(at, into.to_vec()));
        Ok(())
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), ()> {
        self.bytes[(at.0 - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.entries.push(Entry::Write(at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ()> {
        self.entries.push(Entry::Sync);
        Ok(())
    }

    fn begin(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>, granted: Demand) {
        let (transition, after_int3) = (self.transition(), self.after_int3());
        self.entries.push(Entry::Batch { pid: 7, quiet: true, granted, transition, after_int3 });
        self.entries.extend(changes.map(Entry::from));
    }

    fn end(&mut self) {
        self.entries.push(Entry::End);
    }
}

/// Plans to enable all sites, in this order; runs `meanwhile`; carries out the plan. Afterwards the
/// sites `off` must be as `meanwhile` left them, and the others enabled.
fn check(order: [usize; 4], meanwhile: impl FnOnce(&mut Memory), off: &[usize], expected: Failed<()>) {
    let sites = PLACES.map(|place| {
        Site::new(&SiteForm::Entry { at: Svma(BASE + place), old: NOPS.to_vec() }, Bias(0)).expect("a site")
    });
    let all = order.map(|n| Change { site: &sites[n], from: State::Original, to: ON, recover: &[] });
    let mut memory = Memory::new();
    let before = memory.bytes.clone();
    let prepared = Prepared::new(&mut memory, all, Demand::Stopped).expect("all can be read");
    assert_eq!(memory.bytes, before, "written while it was planned");
    meanwhile(&mut memory);
    let changed = memory.bytes.clone();
    assert_eq!(prepared.carry_out(&mut memory, all), expected);
    for (n, place) in PLACES.into_iter().enumerate() {
        let on = sites[n].bytes(ON).expect("within reach");
        let is = if off.contains(&n) { &changed[place as usize..][..NOPS.len()] } else { &on[..] };
        assert_eq!(memory.at(place), is, "site {n}");
    }
    let is_site = |at: usize| PLACES.iter().any(|place| (*place..place + 5).contains(&(at as u64)));
    let mut between = (0..changed.len()).filter(|at| !is_site(*at));
    assert!(between.all(|at| memory.bytes[at] == changed[at]), "changed between sites");
    // A log has no failed reads.
    let unread = sites.iter().filter(|site| site.address().0 >= memory.end).count();
    let faults = (unread > 0).then(|| format!("written before {unread} sites of the batch were read"));
    let audit = Audit::of(memory.entries);
    let found: Vec<String> = audit.faults.into_iter().map(|(_, what)| what).collect();
    assert_eq!((found, audit.batches, audit.cut_short), (Vec::from_iter(faults), 1, 0));
}

#[test]
fn planned_changes_are_written() {
    check([0, 1, 2, 3], |_| {}, &[], Vec::new());
    check([2, 0, 3, 1], |_| {}, &[], Vec::new());
}

#[test]
fn a_site_that_another_tool_has_changed_since_is_left_alone() {
    let breakpoint = |memory: &mut Memory| memory.bytes[PLACES[1] as usize] = 0xCC;
    let found = ChangeError::Mismatch(vec![0xCC, 0x90, 0x90, 0x90, 0x90]);
    check([0, 1, 2, 3], breakpoint, &[1], vec![(1, found.clone())]);
    check([2, 0, 3, 1], breakpoint, &[1], vec![(3, found)]);
}

#[test]
fn a_breakpoint_that_was_set_between_sites_since_stays() {
    let between = (PLACES[0] + 0x20) as usize;
    check([0, 1, 2, 3], |memory| memory.bytes[between] = 0xCC, &[], Vec::new());
}

#[test]
fn code_that_was_unmapped_since_is_not_written() {
    let unmap = |memory: &mut Memory| memory.end = BASE + PLACES[3];
    check([0, 1, 2, 3], unmap, &[3], vec![(3, ChangeError::ReadFailed(()))]);
}

#[test]
fn code_that_cannot_be_read_is_not_planned() {
    let form = SiteForm::Entry { at: Svma(BASE + PLACES[3]), old: NOPS.to_vec() };
    let site = Site::new(&form, Bias(0)).expect("a site");
    let mut memory = Memory::new();
    memory.end = BASE + PLACES[3];
    let change = Change { site: &site, from: State::Original, to: ON, recover: &[] };
    assert!(Prepared::new(&mut memory, [change], Demand::Stopped).is_none());
}
