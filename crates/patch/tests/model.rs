//! Model check of a site that is changed while threads execute it, on a machine that fetches stale
//! bytes.

use calltap_patch::{STEPS, State, Transition};

mod batches;
mod machine;
mod proof;
mod sites;

use proof::{Falsify, Harm, Proof};
use sites::{Act, Case, Look, PLACES};

const TRANSITIONS: [Transition; 3] = [Transition::Test, Transition::Jmp3f, Transition::Int3];

/// Proves that no thread is harmed, whatever changes follow each other.
fn explore(case: &Case, falsify: Falsify<'_>) -> Result<(), Harm> {
    Proof::new(case, falsify)?.changes()
}

fn check(cases: impl Fn(u64) -> Vec<Case>) {
    for transition in TRANSITIONS {
        for case in sites::through(transition, PLACES.into_iter().flat_map(&cases).collect()) {
            if let Err(harm) = explore(&case, &|_, acts| acts) {
                panic!("{} through {transition:?}:\n{harm}", case.name);
            }
        }
    }
}

#[test]
fn a_nop_of_any_length_is_switched_under_running_threads() {
    check(sites::nops);
}

#[test]
fn five_nops_are_joined_once_no_thread_is_inside() {
    check(|place| vec![sites::single_nops(place)]);
}

#[test]
fn calls_are_switched_while_threads_are_in_callees() {
    check(sites::calls);
}

#[test]
fn sites_that_call_from_the_entry() {
    check(sites::calling);
}

#[test]
fn a_jump_in_front_of_a_function_is_never_reached_in_the_making() {
    check(sites::prefixed);
}

#[test]
fn empty_function_returns_or_jumps_without_fall_through() {
    check(sites::empty_functions);
}

#[test]
fn sleds_are_switched_under_running_threads() {
    check(sites::sleds);
}

#[test]
fn entries_are_enabled_after_exits() {
    for transition in TRANSITIONS {
        let last = |case: &Case| {
            let steps = case.site.steps(State::Original, case.state(2), transition).unwrap();
            (0..STEPS).rev().find(|step| !steps.is_empty(*step))
        };
        let [entry, exits @ ..] = &sites::sleds(PLACES[0])[..] else { panic!("no sleds") };
        assert!(exits.iter().all(|exit| last(exit) < last(entry)), "{transition:?}");
    }
}

#[test]
fn a_function_is_replaced_as_a_whole_once_no_thread_is_at_its_beginning() {
    check(sites::functions);
    check_mutant("no drain", between_instructions, &|_, acts| without(acts, is_drain));
}

#[test]
fn prologue_is_overwritten_while_all_threads_are_stopped_outside() {
    check(sites::prologues);
    check(sites::besides);
    check_mutant("no stop", sites::besides, &|_, acts| without(acts, is_drain));
    check_mutant("no stop", sites::prologues, &|_, acts| without(acts, is_drain));
    let several = |place| sites::prologues(place).split_off(1);
    check_mutant("a stop without a look", several, &|_, acts| {
        let blind = |act| if let Act::Stop(_) = act { Act::Stop(Look::Nowhere) } else { act };
        acts.into_iter().map(blind).collect()
    });
}

#[test]
fn permanent_breakpoint_is_one_byte_and_needs_its_handler() {
    check(sites::traps);
    let unhandled = |place| {
        let mut cases = sites::traps(place);
        cases.iter_mut().for_each(|case| case.ground.handled = None);
        cases
    };
    check_mutant("no handler", unhandled, &|_, acts| acts);
    // The bytes behind the first stay: a thread that lands there finds the original ones.
    check_mutant("all of its bytes", |place| sites::traps(place).split_off(1), &|_, acts| {
        let whole = |act| match act {
            Act::Store(0, 0, bytes) if bytes[..] == [0xCC] => Act::Store(0, 0, vec![0xCC, 0xF4]),
            act => act,
        };
        acts.into_iter().map(whole).collect()
    });
}

/// Functions in which a thread may be between two instructions.
fn between_instructions(place: u64) -> Vec<Case> {
    let mut cases = sites::functions(place);
    cases.retain(|case| {
        case.bytes(State::Original)[..2] != [0x0F, 0x1F] || case.bytes(State::Original)[2] != 0x44
    });
    cases
}

fn check_recoveries(targets: &[usize], twice: bool) {
    let [test, ..] = TRANSITIONS;
    let both = TRANSITIONS.map(|other| [(other, test), (test, other)]);
    for (first, second) in both.as_flattened()[1..].iter().copied() {
        for mut case in sites::through(second, sites::every_kind(PLACES[0])) {
            // The handler of breakpoints stays installed.
            let handled = case.ground.handled;
            case = sites::through(first, vec![case]).remove(0);
            case.ground.handled = case.ground.handled.or(handled);
            let proof = Proof::new(&case, &|_, acts| acts).map(|proof| proof.resuming(second));
            if let Err(harm) = proof.and_then(|mut proof| proof.recoveries(targets, twice)) {
                panic!("{} through {first:?}, then {second:?}:\n{harm}", case.name);
            }
        }
    }
}

