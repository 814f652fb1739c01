use super::*;
use calltap_sites::{GPlace, Goroutine};

#[test]
fn exits_of_a_batch_lead_to_a_common_place() {
    let check = SiteForm::Checked {
        at: Svma(0),
        old: b"\x49\x3b\x66\x10\x76\x20".to_vec(),
        goroutine: Some(Goroutine { g: GPlace::R14, number: 19, started_by: None }),
    };
    let returns = |at, keeps_pop| {
        let old = b"\x48\x83\xc4\x20\x5d\xc3".to_vec();
        let exit = Exit { at: Svma(at), old, leaves: vec![5], is_sled: false, keeps_pop };
        Returns::Exits { at_entry: Vec::new(), elsewhere: vec![exit], unrecorded_end: None }
    };
    let (hook_set, bias) = (HookSet::GRAPH.on_goroutine(true), Bias(0x5555_0000_0000));
    let mut room = BatchRoom::default();
    let mut add = |at, keeps_pop| {
        room.add(&Displaced::new(&check, &returns(at, keeps_pop), hook_set), bias, false)
            .then(|| (room.stubs, room.window.clone().map(|window| window.end - window.start)))
    };
    assert_eq!(add(0x1000, false), Some((1, None)));
    assert_eq!(add(0x2000, true), Some((2, Some(16 << 20))));
    assert_eq!(add(0x2000 + (8 << 20), true), Some((3, Some(8 << 20))));
    // The rest of the window would be smaller than the margin.
    assert_eq!(add(0x2000 + (13 << 20), true), None);
    assert_eq!(add(0x2000 + (13 << 20), false), Some((4, Some(8 << 20))));
    let returns = returns(0x2000, true);
    let alone = Displaced::new(&check, &returns, HookSet::FUNCTION.on_goroutine(true));
    assert_eq!(alone.window(bias, None), None);
}
