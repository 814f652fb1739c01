// Functions with references, of which LLVM passes the value behind one where it optimises.
use std::hint::black_box;

struct Point {
    x: u32,
    y: u64,
}

#[inline(never)]
fn promoted(point: &Point, k: u32) -> u64 {
    black_box(point.y ^ u64::from(k))
}

#[inline(never)]
fn kept(point: &Point, k: u32) -> u64 {
    black_box(point);
    black_box(u64::from(point.x + k))
}

fn main() {
    let mut sum = 0;
    for i in 0..2 {
        let point = Point { x: black_box(7 + i), y: black_box(1000) };
        println!("call kept(point={:p}, k=5)", &point);
        sum += kept(&point, black_box(5));
        let point = Point { x: black_box(7), y: black_box(1000) };
        sum += promoted(&point, black_box(6));
    }
    println!("{sum}");
}
