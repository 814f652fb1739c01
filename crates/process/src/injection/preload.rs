//! The first stack of a program: arguments, environment and auxiliary vector, with the agent added
//! to LD_PRELOAD.
//!
//! The program has not run an instruction yet. The new words go below those of the kernel. The
//! agent removes itself from the variable again, so that the program and its children see their own
//! environment.

use calltap_patch::{Avma, Text};
use std::ffi::OsString;
use std::path::Path;

/// Keys of the auxiliary vector.
const AT_NULL: u64 = 0;
const AT_BASE: u64 = 7;
const AT_SECURE: u64 = 23;

const NAME: &[u8] = b"LD_PRELOAD=";
/// Runtimes of AddressSanitizer, gcc's and clang's: they end a program that loads another library
/// before them.
const FIRST: [&str; 2] = ["libasan.so", "libclang_rt.asan"];

/// Returns the value of LD_PRELOAD for a program, whose file's bytes are given. The agent removes
/// everything up to its own name.
pub fn list(program: &[u8], agent: &Path) -> OsString {
    let needed = calltap_sites::needed(program);
    let first = needed.into_iter().find(|name| FIRST.iter().any(|first| name.starts_with(first)));
    let mut list = OsString::from(first.map_or(String::new(), |first| first + ":"));
    list.push(agent);
    list
}

/// The words and strings on the first stack of a program, from its stack pointer up.
#[derive(Debug)]
pub struct Stack {
    /// The stack pointer.
    at: u64,
    bytes: Vec<u8>,
    /// Index of the null word behind the last variable.
    end_of_environment: usize,
    /// Index of the word of LD_PRELOAD. Of several, the last.
    preload: Option<usize>,
    /// Number of words: the count, arguments, variables, and the auxiliary vector.
    words: usize,
}

impl Stack {
    /// Reads the stack from the stack pointer to `end`, the end of its mapping.
    pub fn read<T: Text>(text: &mut T, at: u64, end: u64) -> Option<Stack> {
        /// Maximum size. The kernel accepts arguments up to a quarter of the stack limit.
        const MAX_STACK_SIZE: u64 = 64 << 20;
        let mut bytes =
            vec![0; usize::try_from(end.checked_sub(at).filter(|length| *length <= MAX_STACK_SIZE)?).ok()?];
        text.read(Avma(at), &mut bytes).ok()?;
        Stack::parse(at, bytes)
    }

    fn parse(at: u64, bytes: Vec<u8>) -> Option<Stack> {
        let mut stack = Stack { at, bytes, end_of_environment: 0, preload: None, words: 0 };
        // Skips the count, the arguments, and a null.
        let mut n = usize::try_from(stack.word(0)?).ok()?.checked_add(2)?;
        while stack.word(n)? != 0 {
            if stack.string(stack.word(n)?).is_some_and(|text| text.starts_with(NAME)) {
                stack.preload = Some(n);
            }
            n += 1;
        }
        stack.end_of_environment = n;
        n += 1;
        while stack.word(n)? != AT_NULL {
            n += 2;
        }
        stack.words = n + 2;
        stack.word(n + 1)?;
        Some(stack)
    }

