// rustc -Copt-level=s
// the recorded personality routine returns before the thread continues
#![allow(non_camel_case_types, dead_code, unused, improper_ctypes_definitions, unused_must_use)]
use std::{cell::Cell, hint::black_box, panic::{AssertUnwindSafe, catch_unwind}};
type word = u64;
#[cold] #[inline(never)] fn rare(x: word) { black_box(x); }
struct p0_Guard<'a>(&'a Cell<word>);
impl Drop for p0_Guard<'_> { fn drop(&mut self) { self.0.set(self.0.get() + 19 ); } }
#[unsafe(no_mangle)] #[inline(never)] extern "C-unwind" fn p0_throw(mut x: word, seen: &Cell<word>) -> word { let _guard = p0_Guard(seen); x += 639; x ^= x >> 9; if x % 3 == 0 { panic!("{x}") } x }
#[unsafe(no_mangle)] #[inline(never)] extern "C-unwind" fn p0_pass(x: word, seen: &Cell<word>) -> word { let _guard = p0_Guard(seen); p0_throw(x, seen) + 1 }
#[unsafe(no_mangle)] #[inline(never)] extern "C-unwind" fn p0_run(x: word) -> word { let seen = Cell::new(0); (0..4).fold(x, |sum, n| sum * 5 + catch_unwind(AssertUnwindSafe(|| p0_pass(sum + n, &seen))).unwrap_or(3)) + seen.get() }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let rounds: word = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());
    let mut sum: word = 0;
    for round in 0..rounds {
        sum = sum * 31 + p0_run(round + 4);
        if rounds < 100 { println!("{sum}"); }
    }
    println!("{sum}");
    std::process::exit((sum % 7) as i32);
}