#[test]
fn interrupted_batch_is_safe_and_recoverable() {
    check_recoveries(&[0, 1, 2, 3], false);
}

#[test]
fn original_bytes_can_be_restored_after_interrupted_restore() {
    check_recoveries(&[0], true);
}

/// Checks that falsified batches harm a thread at each of these sites.
fn check_mutant(what: &str, cases: impl Fn(u64) -> Vec<Case>, falsify: Falsify<'_>) {
    for case in cases(PLACES[0]) {
        assert!(explore(&case, falsify).is_err(), "not caught: {what}, at {}", case.name);
    }
}

fn without(acts: Vec<Act>, unwanted: impl Fn(&Act) -> bool) -> Vec<Act> {
    acts.into_iter().filter(|act| !unwanted(act)).collect()
}

fn is_drain(act: &Act) -> bool {
    matches!(act, Act::Drain(_) | Act::Stop(_) | Act::Continue)
}

fn is_test(act: &Act) -> bool {
    matches!(act, Act::Store(1, _, bytes) if bytes[..] == [0xA9])
}

/// Sites whose first byte becomes A9.
fn all_but_empty_functions(place: u64) -> Vec<Case> {
    let mut cases = sites::live(place);
    cases.retain(|case| case.ground.falls_through && !case.returns);
    cases
}

#[test]
fn missing_core_sync_executes_stale_bytes() {
    check_mutant("no core sync", sites::live, &|_, acts| without(acts, |act| matches!(act, Act::Sync(_))));
}

#[test]
fn each_core_sync_between_two_steps_is_needed() {
    // Behind EB no sync is needed: without it, the bytes that EB skips are only an operand.
    let needed = [&[0, 1, 5, 6][..], &[0, 1, 2, 4, 5, 6], &[0, 1, 5, 6]];
    for (transition, steps) in TRANSITIONS.into_iter().zip(needed) {
        let cases = sites::through(transition, sites::every_kind(PLACES[0]));
        for step in steps {
            let left_out = |_: &Case, acts| without(acts, |act| *act == Act::Sync(*step));
            let caught = cases.iter().filter(|case| explore(case, &left_out).is_err()).count();
            assert!(caught > 0, "not caught: no core sync after step {step} through {transition:?}");
        }
    }
}

#[test]
fn a_jump_written_at_once_is_seen_torn() {
    check_mutant("one store", sites::live, &|case, acts| {
        let mut bytes = vec![None; case.ground.length];
        for act in &acts {
            if let Act::Store(_, offset, new) = act {
                for (i, byte) in new.iter().enumerate() {
                    bytes[offset + i] = Some(*byte);
                }
            }
        }
        let at_once = bytes.iter().enumerate().filter_map(|(i, byte)| Some(Act::Store(0, i, vec![(*byte)?])));
        let rest = without(acts.clone(), |act| matches!(act, Act::Store(..)));
        at_once.chain(rest).collect()
    });
}

#[test]
fn an_operand_written_behind_a_live_jump_is_seen_torn() {
    check_mutant("no A9", all_but_empty_functions, &|_, acts| without(acts, is_test));
}

#[test]
fn a_first_byte_written_before_its_operand_leads_astray() {
    check_mutant("first byte before operand", sites::live, &|case, mut acts| {
        let (operand, first) = if case.site.is_exit() { (4, 5) } else { (5, 6) };
        let at = |acts: &[Act], hook_set| {
            acts.iter().position(|act| matches!(act, Act::Sync(step) if *step == hook_set))
        };
        // The two steps change places, each with its core sync.
        if let (Some(synced), Some(last)) = (at(&acts, operand), at(&acts, first)) {
            let begin = acts.iter().position(|act| matches!(act, Act::Store(step, ..) if *step == operand));
            let begin = begin.unwrap_or(0);
            acts[begin..=last].rotate_left(synced + 1 - begin);
        }
        acts
    });
}

/// Sites that this transition, other than A9, passes through a form of their own.
fn switched_through(transition: Transition) -> impl Fn(u64) -> Vec<Case> {
    // Exits never go through `jmp 3f`.
    let goes = move |case: &Case| transition != Transition::Jmp3f || !case.site.is_exit();
    move |place| {
        let cases = sites::through(transition, all_but_empty_functions(place));
        cases.into_iter().filter(goes).collect()
    }
}

#[test]
fn jmp_3f_without_a9_step_is_executed_torn() {
    check_mutant("no A9 before", switched_through(Transition::Jmp3f), &|_, acts| without(acts, is_test));
    check_mutant("two bytes at once", switched_through(Transition::Jmp3f), &|_, mut acts| {
        let second = |act: &Act| matches!(act, Act::Store(2, ..));
        let first = |act: &Act| matches!(act, Act::Sync(2));
        if let Some(at) = acts.iter().position(second) {
            let store = acts.remove(at);
            acts.retain(|act| !first(act));
            let with = acts.iter().position(|act| matches!(act, Act::Store(3, ..)));
            acts.insert(with.unwrap_or(at) + 1, store);
        }
        acts
    });
}

