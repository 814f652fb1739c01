//! Tests that stubs, veneers and patched sites are what an independent decoder reads.

use calltap_abi::stub::{self, HOOK_COUNT, Style};
use calltap_patch::{Agent, Avma, Bias, HookSet, Site, State};
use calltap_sites::{Exit, POP, SiteForm, Svma};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};
use proptest::prelude::*;

const STUBS: u64 = 0x7f00_0200_0000;

fn agent() -> Agent {
    Agent { stubs: Avma(STUBS), hooks: std::array::from_fn(|i| Avma(STUBS - 0x10000 + 64 * i as u64)) }
}

fn decode(bytes: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

/// Target of a call or jump at `offset`, direct or through the address stored in `bytes`.
fn goes_to(bytes: &[u8], at: u64, offset: usize) -> u64 {
    let instruction = decode(&bytes[offset..], at + offset as u64);
    if instruction.op0_kind() == OpKind::NearBranch64 {
        return instruction.near_branch_target();
    }
    let place = (instruction.ip_rel_memory_address() - at) as usize;
    u64::from_le_bytes(bytes[place..place + 8].try_into().unwrap())
}

fn is_call(code: Code) -> bool {
    matches!(code, Code::Call_rel32_64 | Code::Call_rm64)
}

#[test]
fn a_call_through_stub_calls_entry_body_and_exit_and_returns() {
    for body in [STUBS + 0x100_0000, 0x5555_0000_1234] {
        let at = agent().stub(7).0;
        let bytes =
            calltap_patch::stub_bytes(&agent(), Avma(at), Avma(body), HookSet::GRAPH, Style::CallThrough)
                .unwrap();
        let hook = |hook: usize| agent().hooks[hook].0;
        assert_eq!(goes_to(&bytes, at, 0), hook(stub::entry_hook(stub::GRAPH, Style::CallThrough)));
        assert_eq!(goes_to(&bytes, at, stub::AFTER_ENTRY), body);
        assert_eq!(goes_to(&bytes, at, stub::LANDING), hook(14));
        assert_eq!(goes_to(&bytes, at, stub::TAIL), body);
        // Unwind tables and event codes rely on each return address being that of the next
        // instruction.
        let calls =
            [(0, stub::AFTER_ENTRY), (stub::AFTER_ENTRY, stub::LANDING), (stub::LANDING, stub::AFTER_EXIT)];
        for (offset, next) in calls {
            let call = decode(&bytes[offset..], at);
            assert!(is_call(call.code()), "a call at {offset}");
            assert_eq!(offset + call.len(), next);
        }
        assert_eq!(decode(&bytes[stub::AFTER_EXIT..], at).code(), Code::Retnq);
        assert!(!is_call(decode(&bytes[stub::TAIL..], at).code()));
    }
}

#[test]
fn a_pop_behind_the_first_instruction_stays_where_the_jump_leads_far_up() {
    let old = b"\x48\x83\xc4\x20\x5d\xc3"; // add $0x20,%rsp; pop %rbp; ret
    for (at, bias) in [(0x40_1234, 0), (0x1234, 0x5555_5000_0000)] {
        let (at, bias) = (Svma(at), Bias(bias));
        let exit = Exit { at, old: old.to_vec(), leaves: vec![5], is_sled: false, keeps_pop: true };
        let site = Site::exit(&exit, bias).unwrap();
        let targets = calltap_patch::exit_targets(&exit, bias).unwrap();
        for target in [targets.start, targets.start + 0x12_3456, targets.end - 1] {
            let bytes = site.bytes(State::Enabled(Avma(target))).unwrap();
            assert_eq!(bytes[4..], old[4..], "{target:#x}");
            let jump = decode(&bytes, site.address().0);
            assert_eq!((jump.len(), jump.near_branch_target()), (5, target));
            assert_eq!(bytes[4], POP);
        }
        for target in [targets.start - 1, targets.end] {
            assert_ne!(site.bytes(State::Enabled(Avma(target))).unwrap()[4], POP);
        }
        let anywhere = Exit { keeps_pop: false, ..exit };
        assert_eq!(calltap_patch::exit_targets(&anywhere, bias), None);
    }
}

#[test]
fn an_entry_only_stub_jumps_into_the_body() {
    let at = agent().stub(0).0;
    let body = Avma(at + 4096);
    for style in [Style::CallThrough, Style::Exits] {
        let bytes = calltap_patch::stub_bytes(&agent(), Avma(at), body, HookSet::FUNCTION, style).unwrap();
        let start = calltap_patch::entry_offset(HookSet::FUNCTION, style);
        assert_eq!(goes_to(&bytes, at, start), agent().hooks[stub::entry_hook(stub::FUNCTION, style)].0);
        assert_eq!(start + decode(&bytes[start..], at).len(), stub::AFTER_CALL);
        assert_eq!(goes_to(&bytes, at, stub::AFTER_CALL), body.0);
    }
}

#[test]
fn stub_of_rewritten_exits_jumps_to_body_and_is_called_at_exits() {
    for body in [STUBS + 0x100_0000, 0x5555_0000_1234] {
        let (at, style) = (agent().stub(7).0, Style::Exits);
        let bytes = calltap_patch::stub_bytes(&agent(), Avma(at), Avma(body), HookSet::GRAPH, style).unwrap();
        let start = calltap_patch::entry_offset(HookSet::GRAPH, style);
        assert_eq!(goes_to(&bytes, at, start), agent().hooks[stub::entry_hook(stub::GRAPH, style)].0);
        assert_eq!(start + decode(&bytes[start..], at).len(), stub::AFTER_CALL);
        assert_eq!(goes_to(&bytes, at, stub::AFTER_CALL), body);
        assert!(!is_call(decode(&bytes[stub::AFTER_CALL..], at).code()));
        let leave = decode(&bytes[stub::LEAVE..], at + stub::LEAVE as u64);
        assert_eq!(leave.near_branch_target(), agent().hooks[23].0);
        assert_eq!(stub::LEAVE + leave.len(), stub::AFTER_LEAVE);
        let back = decode(&bytes[stub::AFTER_LEAVE..], at);
        assert_eq!((back.code(), usize::from(back.immediate16())), (Code::Retnq_imm16, stub::RED_ZONE));
    }
}

#[test]
fn a_stub_after_a_prologue_returns_to_the_site() {
    for hook_set in HookSet::all() {
        let at = agent().stub(1).0;
        let bytes =
            calltap_patch::stub_bytes(&agent(), Avma(at), Avma(0x40_1000), hook_set, Style::AfterPrologue)
                .unwrap();
        let start = calltap_patch::entry_offset(hook_set, Style::AfterPrologue);
        assert!(is_call(decode(&bytes[start..], at).code()));
        assert_eq!(decode(&bytes[stub::AFTER_MCOUNT..], at).code(), Code::Retnq);
    }
}

#[test]
fn event_codes_are_the_return_addresses_of_the_hooks() {
    use calltap_abi::event::code;
    assert_eq!(code::ENTRY as usize, stub::AFTER_ENTRY);
    assert_eq!(code::EXIT as usize, stub::AFTER_EXIT);
}

#[test]
fn every_combination_of_tracers_has_hooks_of_its_own() {
    let all = || {
        HookSet::all().flat_map(|hook_set| {
            let of_go = hook_set.on_goroutine(true);
            [hook_set, hook_set.reading(1), hook_set.on_small_stack(), of_go, of_go.reading(1)]
        })
    };
    let styles = [Style::CallThrough, Style::AfterPrologue, Style::Exits];
    let entries = all().flat_map(|hook_set| styles.map(|style| stub::entry_hook(hook_set.number(), style)));
    let exits = all().flat_map(|hook_set| {
        styles.into_iter().filter_map(move |style| stub::exit_hook(hook_set.number(), style))
    });
    let evaluator = HookSet::EVALUATOR.reading(1).number();
    let python = [Style::CallThrough, Style::Exits].into_iter().flat_map(|style| {
        [stub::entry_hook(evaluator, style)].into_iter().chain(stub::exit_hook(evaluator, style))
    });
    let watching = [HookSet::NONLOCAL, HookSet::PRCTL].map(|watching| watching.reading(1));
    for hook_set in watching {
        assert_eq!(HookSet::from_number(hook_set.number(), 1), Some(hook_set));
    }
    let watching =
        watching.map(|watching| stub::entry_hook(watching.number(), Style::CallThrough)).into_iter();
    let mut hooks: Vec<usize> = entries.chain(exits).chain(python).chain(watching).collect();
    hooks.sort_unstable();
    hooks.dedup();
    let counts = hooks.iter().copied().chain([stub::GO_LOST_HOOK]);
    assert!(counts.eq(0..HOOK_COUNT), "{hooks:?}");
}

#[test]
fn returns_are_not_replaced_on_small_stacks() {
    for hook_set in HookSet::all().map(HookSet::on_small_stack) {
        assert_eq!(stub::exit_hook(hook_set.number(), Style::CallThrough), None);
        assert_eq!(HookSet::from_number(hook_set.number(), 0), Some(hook_set));
        assert_eq!(HookSet::from_number(hook_set.number(), 1), None, "nothing is read there");
        assert_eq!(hook_set.reading(1), hook_set);
        let running = hook_set.running_programs();
        assert_eq!(running, hook_set.records().then_some(HookSet::FUNCTION));
        let at = agent().stub(0).0;
        let bytes =
            calltap_patch::stub_bytes(&agent(), Avma(at), Avma(at + 4096), hook_set, Style::CallThrough)
                .unwrap();
        let start = calltap_patch::entry_offset(hook_set, Style::CallThrough);
        assert_eq!(
            goes_to(&bytes, at, start),
            agent().hooks[stub::entry_hook(hook_set.number(), Style::CallThrough)].0
        );
        assert_eq!(goes_to(&bytes, at, stub::AFTER_CALL), at + 4096);
    }
}

#[test]
fn returns_of_go_functions_are_recorded_by_exits_only() {
    use calltap_abi::event::code;
    for asked in HookSet::all() {
        let hook_set = asked.on_goroutine(true);
        assert_eq!(HookSet::from_number(hook_set.number(), 0), Some(hook_set));
        let reading = hook_set.reading(1);
        assert_eq!(HookSet::from_number(reading.number(), 1), Some(reading));
        assert_eq!(hook_set.returns(), asked.number() & stub::GRAPH != 0);
        assert!(!asked.on_goroutine(false).returns());
        let at = agent().stub(0).0;
        let bytes =
            calltap_patch::stub_bytes(&agent(), Avma(at), Avma(at + 4096), hook_set, Style::Exits).unwrap();
        assert_eq!(goes_to(&bytes, at, stub::AFTER_CALL), at + 4096);
        assert_eq!(bytes[stub::GOID], 0xCC, "it is free for the place of the number");
        if let Some(hook) = stub::exit_hook(hook_set.number(), Style::Exits) {
            assert_eq!(goes_to(&bytes, at, stub::LEAVE), agent().hooks[hook].0);
        }
    }
    // Hooks compute codes from the addresses to which they return.
    assert_eq!(
        [stub::AFTER_CALL as u32 ^ 19, stub::AFTER_CALL as u32 ^ 18],
        [code::GO_ENTRY, code::GO_ENTRY_FROM]
    );
    assert_eq!([stub::AFTER_CALL as u32 ^ 16, stub::AFTER_LEAVE as u32 ^ 4], [code::GO_CALL, code::GO_EXIT]);
}

fn form(kind: u8, at: u64, gap: bool) -> SiteForm {
    let svma = Svma(at);
    match kind {
        0 => SiteForm::Entry { at: svma, old: vec![0x90; 5] },
        1 => SiteForm::Entry { at: svma, old: vec![0x66, 0x0f, 0x1f, 0x44, 0, 0] },
        2 => SiteForm::AfterPrologue { at: svma, old: vec![0xe8, 1, 2, 3, 4] },
        _ => SiteForm::Prefix {
            prefix: svma,
            prefix_old: vec![0x90; 5],
            entry: Svma(at + 5 + if gap { 4 } else { 0 }),
            entry_old: vec![0x66, 0x90],
        },
    }
}

proptest! {
    #[test]
    fn a_patched_site_leads_to_its_target_in_whole_instructions(
        at in 0x1000u64..0x7fff_0000,
        distance in -0x7000_0000i64..0x7000_0000,
        kind in 0..4u8,
        gap in prop::bool::ANY,
    ) {
        let bias = Bias(0x5555_0000_0000);
        let target = Avma((at + bias.0).wrapping_add_signed(distance));
        let form = form(kind, at, gap);
        let site = Site::new(&form, bias).unwrap();
        let bytes = site.bytes(State::Enabled(target)).unwrap();
        prop_assert_eq!(bytes.len(), site.bytes(State::Original).unwrap().len());
        let first = decode(&bytes, site.address().0);
        prop_assert_eq!(first.near_branch_target(), target.0);
        prop_assert_eq!(is_call(first.code()), matches!(form, SiteForm::AfterPrologue { .. }));
        if let SiteForm::Prefix { prefix, entry, .. } = form {
            let offset = (entry.0 - prefix.0) as usize;
            let back = decode(&bytes[offset..], site.address().0 + offset as u64);
            prop_assert_eq!(back.near_branch_target(), site.address().0, "the entry jumps back to the prefix");
            prop_assert_eq!(back.len(), 2);
        } else {
            prop_assert!(bytes[first.len()..].iter().all(|byte| *byte == 0x90), "one instruction, and NOPs");
        }
    }

    #[test]
    fn target_out_of_reach_is_refused_and_veneer_reaches(far in 0x1_0000_0000u64..0x7000_0000_0000) {
        let site = Site::new(&form(0, 0x1000, false), Bias(0)).unwrap();
        prop_assert!(site.bytes(State::Enabled(Avma(far))).is_err());
        let veneer = calltap_patch::veneer_bytes(Avma(far));
        prop_assert_eq!(goes_to(&veneer, 0x2000, 0), far);
    }
}
