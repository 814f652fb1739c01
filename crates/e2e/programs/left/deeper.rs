//! Panics leave `work`, and are caught by a function that is meant not to be recorded, as is
//! `below`, which calls `leaf` further down the stack. Prints the number of calls by function and
//! depth: "call work,1 40".

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};

const ROUNDS: u64 = 100;
const DEPTHS: u64 = 10;

#[inline(never)]
#[unsafe(no_mangle)]
extern "C-unwind" fn leaf(n: u64) -> u64 {
    black_box(n) + 1
}

#[inline(never)]
fn below(n: u64) -> u64 {
    let mut room = [0; 500];
    room[n as usize % 500] = n;
    black_box(&mut room);
    leaf(n) + room[3]
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C-unwind" fn work(n: u64, more: u64) -> u64 {
    match more {
        0 if n % 3 > 0 => panic!("{n}"),
        0 => n,
        _ => black_box(work(n, more - 1)) + 1,
    }
}

#[inline(never)]
fn catches(n: u64) -> u64 {
    catch_unwind(|| work(n, n % DEPTHS)).unwrap_or(3) + below(n)
}

fn main() {
    set_hook(Box::new(|_| {}));
    let sum: u64 = (0..ROUNDS).map(catches).sum();
    println!("{sum}");
    println!("call leaf,0 {ROUNDS}");
    for depth in 0..DEPTHS {
        println!("call work,{depth} {}", (0..ROUNDS).filter(|n| n % DEPTHS >= depth).count());
    }
}
