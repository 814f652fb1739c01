//! Tests of the programs that read values.

use super::*;
use core::cell::Cell;

/// A call with registers 0x1000, 0x1001, ..., and memory from 0x1000 on.
struct Made(&'static [u8], Cell<Option<u64>>);

impl Made {
    fn new(memory: &'static [u8]) -> Made {
        Made(memory, Cell::new(None))
    }
}

impl Call for Made {
    fn register(&self, n: usize) -> u64 {
        0x1000 + n as u64
    }
    fn xmm(&self, n: usize) -> u64 {
        (n as f64 + 0.5).to_bits()
    }
    fn slot(&self) -> u64 {
        0x1000
    }
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let from = (address as usize).wrapping_sub(0x1000);
        let found = self.0.get(from..from.saturating_add(bytes.len()));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }
    fn remember(&self, word: u64) {
        self.1.set(Some(word));
    }
    fn recall(&self) -> Option<u64> {
        self.1.get()
    }
    fn copy_stack(&self, bytes: u32) {
        self.1.set(Some(bytes.into()));
    }
    fn forbid_counter(&self) {
        self.1.set(Some(0));
    }
    fn is_made_in(&self, range: Range<u64>) -> bool {
        range.contains(&0x1000)
    }
}

fn check(steps: &[u64], memory: &'static [u8], expected: Option<&[u8]>) {
    let program: Program = core::array::from_fn(|n| {
        let head = (steps.len() as u64 + 1) << 16;
        AtomicU64::new(if n == 0 { head } else { steps.get(n - 1).copied().unwrap_or(0) })
    });
    let stored = run(&program, false, &Made::new(memory));
    assert_eq!(stored.as_ref().map(Stored::bytes), expected);
}

#[test]
fn values_are_stored_in_their_width_behind_a_mask_of_unreadable_ones() {
    use step::*;
    let steps = [
        word(REGISTER, 1, 0),
        word(STORE, 2, 0),
        word(LOAD, 4, 100),
        word(STORE, 4, 0),
        word(XMM, 2, 0),
        word(STORE, 8, 0),
    ];
    let expected = [&[2, 0, 0x01, 0x10][..], &2.5_f64.to_le_bytes()].concat();
    check(&steps, b"", Some(&expected));
    check(
        &[word(STACK, 1, 0), word(STORE, 1 | SIGNED, 0)],
        b"........\xfe\0\0\0\0\0\0\0",
        Some(&[0, 0, 0xfe]),
    );
}

#[test]
fn text_ends_at_its_end_or_says_that_there_is_more() {
    use step::*;
    let steps = [word(REGISTER, 0, 0), word(TEXT, 4, 0)];
    static PAGE_AND_MORE: [u8; 4097] = [b'x'; 4097];
    check(&steps, b"ab\0...", Some(b"\0\0\x02ab"));
    check(&steps, b"abcdef\0", Some(b"\0\0\x84abcd"));
    check(&steps, b"ab", Some(b"\x01\0"));
    let over = [word(REGISTER, 0, 0), word(ADD, 0, 4094), word(TEXT, 3, 0)];
    check(&over, &PAGE_AND_MORE, Some(b"\0\0\x83xxx"));
    let slice =
        [word(REGISTER, 0, 0), word(AND, 0, 0), 3, word(KEEP, 0, 0), word(REGISTER, 0, 0), word(SLICE, 9, 0)];
    check(&slice, b"abc", Some(b"\0\0\0"));
}

#[test]
fn a_condition_that_does_not_hold_drops_the_call() {
    use step::*;
    let with = |how: u8, constant: u64| [word(REGISTER, 2, 0), word(IF, how, 0), constant, word(STORE, 1, 0)];
    check(&with(compare::GREATER, 0x1001), b"", Some(&[0, 0, 2]));
    check(&with(compare::GREATER, 0x1002), b"", None);
    check(&with(compare::GREATER, -1_i64 as u64), b"", None);
    check(&with(compare::GREATER | compare::SIGNED, -1_i64 as u64), b"", Some(&[0, 0, 2]));
    check(&[word(REGISTER, 0, 0), word(LOAD, 8, 0), word(IF, compare::UNEQUAL, 0), 0], b"", None);
}

#[test]
fn call_of_unwanted_code_is_not_recorded() {
    use step::*;
    let store = [word(REGISTER, 1, 0), word(STORE, 1, 0)];
    let within = |from: u64, end: u64| [&[word(CALLER, 0, 0), from, end], &store[..]].concat();
    check(&within(0x1000, 0x1001), b"", Some(&[0, 0, 1]));
    check(&within(0, 0x1000), b"", None);
    let interface = [within(0, u64::from(INTERFACE)), vec![word(INTERFACE, 0, 0), 0]].concat();
    // Constants are no steps.
    assert_eq!(addresses(&[&[0], &interface[..]].concat()).collect::<Vec<_>>(), [7]);
}

#[test]
fn remembered_arguments_are_available_at_the_return() {
    use step::*;
    let words = [
        3 << 8 | 6 << 16,
        word(REGISTER, 1, 0),
        word(REMEMBER, 0, 0),
        word(RECALL, 0, 0),
        word(LOAD, 1, 2),
        word(STORE, 1, 0),
    ];
    let program: Program = core::array::from_fn(|n| AtomicU64::new(words.get(n).copied().unwrap_or(0)));
    let call = Made::new(b"abcdef");
    let bytes = |exit| run(&program, exit, &call).map(|stored| stored.bytes().to_vec());
    // The entry has kept nothing yet.
    assert_eq!(bytes(true), Some(vec![1, 0]));
    assert_eq!(bytes(false), Some(vec![]));
    assert_eq!(bytes(true), Some(vec![0, 0, b'd']));
}

#[test]
fn no_more_of_the_stack_is_copied_than_a_row_of_pieces_holds() {
    for (asked, copied) in [(4096, 4096), (i32::MAX, frames::MAX_STACK_COPY), (-512, 512)] {
        let words = [2 << 16, word(step::FRAMES, 0, asked)];
        let program: Program = core::array::from_fn(|n| AtomicU64::new(words.get(n).copied().unwrap_or(0)));
        let call = Made::new(b"");
        assert!(run(&program, false, &call).is_some_and(|stored| stored.bytes().is_empty()));
        assert_eq!(call.recall(), Some(copied.into()));
    }
}

#[test]
fn arbitrary_value_programs_and_memory_are_safe() {
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let program: Program = core::array::from_fn(|_| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            AtomicU64::new(if random >> 63 == 0 {
                random >> 20
            } else {
                random >> 20 & 0xFFFF_0000_0000_FF0F
            })
        });
        let _ = [false, true].map(|exit| run(&program, exit, &Made::new(b"some memory\0")));
    }
}
