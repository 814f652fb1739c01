//! Stacks written by hand, undone by rules written by hand.

use super::rule::{Cfa, RegisterLocation, Undone};
use super::*;
use calltap_abi::frames::Piece;

const START: u64 = 0x7fff_0000_1000;

/// Creates the process 7 with rules by the address that is looked up.
fn unwinding(rules: &[(u64, Rule)]) -> Unwinding {
    let rules = rules.iter().cloned().collect();
    Unwinding { processes: HashMap::from([(7, Process { texts: Vec::new(), rules })]), words: Vec::new() }
}

fn saved(cfa: Cfa, rbp: RegisterLocation, signal: bool) -> Rule {
    Rule::Saved { cfa, rip: RegisterLocation::At(-8), rbp, signal }
}

fn check(rules: &[(u64, Rule)], rbp: u64, words: &[u64], expected: (&[u64], bool)) {
    let pieces: Vec<Piece> = (0..)
        .zip(words.chunks(64))
        .map(|(n, words)| Piece::new(n, START + 512 * u64::from(n), rbp, words.iter().copied()))
        .collect();
    let copy: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
    let callers = unwinding(rules).callers(7, &copy);
    assert_eq!((&callers.addresses[..], callers.whole), expected);
}

#[test]
fn a_path_is_whole_where_its_outermost_function_says_so() {
    let rsp = |bytes| saved(Cfa::Rsp(bytes), RegisterLocation::Same, false);
    let rules = [(0x40_0fff, rsp(24)), (0x40_1fff, Rule::Outermost)];
    check(&rules, 0, &[0x40_1000, 1, 2, 0x40_2000, 3], (&[0x40_1000, 0x40_2000], true));
    // The copy ends in front of the next return address, or the code has no rule.
    check(&rules, 0, &[0x40_1000, 1, 2], (&[0x40_1000], false));
    check(&rules[..1], 0, &[0x40_1000, 1, 2, 0x40_2000, 3], (&[0x40_1000, 0x40_2000], false));
    check(&rules, 0, &[], (&[], false));
}

#[test]
fn frame_pointers_are_followed_while_ascending() {
    let at = |word: u64| START + 8 * word;
    let rules =
        [(0x40_0fff, Rule::FRAME_POINTER), (0x40_1fff, Rule::FRAME_POINTER), (0x40_2fff, Rule::Outermost)];
    let words = [0x40_1000, 0, at(5), 0x40_2000, 0, 0x1_0000, 0x40_3000];
    check(&rules, at(2), &words, (&[0x40_1000, 0x40_2000, 0x40_3000], true));
    // A frame pointer that leads down, or is no address, is not followed.
    let words = [0x40_1000, 0, at(1), 0x40_2000, 0, 0x1_0000, 0x40_3000];
    check(&rules, at(2), &words, (&[0x40_1000, 0x40_2000], false));
    check(&rules, 0, &words, (&[0x40_1000], false));
}

#[test]
fn interrupted_frame_is_looked_up_by_exact_address() {
    let handler = saved(Cfa::Rsp(24), RegisterLocation::At(-16), true);
    let rules = [(0x40_0fff, handler), (0x40_2000, Rule::Outermost)];
    check(&rules, 0, &[0x40_1000, 0, 0, 0x40_2000], (&[0x40_1000, 0x40_2001], true));
}

#[test]
fn lost_piece_ends_the_unwound_path() {
    let rules =
        [(0x40_0fff, saved(Cfa::Rsp(1024), RegisterLocation::Same, false)), (0x40_1fff, Rule::Outermost)];
    let mut words = vec![0; 192];
    (words[0], words[128]) = (0x40_1000, 0x40_2000);
    check(&rules, 0, &words, (&[0x40_1000, 0x40_2000], true));
    let piece = |n: u8| {
        let words = words[64 * usize::from(n)..][..64].iter().copied();
        Piece::new(n, START + 512 * u64::from(n), 0, words).bytes().to_vec()
    };
    let callers = unwinding(&rules).callers(7, &[piece(0), piece(2)].concat());
    assert_eq!((callers.addresses, callers.whole), (vec![0x40_1000], false));
}

#[test]
fn unwinding_reports_how_a_path_ends() {
    let registers = Registers { rip: 1, rsp: START, rbp: None };
    let read = |_: u64| Some(0x40_1000);
    let down = saved(Cfa::Rsp(0), RegisterLocation::Same, false);
    assert!(matches!(down.apply(registers, &read), Undone::Unknown));
    assert!(matches!(Rule::Outermost.apply(registers, &read), Undone::Outermost));
    let up = saved(Cfa::Rsp(16), RegisterLocation::Lost, false);
    let Undone::Caller(caller, false) = up.apply(registers, &read) else { panic!("no caller") };
    assert_eq!(caller, Registers { rip: 0x40_1000, rsp: START + 16, rbp: None });
}

#[test]
fn frame_pointer_rule_needs_frame_pointer_prologue() {
    let frame = [0x55, 0x48, 0x89, 0xe5];
    for (in_front, counts) in [
        (&[][..], true),
        (&[0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0x90], true),
        (&[0x66, 0x0f, 0x1f, 0x44, 0, 0], true),
        // call; mov eax, edi
        (&[0xe8, 0, 0, 0, 0, 0x89, 0xf8], true),
        // test edi, edi; je: the other path may set up no frame.
        (&[0x85, 0xff, 0x74, 0x10], false),
        // lea r10, [rsp+8]; and rsp, -16: the frame lies elsewhere.
        (&[0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xf0], false),
    ] {
        assert_eq!(begins_with_frame(&[in_front, &frame].concat()), counts, "{in_front:x?}");
    }
    assert!(!begins_with_frame(&frame[..3]));
}
