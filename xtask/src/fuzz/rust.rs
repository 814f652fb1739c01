//! Pieces of generated programs in Rust.

/// The pieces. Their functions have linker names, so that calls can be compared.
pub const PIECES: [&str; 8] = [
    "FN word @_leaf(mut x: word, n: word) -> word { match n { 0 => { STEPS x } 1 => { STEPS x ^ NUMBER } 2 | 5 => { STEPS x } 3 => return x / 3, 4 => { STEPS x + 1 } 6 => { if x % NUMBER == 0 { rare(x) } x } _ => 7 } }\n\
     FN word @_run(x: word) -> word { (0..9).fold(x, |sum, n| sum * 7 + @_leaf(sum, n)) }\n",
    "FN word @_even(mut x: word, n: word) -> word { STEPS if n == 0 { x } else { @_odd(x, n - 1) } }\n\
     FN word @_odd(mut x: word, n: word) -> word { STEPS if n == 0 { !x } else { @_even(x, n - 1) } }\n\
     FN word @_run(x: word) -> word { @_even(x, x % NUMBER) }\n",
    "FN word @_end(mut x: word) -> word { STEPS x }\nFN word @_other(mut x: word) -> word { STEPS x }\n\
     FN word @_run(x: word) -> word { let table: [extern \"C-unwind\" fn(word) -> word; 2] = black_box([@_end, @_other]); table[(x % 2) as usize](x) ^ table[(x / 2 % 2) as usize](x + 1) }\n",
    "struct @_Guard<'a>(&'a Cell<word>);\nimpl Drop for @_Guard<'_> { fn drop(&mut self) { self.0.set(self.0.get() + NUMBER ); } }\n\
     FN word @_throw(mut x: word, seen: &Cell<word>) -> word { let _guard = @_Guard(seen); STEPS if x % 3 == 0 { panic!(\"{x}\") } x }\n\
     FN word @_pass(x: word, seen: &Cell<word>) -> word { let _guard = @_Guard(seen); @_throw(x, seen) + 1 }\n\
     FN word @_run(x: word) -> word { let seen = Cell::new(0); (0..4).fold(x, |sum, n| sum * 5 + catch_unwind(AssertUnwindSafe(|| @_pass(sum + n, &seen))).unwrap_or(3)) + seen.get() }\n",
    "trait @_Shape { fn area(&self, x: word) -> word; }\nstruct @_A(word); struct @_B { side: word, other: u8 }\n\
     impl @_Shape for @_A { fn area(&self, mut x: word) -> word { STEPS x + self.0 } }\nimpl @_Shape for @_B { fn area(&self, mut x: word) -> word { STEPS x * self.side + self.other as word } }\n\
     FN word @_run(x: word) -> word { let all: [Box<dyn @_Shape>; 3] = [Box::new(@_A(x)), Box::new(@_B { side: NUMBER, other: 3 }), Box::new(@_A(1))]; black_box(&all).iter().map(|shape| shape.area(x)).fold(0, |a, b| a * 3 + b) }\n",
    "FN word @_work(mut x: word) -> word { STEPS x }\n\
     FN word @_run(x: word) -> word { let all: Vec<_> = (0..2).map(|n| std::thread::spawn(move || (0..9).fold(x + n, |x, _| @_work(x)))).collect(); all.into_iter().fold(0, |sum, one| sum * 3 + one.join().unwrap()) }\n",
    "FN word @_deep(mut x: word, left: word, wide: [word; 9]) -> word { STEPS if left == 0 { wide[(x % 9) as usize] } else { @_deep(x, left - 1, wide.map(|one| one * 3 + x)) + 1 } }\n\
     FN word @_run(x: word) -> word { @_deep(x, NUMBER % 12, [x; 9]) }\n",
    "FN word @_run(x: word) -> word { let mut words: Vec<String> = (0..20).map(|n| format!(\"{:03}\", (x + n) * NUMBER % 97)).collect(); words.sort_by(|a, b| b.cmp(a)); words.concat().bytes().fold(x, |mut x, byte| { STEPS x ^ byte as word }) }\n",
];

const HEAD: &str = "\
#![allow(non_camel_case_types, dead_code, unused, improper_ctypes_definitions, unused_must_use)]
use std::{cell::Cell, hint::black_box, panic::{AssertUnwindSafe, catch_unwind}};
type word = u64;
#[cold] #[inline(never)] fn rare(x: word) { black_box(x); }
";

/// Returns the program with these functions and calls.
pub fn program(code: &str, calls: &str) -> String {
    let code = code.replace("FN word ", "#[unsafe(no_mangle)] #[inline(never)] extern \"C-unwind\" fn ");
    format!(
        "{HEAD}{code}fn main() {{\n    std::panic::set_hook(Box::new(|_| {{}}));\n    let rounds: word = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());\n    \
         let mut sum: word = 0;\n    for round in 0..rounds {{\n{calls}        if rounds < 100 {{ println!(\"{{sum}}\"); }}\n    }}\n    println!(\"{{sum}}\");\n    \
         std::process::exit((sum % 7) as i32);\n}}\n"
    )
}