    fn word(&self, n: usize) -> Option<u64> {
        let at = n.checked_mul(8)?;
        Some(u64::from_le_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?))
    }

    /// Returns the string at an address.
    fn string(&self, address: u64) -> Option<&[u8]> {
        let rest = self.bytes.get(usize::try_from(address.checked_sub(self.at)?).ok()?..)?;
        rest.split(|byte| *byte == 0).next()
    }

    fn auxiliary(&self, wanted: u64) -> Option<u64> {
        let keys = (self.end_of_environment + 1..self.words).step_by(2);
        keys.filter(|n| self.word(*n) == Some(wanted)).find_map(|n| self.word(n + 1))
    }

    /// Whether the program has a dynamic linker.
    pub fn is_dynamic(&self) -> bool {
        self.auxiliary(AT_BASE).is_some_and(|base| base != 0)
    }

    /// Whether the program has privileges that its caller lacked.
    pub fn is_secure(&self) -> bool {
        self.auxiliary(AT_SECURE) != Some(0)
    }

    /// Returns the stack with `library` first in LD_PRELOAD: the new stack pointer, and the bytes
    /// to write there.
    pub fn with(&self, library: &[u8]) -> Option<(u64, Vec<u8>)> {
        let former = self.preload.map(|n| self.string(self.word(n)?));
        let mut string = [NAME, library].concat();
        if let Some(former) = former {
            string.push(b':');
            string.extend_from_slice(former?.get(NAME.len()..)?);
        }
        string.push(0);
        // The string goes right below the old stack, the words below it; the stack pointer must be
        // a multiple of 16.
        let address = self.at.checked_sub(string.len() as u64)?;
        let mut words: Vec<u64> = (0..self.words).map_while(|n| self.word(n)).collect();
        match self.preload {
            Some(n) => words[n] = address,
            None => words.insert(self.end_of_environment, address),
        }
        let pointer = address.checked_sub(words.len() as u64 * 8)? & !15;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(usize::try_from(address - pointer).ok()?, 0);
        bytes.extend_from_slice(&string);
        Some((pointer, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x7ffc_0000_1000;

    /// Builds a stack with these arguments and variables.
    fn stack(arguments: &[&str], variables: &[&str], auxiliary: &[(u64, u64)]) -> Vec<u8> {
        let count = 1 + arguments.len() + 1 + variables.len() + 1 + 2 * auxiliary.len();
        let mut strings = Vec::new();
        let mut put = |text: &str| {
            let at = AT + count as u64 * 8 + strings.len() as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let mut words = vec![arguments.len() as u64];
        words.extend(arguments.iter().map(|text| put(text)));
        words.push(0);
        words.extend(variables.iter().map(|text| put(text)));
        words.push(0);
        words.extend(auxiliary.iter().flat_map(|(key, value)| [*key, *value]));
        words.iter().flat_map(|word| word.to_le_bytes()).chain(strings).collect()
    }

    fn check(variables: &[&str], expected: &[&str]) {
        let auxiliary = [(AT_BASE, 0x7f00_0000_0000), (AT_SECURE, 0), (AT_NULL, 0)];
        let old = stack(&["prog", "x"], variables, &auxiliary);
        let read = Stack::parse(AT, old.clone()).expect("a whole stack");
        assert!(read.is_dynamic() && !read.is_secure());
        let (at, mut bytes) = read.with(b"/s/agent.so").expect("room");
        assert_eq!((at % 16, at + bytes.len() as u64), (0, AT));
        bytes.extend(old);
        let new = Stack::parse(at, bytes).expect("a whole stack");
        let texts: Vec<&[u8]> =
            (4..new.end_of_environment).map(|n| new.string(new.word(n).unwrap()).unwrap()).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
        assert_eq!(texts, expected);
        assert_eq!(new.string(new.word(2).unwrap()), Some(&b"x"[..]));
        assert!(new.is_dynamic() && !new.is_secure(), "the auxiliary vector is there");
    }

    #[test]
    fn agent_is_added_to_environment_or_existing_preloads() {
        check(&[], &["LD_PRELOAD=/s/agent.so"]);
        check(&["A=1"], &["A=1", "LD_PRELOAD=/s/agent.so"]);
        check(&["LD_PRELOAD=b.so", "A=1"], &["LD_PRELOAD=/s/agent.so:b.so", "A=1"]);
        check(&["LD_PRELOAD=", "A=1"], &["LD_PRELOAD=/s/agent.so:", "A=1"]);
    }

    #[test]
    fn a_stack_that_is_cut_off_is_none() {
        let whole = stack(&["prog"], &["A=1"], &[(AT_BASE, 1), (AT_NULL, 0)]);
        for length in 0..9 * 8 {
            assert!(Stack::parse(AT, whole[..length].to_vec()).is_none(), "{length}");
        }
    }
}