#[test]
fn a_second_byte_must_not_be_written_under_eb() {
    check_mutant("no A9 behind", switched_through(Transition::Jmp3f), &|_, acts| {
        without(acts, |act| matches!(act, Act::Store(4, _, bytes) if bytes[..] == [0xA9]))
    });
}

#[test]
fn a_breakpoint_needs_a_handler_that_resumes_behind_the_site() {
    let handled = |resume: Option<usize>| {
        move |place| {
            let mut cases = switched_through(Transition::Int3)(place);
            for case in &mut cases {
                let handled = case.ground.handled;
                case.ground.handled = handled.and_then(|(at, _)| Some((at, at + resume?)));
            }
            cases
        }
    };
    check_mutant("no handler", handled(None), &|_, acts| acts);
    check_mutant("a handler that changes nothing", handled(Some(1)), &|_, acts| acts);
    check_mutant("no int3", switched_through(Transition::Int3), &|_, acts| {
        without(acts, |act| matches!(act, Act::Store(1, _, bytes) if bytes[..] == [0xCC]))
    });
}

#[test]
fn a_breakpoint_of_another_tool_is_a_surprise() {
    for case in sites::through(Transition::Int3, sites::every_kind(PLACES[0])) {
        let Some(at) = case.site.breakpoint() else { continue };
        let between = [case.state(1), case.state(2)];
        let mut bytes = case.bytes(case.state(1));
        bytes[(at.0 - case.ground.base) as usize] = 0xCC;
        assert_eq!(case.site.recognise(&bytes, &between, case.state(2), false), None, "{}", case.name);
        assert!(case.site.recognise(&bytes, &between, case.state(2), true).is_some(), "{}", case.name);
    }
}

#[test]
fn a_short_jump_written_as_two_bytes_is_seen_torn() {
    check_mutant("two bytes at once", sites::prefixed, &|case, acts| {
        let entry = case.ground.length - 2;
        let mut second = Vec::new();
        let mut changed = Vec::new();
        for act in acts {
            match act {
                Act::Store(6, offset, bytes) if offset == entry + 1 => second = bytes,
                Act::Store(7, offset, bytes) if offset == entry => {
                    changed.push(Act::Store(7, offset, [bytes, second.clone()].concat()));
                }
                act => changed.push(act),
            }
        }
        changed
    });
}

#[test]
fn short_jump_without_its_target_jump_loops() {
    check_mutant("the short jump goes last", sites::prefixed, &|case, mut acts| {
        let entry = case.ground.length - 2;
        let goes = |act: &Act| matches!(act, Act::Store(0 | 1, offset, _) if *offset >= entry);
        let last: Vec<Act> = acts.iter().filter(|act| goes(act)).cloned().collect();
        acts = without(acts, goes);
        acts.extend(last);
        acts.push(Act::Sync(7));
        acts
    });
}

#[test]
fn a_thread_between_five_nops_must_be_waited_for() {
    check_mutant("no drain", |place| vec![sites::single_nops(place)], &|_, acts| without(acts, is_drain));
}

fn restored(place: u64) -> Vec<Case> {
    let mut cases = sites::nops(place);
    // NOPs of six bytes stay one instruction, with another prefix.
    cases.retain(|case| case.ground.length > 6);
    cases.extend(sites::prefixed(place));
    cases.extend(sites::sleds(place).into_iter().filter(|case| case.ground.falls_through));
    cases
}

#[test]
fn a_thread_inside_must_be_waited_for_before_the_file_s_bytes_come_back() {
    check_mutant("no drain", restored, &|_, acts| without(acts, is_drain));
    // Draining once is not enough where threads enter again behind A9.
    let long_nops = |place| restored(place).into_iter().filter(|case| case.ground.entries == [0]).collect();
    check_mutant("a drain instead of a stop", long_nops, &|_, acts| {
        let drain = |act| match act {
            Act::Stop(look) => Act::Drain(look),
            act => act,
        };
        without(acts, |act| *act == Act::Continue).into_iter().map(drain).collect()
    });
}

fn long_calls(place: u64) -> Vec<Case> {
    let mut cases = sites::calls(place);
    cases.retain(|case| case.calls && case.ground.length > 6);
    cases
}

#[test]
fn a_thread_that_will_return_into_a_site_is_inside() {
    check_mutant("return addresses not looked at", long_calls, &|_, acts| {
        let here = |act| match act {
            Act::Drain(_) => Act::Drain(Look::Here),
            Act::Stop(_) => Act::Stop(Look::Here),
            act => act,
        };
        acts.into_iter().map(here).collect()
    });
}

#[test]
fn an_empty_function_s_return_must_not_become_a9() {
    let returning = |place| {
        let sleds = sites::sleds(place).into_iter().filter(|case| !case.ground.falls_through);
        sites::empty_functions(place).into_iter().chain(sleds).collect()
    };
    check_mutant("A9", returning, &|_, acts| {
        let falsified = |act| match act {
            Act::Store(1, 0, _) => Act::Store(1, 0, vec![0xA9]),
            act => act,
        };
        acts.into_iter().map(falsified).collect()
    });
}
