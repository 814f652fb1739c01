//! Tests of the log's checker: `carry_out` follows the protocol, and every way to break the
//! protocol is found.

use calltap_patch::log::Entry;
use calltap_patch::{Audit, Avma, Bias, Change, Demand, Site, State, Text, Transition, carry_out};
use calltap_sites::{Exit, SiteForm, Svma};

const BASE: u64 = 0x1000;
const ON: State = State::Enabled(Avma(0x9000));
/// Number of batches through each transition.
const WAYS: usize = 4;

/// Memory with a log of its reads and writes.
struct Logged {
    memory: Vec<u8>,
    entries: Vec<Entry>,
    transition: Transition,
}

impl Text for Logged {
    type Error = ();

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), ()> {
        let from = (at.0 - BASE) as usize;
        into.copy_from_slice(&self.memory[from..from + into.len()]);
        self.entries.push(Entry::Read(at, into.to_vec()));
        Ok(())
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), ()> {
        let from = (at.0 - BASE) as usize;
        self.memory[from..from + bytes.len()].copy_from_slice(bytes);
        self.entries.push(Entry::Write(at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ()> {
        self.entries.push(Entry::Sync);
        Ok(())
    }

    fn transition(&self) -> Transition {
        self.transition
    }

    fn begin(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>, granted: Demand) {
        let (transition, after_int3) = (self.transition, self.after_int3());
        self.entries.push(Entry::Batch { pid: 7, quiet: false, granted, transition, after_int3 });
        self.entries.extend(changes.map(Entry::from));
    }

    fn end(&mut self) {
        self.entries.push(Entry::End);
    }
}

/// Sites of all kinds, 32 bytes apart.
fn sites() -> Vec<Site> {
    let single = vec![0x90; 5];
    let nop = vec![0x0F, 0x1F, 0x44, 0, 0];
    let call = vec![0xE8, 1, 2, 3, 4];
    let at = |n: u64| Svma(BASE + 32 * n);
    let forms = [
        SiteForm::Entry { at: at(0), old: single.clone() },
        SiteForm::Entry { at: at(1), old: nop },
        SiteForm::AfterPrologue { at: at(2), old: call },
        SiteForm::Prefix {
            prefix: at(3),
            prefix_old: single,
            entry: Svma(at(3).0 + 5),
            entry_old: vec![0x90, 0x90],
        },
    ];
    let exit = |n: u64, old: &[u8]| {
        let exit = Exit { at: at(n), old: old.to_vec(), leaves: vec![0], is_sled: true, keeps_pop: false };
        Site::exit(&exit, Bias(0))
    };
    let sleds = [
        exit(4, &[0xEB, 9, 0x66, 0x0F, 0x1F, 0x84, 0, 0, 2, 0, 0]),
        exit(5, &[0xC3, 0x2E, 0x66, 0x0F, 0x1F, 0x84, 0, 0, 2, 0, 0]),
    ];
    let room = forms.iter().map(|form| Site::new(form, Bias(0)));
    room.chain(sleds).map(|site| site.expect("a site")).collect()
}

/// Logs batches that normalize, enable and disable all sites.
fn log() -> Vec<Entry> {
    [Transition::Test, Transition::Jmp3f, Transition::Int3].into_iter().flat_map(log_through).collect()
}

fn log_through(transition: Transition) -> Vec<Entry> {
    let ways: [_; WAYS] = [
        (State::Original, State::Disabled, Demand::Nothing),
        (State::Original, State::Disabled, Demand::Outside),
        (State::Disabled, ON, Demand::Outside),
        (ON, State::Disabled, Demand::Outside),
    ];
    log_of(&sites(), &ways, transition)
}

fn log_of(sites: &[Site], ways: &[(State, State, Demand)], transition: Transition) -> Vec<Entry> {
    let mut text = Logged { memory: vec![0xC3; 4096], entries: Vec::new(), transition };
    for site in sites {
        let (at, bytes) = ((site.address().0 - BASE) as usize, site.bytes(State::Original).unwrap());
        text.memory[at..at + site.len()].copy_from_slice(&bytes);
    }
    for (from, to, granted) in ways {
        let change = |site| Change { site, from: *from, to: *to, recover: &[] };
        carry_out(&mut text, sites.iter().map(change), *granted);
    }
    text.entries.push(Entry::Poke(7, Avma(BASE + 0x800), vec![0xCC; 16]));
    text.entries
}

#[test]
fn audit_accepts_logs_of_the_protocol() {
    let audit = Audit::of(log());
    assert_eq!(audit.faults, []);
    assert_eq!((audit.batches, audit.cut_short, audit.changes), (12, 0, 72));
    assert!(audit.refused > 0 && audit.syncs > 6 && audit.writes >= audit.syncs, "{audit:?}");
}

#[test]
fn a_breakpoint_that_stays_is_one_store_under_running_threads() {
    let form = SiteForm::Trap { at: Svma(BASE), old: vec![0x31, 0xC0, 0xC3] };
    let site = Site::new(&form, Bias(0)).expect("a site");
    let ways = [(State::Original, ON, Demand::Nothing), (ON, State::Disabled, Demand::Nothing)];
    let log = log_of(&[site], &ways, Transition::Test);
    let audit = Audit::of(log.clone());
    assert_eq!((audit.faults, audit.refused, audit.writes, audit.syncs), (vec![], 0, 2, 2));
    for (at, entry) in log.iter().enumerate() {
        assert_eq!(entry.to_string().parse().as_ref(), Ok(entry));
        let Entry::Write(place, bytes) = entry else { continue };
        assert_eq!((*place, bytes.len()), (Avma(BASE), 1));
        let mut more = log.clone();
        more[at] = Entry::Write(*place, [&bytes[..], &[0x90]].concat());
        assert!(!Audit::of(more).faults.is_empty());
    }
}

#[test]
fn log_round_trips() {
    for entry in log() {
        let line = entry.to_string();
        assert_eq!(line.parse(), Ok(entry), "{line}");
    }
    for nonsense in [
        "",
        "bat",
        "batch 1",
        "write 0x10",
        "write 10 00",
        "read 0x10 0",
        "site 0x1 0 90 disabled enabled",
        "sync 1",
    ] {
        assert!(nonsense.parse::<Entry>().is_err(), "{nonsense}");
    }
}

/// Checks that a broken log is found, for every place where `broken` can break it.
fn check(what: &str, broken: impl Fn(&[Entry], usize) -> Option<Vec<Entry>>) {
    let log = log();
    let mut tried = 0;
    for entries in (0..log.len()).filter_map(|at| broken(&log, at)) {
        tried += 1;
        let audit = Audit::of(entries);
        assert!(!audit.faults.is_empty(), "{what} was not found: {audit:?}");
    }
    assert!(tried > 0, "{what}: nowhere to be done");
}

fn without(log: &[Entry], at: usize) -> Vec<Entry> {
    [&log[..at], &log[at + 1..]].concat()
}

/// Whether an entry is in a batch in which all sites take all steps. In other batches, some sites
/// do not miss a sync; and a site without its first write, while others are written, looks as if
/// another tool had changed it.
fn all_take_part(log: &[Entry], at: usize) -> bool {
    log[..at].iter().filter(|entry| **entry == Entry::End).count() % WAYS >= 2
}

#[test]
fn a_missing_sync_is_found() {
    check("a sync left out", |log, at| {
        (log[at] == Entry::Sync && all_take_part(log, at)).then(|| without(log, at))
    });
}

#[test]
fn a_missing_write_is_found() {
    let is_write = |entry: &Entry| matches!(entry, Entry::Write(..));
    check("a write left out", |log, at| {
        // A batch that writes nothing counts as one that failed before it began.
        let start = log[..at].iter().rposition(|entry| matches!(entry, Entry::Batch { .. }))?;
        let end = at + log[at..].iter().position(|entry| *entry == Entry::End)?;
        let others = log[start..end].iter().filter(|entry| is_write(entry)).count() > 1;
        (is_write(&log[at]) && others && all_take_part(log, at)).then(|| without(log, at))
    });
}

#[test]
fn a_write_without_a_look_is_found() {
    check("reads left out", |log, at| {
        let before = log[..at].iter().rposition(|entry| !matches!(entry, Entry::Read(..)))? + 1;
        let looked = matches!(log[at], Entry::Write(..)) && before < at;
        looked.then(|| [&log[..before], &log[at..]].concat())
    });
}

#[test]
fn two_steps_at_once_are_found() {
    check("two steps in one write", |log, at| {
        let next = (at + 1..log.len()).find(|n| matches!(log[*n], Entry::Write(..)))?;
        let (Entry::Write(..), Entry::Write(..)) = (&log[at], &log[next]) else { return None };
        let apart = log[at..next].iter().any(|entry| matches!(entry, Entry::End));
        (!apart).then(|| [&log[..at], &log[next..]].concat())
    });
}

#[test]
fn changed_byte_is_found_at_any_position() {
    for byte in 0..200 {
        let changed = |log: &[Entry], at: usize| {
            let Entry::Write(place, bytes) = &log[at] else { return None };
            let mut bytes = bytes.clone();
            *bytes.get_mut(byte)? ^= 0x41;
            let mut log = log.to_vec();
            log[at] = Entry::Write(*place, bytes);
            Some(log)
        };
        if log().iter().any(|entry| matches!(entry, Entry::Write(_, bytes) if bytes.len() > byte)) {
            check("another byte", changed);
        }
    }
}

#[test]
fn writes_to_a_site_outside_of_a_batch_are_found() {
    let mut log = log();
    log.push(Entry::Poke(7, Avma(BASE + 32 + 4), vec![0xCC]));
    assert_eq!(Audit::of(log.clone()).faults.len(), 1);
    log.pop();
    // In another process, this address belongs to no site.
    log.push(Entry::Poke(8, Avma(BASE + 32 + 4), vec![0xCC]));
    assert_eq!(Audit::of(log).faults, []);
}

#[test]
fn no_log_makes_the_checker_fall_over() {
    let lines: Vec<String> = log().iter().map(Entry::to_string).collect();
    let mut random = 7u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut some: Vec<String> = (0..next(12)).map(|_| lines[next(lines.len())].clone()).collect();
        for line in &mut some {
            let mut bytes = line.clone().into_bytes();
            if next(3) == 0 {
                let at = next(bytes.len());
                bytes[at] = b"0f9x a:"[next(7)];
            }
            *line = String::from_utf8(bytes).expect("ASCII");
        }
        let _ = Audit::of(some.iter().filter_map(|line| line.parse().ok()));
    }
}

#[test]
fn a_batch_that_was_cut_short_is_no_fault_of_the_protocol() {
    let log = log();
    let last = log.iter().rposition(|entry| matches!(entry, Entry::Write(..))).expect("a write");
    let audit = Audit::of(log[..last].to_vec());
    assert_eq!((audit.faults, audit.cut_short), (vec![], 1));
}
