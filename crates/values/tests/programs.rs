//! Tests from the user's words to the values shown of a call, without a process and without
//! debugging information.

use calltap_abi::values::{Call, Program, run};
use calltap_values::Rules;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

const MEMORY: u64 = 0x1000;

/// A call whose arg1 is the address of the memory, arg2 is -2 in 32 bits with other bits above, and
/// argN is N otherwise; with the number of copied bytes of its stack.
struct Made(Vec<u8>, Cell<u32>);

impl Call for Made {
    fn register(&self, n: usize) -> u64 {
        match n {
            0 => MEMORY,
            1 => 0x55_FFFF_FFFE,
            6 => 0x2A,
            n => n as u64 + 1,
        }
    }
    fn xmm(&self, n: usize) -> u64 {
        (n as f64 + 0.5).to_bits()
    }
    fn slot(&self) -> u64 {
        MEMORY + 64
    }
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let from = address.wrapping_sub(MEMORY) as usize;
        let found = self.0.get(from..from.saturating_add(bytes.len()));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }

    fn remember(&self, _: u64) {}

    fn recall(&self) -> Option<u64> {
        None
    }

    fn copy_stack(&self, bytes: u32) {
        self.1.set(bytes);
    }

    fn forbid_counter(&self) {}

    fn is_made_in(&self, _: Range<u64>) -> bool {
        false
    }
}

/// Makes a call. Its memory has a pointer to the text 16 bytes behind it, and words of the stack
/// from 64 on.
fn made() -> Made {
    let mut memory = vec![0; 4096];
    memory[..8].copy_from_slice(&(MEMORY + 16).to_le_bytes());
    memory[16..22].copy_from_slice(b"hello\0");
    for n in 0..8_u8 {
        memory[64 + 8 * usize::from(n)] = 100 + n;
    }
    Made(memory, Cell::new(0))
}

fn compiled(words: [&str; 3]) -> Result<std::sync::Arc<calltap_values::Program>, String> {
    let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    let [arguments, results, conditions] = words.map(list);
    let rules = Rules::new(&arguments, &results, &conditions).map_err(|why| why.to_string())?;
    let program = rules.of(&|_| true, None, &|| None).map_err(|why| why.to_string())?;
    program.ok_or_else(|| "nothing to read".to_owned())
}

#[track_caller]
fn check(words: [&str; 3], expected: Result<&str, &str>) {
    let shown = compiled(words).map(|program| {
        let words: Program =
            std::array::from_fn(|n| AtomicU64::new(program.words.get(n).copied().unwrap_or(0)));
        let sides = [false, true].map(|exit| {
            let Some(stored) = run(&words, exit, &made()) else { return "not recorded".to_owned() };
            let values = program.captured.read(exit, stored.bytes());
            values.map(|(name, datum)| format!("{name}={datum}")).collect::<Vec<_>>().join(" ")
        });
        sides.join("; ")
    });
    match (&shown, expected) {
        (Ok(shown), Ok(expected)) => assert_eq!(shown, expected, "{words:?}"),
        (Err(why), Err(expected)) => assert!(why.contains(expected), "{words:?}: {why}"),
        _ => panic!("{words:?}: {shown:?}"),
    }
}

#[test]
fn the_stack_is_copied_of_calls_that_are_recorded() {
    let copied = |condition: &str| {
        let program = compiled(["f@$callers/512,arg3,$callers/64", "", condition]).expect("a program");
        let names: Vec<&str> = program.captured.arguments.iter().map(|value| value.name.as_str()).collect();
        assert_eq!(names, ["arg3", "callers"]);
        let words: Program =
            std::array::from_fn(|n| AtomicU64::new(program.words.get(n).copied().unwrap_or(0)));
        let call = made();
        run(&words, false, &call);
        call.1.get()
    };
    assert_eq!(copied(""), 512);
    assert_eq!(copied("arg3 == 3"), 512);
    assert_eq!(copied("arg3 == 4"), 0);
    check(["", "", "$callers == 1"], Err("callers are not a number"));
}

#[test]
fn registers_and_the_stack_are_read_in_the_width_asked_for() {
    check(["f@arg2/d32,arg2/u8,arg2,arg6", "", ""], Ok("arg2=-2 arg2=254 arg2=369367187454 arg6=6; "));
    check(["f@arg7,arg8/x16,fparg3,fparg1/f64", "", ""], Ok("arg7=101 arg8=0x66 fparg3=2.5 fparg1=0.5; "));
    check(["f@$stack,+8($stack)/u8", "", ""], Ok("$stack=0x1040 +8($stack)=101; "));
    check(["", "f", ""], Ok("; retval=42"));
    check(["f@arg3", "f@retval/c,fpretval", ""], Ok("arg3=3; retval='*' fpretval=0.5"));
}

#[test]
fn memory_is_followed() {
    check(
        ["f@+0(arg1)/p,+0(+0(arg1))/s,+16(arg1)/s3", "", ""],
        Ok("+0(arg1)=0x1010 +0(+0(arg1))=\"hello\" +16(arg1)=\"hel\"...; "),
    );
    check(
        ["f@+0(arg3)/u8,+17(arg1)/c,arg4/s", "", ""],
        Ok("+0(arg3)=<unreadable> +17(arg1)='e' arg4=<unreadable>; "),
    );
}

#[test]
fn conditions_decide_before_anything_is_stored() {
    check(["f@arg3", "", "arg2/d32 == -2 && arg3 < 4"], Ok("arg3=3; "));
    check(["f@arg3", "", "arg2 == -2"], Ok("not recorded; "));
    check(["", "f", "+0(arg3) == 0"], Ok("not recorded; retval=42"));
    check(["f@arg3", "", "arg2/x8 & 0xF0 == 0xF0"], Ok("arg3=3; "));
    check(["f@arg3", "", "arg2/u32 > 0xFFFFFFF0"], Ok("arg3=3; "));
}

#[test]
fn unknown_operands_are_reported() {
    check(["f", "", ""], Err("no debugging information describes its arguments"));
    check(["f@size", "", ""], Err("no debugging information tells which argument is 'size'"));
    check(["f@arg1->size", "", ""], Err("write +8(arg1)"));
    let many: Vec<String> = (0..17).map(|offset| format!("+{offset}(arg1)")).collect();
    check([&format!("f@{}", many.join(",")), "", ""], Err("more than 16"));
    let deep: Vec<String> = (0..5).map(|n| format!("+0(+0(+0(+0(+0(+{n}(arg1))))))")).collect();
    check([&format!("f@{}", deep.join(",")), "", ""], Err("too many steps"));
}
