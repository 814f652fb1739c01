//! The goroutine that the Go runtime makes ready to run, by which the waker of a wait is known.

use crate::program::{Program, assemble};
use crate::reason::Reason;
use crate::steps::{WORD, go_register, store};
use crate::words::Form;
use calltap_abi::values::{step, word};
use calltap_trace::{Captured, Value};
use std::sync::Arc;

/// The runtime's function that makes a goroutine ready. Its first argument is the goroutine's
/// `runtime.g`.
pub const READY: &str = "runtime.ready";
/// Name of the value that is read of its calls: the number of the goroutine.
const READIED: &str = "goroutine";

/// Place of a function's first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstArgument {
    /// In a register, as of Go 1.17.
    Register,
    /// On the stack, above the return address.
    Stack,
}

/// Returns the program that reads the goroutine in a call of [`READY`]. `number`: offset of a
/// goroutine's number in `runtime.g`, in words.
pub fn readied(number: u8, first: FirstArgument) -> Result<Arc<Program>, Reason> {
    let mut steps = match first {
        FirstArgument::Register => go_register(0),
        FirstArgument::Stack => vec![word(step::STACK, 1, 0)],
    };
    steps.push(word(step::LOAD, WORD, i32::from(number) * i32::from(WORD)));
    let mut entry = Vec::new();
    let form = store(Form::Unsigned(WORD), steps, &mut entry);
    let arguments = vec![Value { name: READIED.to_owned(), form }];
    let captured = Arc::new(Captured { arguments, ..Captured::default() });
    Ok(Arc::new(Program {
        words: assemble(entry, Vec::new())?,
        addresses: Vec::new(),
        captured,
        left_out: Vec::new(),
    }))
}

/// Whether a program is one of [`readied`], whose value no user has asked for.
pub fn is_readied(program: &Program) -> bool {
    matches!(&program.captured.arguments[..], [value] if value.name == READIED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_abi::values::{Call, run};
    use std::ops::Range;

    /// A call whose first argument is the goroutine 77 in a register, and 78 on the stack.
    struct Ready;

    impl Call for Ready {
        fn register(&self, n: usize) -> u64 {
            // The first argument of a Go function is in rax.
            if n == 6 { 0x1000 } else { 0 }
        }
        fn xmm(&self, _: usize) -> u64 {
            0
        }
        fn slot(&self) -> u64 {
            0x8000
        }
        fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
            const NUMBER: u64 = 19 * 8;
            let words = [(0x8008, 0x2000), (0x1000 + NUMBER, 77), (0x2000 + NUMBER, 78)];
            let found = words.iter().find(|(at, _)| *at == address);
            bytes.copy_from_slice(&found.map_or(0u64, |(_, word)| *word).to_le_bytes());
            found.is_some()
        }
        fn remember(&self, _: u64) {}
        fn recall(&self) -> Option<u64> {
            None
        }
        fn copy_stack(&self, _: u32) {}
        fn forbid_counter(&self) {}
        fn is_made_in(&self, _: Range<u64>) -> bool {
            false
        }
    }

    #[test]
    fn the_number_is_read_from_the_argument() {
        for (first, number) in [(FirstArgument::Register, 77), (FirstArgument::Stack, 78)] {
            let program = readied(19, first).unwrap();
            let word = |n: usize| program.words.get(n).copied().unwrap_or(0).into();
            let stored = run(&std::array::from_fn(word), false, &Ready).unwrap();
            let values: Vec<String> = program
                .captured
                .read(false, stored.bytes())
                .map(|(name, datum)| format!("{name}={datum}"))
                .collect();
            assert_eq!(values, [format!("goroutine={number}")], "{first:?}");
        }
    }
}
