//! Tests that a batch does not undo what the program itself writes between the sites meanwhile.

use calltap_patch::{Avma, Bias, Change, Demand, Site, State, Text, carry_out};
use calltap_sites::{SiteForm, Svma};

const BASE: u64 = 0x1000;
const NOPS: [u8; 5] = [0x90; 5];
/// Sites of one page, with a counter of the program behind each.
const PLACES: [u64; 3] = [0x10, 0x20, 0x30];

/// Code to which the program writes: it counts each time that calltap reads.
struct Written {
    bytes: Vec<u8>,
    reads: u8,
}

impl Written {
    fn counters(&mut self) -> impl Iterator<Item = &mut u8> {
        let is_counter = |at: usize| PLACES.iter().any(|place| *place as usize + 8 == at);
        self.bytes.iter_mut().enumerate().filter(move |(at, _)| is_counter(*at)).map(|(_, byte)| byte)
    }
}

impl Text for Written {
    type Error = ();

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), ()> {
        into.copy_from_slice(&self.bytes[(at.0 - BASE) as usize..][..into.len()]);
        self.reads += 1;
        self.counters().for_each(|counter| *counter += 1);
        Ok(())
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), ()> {
        self.bytes[(at.0 - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ()> {
        Ok(())
    }

    fn may_program_write(&self, at: Avma) -> bool {
        (BASE..BASE + 0x1000).contains(&at.0)
    }
}

#[test]
fn data_between_sites_keeps_concurrent_writes() {
    let mut text = Written { bytes: vec![0; 0x1000], reads: 0 };
    for place in PLACES {
        text.bytes[place as usize..][..NOPS.len()].copy_from_slice(&NOPS);
    }
    let sites = PLACES.map(|place| {
        Site::new(&SiteForm::Entry { at: Svma(BASE + place), old: NOPS.to_vec() }, Bias(0)).expect("a site")
    });
    let on = State::Enabled(Avma(0x9_0000));
    for (from, to) in [(State::Original, on), (on, State::Disabled)] {
        let changes = sites.iter().map(|site| Change { site, from, to, recover: &[] });
        assert_eq!(carry_out(&mut text, changes, Demand::Outside), []);
        let reads = text.reads;
        assert!(reads > 0 && text.counters().all(|counter| *counter == reads), "{to:?}");
    }
    for (site, place) in sites.iter().zip(PLACES) {
        assert!(site.is(State::Disabled, &text.bytes[place as usize..][..NOPS.len()]));
    }
}
