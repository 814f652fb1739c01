//! A program that traces itself: two ops with different filters, which change while it works.
//! `cargo run --release -p calltap --example trace_self`

use calltap::{Call, Function, Ops, register, traced};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

#[traced]
fn parse(line: &str) -> Vec<u64> {
    line.split(' ').map(number).collect()
}

#[traced]
fn number(word: &str) -> u64 {
    word.parse().unwrap_or_default()
}

#[traced]
fn total(numbers: &[u64]) -> u64 {
    numbers.iter().sum()
}

fn work() -> u64 {
    ["1 2 3", "40 50", "600"].iter().map(|line| total(&parse(line))).sum()
}

/// Calls by function. All counters exist before the first call, so that the callback only adds.
type Counters = BTreeMap<&'static str, AtomicU64>;

fn counters() -> Counters {
    let functions = calltap::functions().unwrap_or_default();
    functions.iter().map(|function| (function.name(), AtomicU64::new(0))).collect()
}

fn main() -> Result<(), calltap::Error> {
    calltap::init()?;
    static CALLS: LazyLock<Counters> = LazyLock::new(counters);
    LazyLock::force(&CALLS);
    let profile = register(Ops::new("profile", |call: &Call| {
        if let Some(counter) = call.function().map(Function::name).and_then(|name| CALLS.get(name)) {
            counter.fetch_add(1, Relaxed);
        }
    }))?;
    let several = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&several);
    let watch = register(Ops::new("watch", move |call: &Call| {
        own.fetch_add(u64::from(call.mask().count_ones() > 1), Relaxed);
    }))?;
    watch.set_filter(["*::parse"])?;
    for tracer in calltap::tracers()? {
        println!("{} (id {}): {} functions", tracer.name, tracer.id, tracer.functions);
    }
    println!("total {}", work());
    watch.unregister()?;
    println!("total {}", work());
    profile.unregister()?;
    println!("total {}", work());
    for (name, calls) in CALLS.iter() {
        println!("{:>4}  {name}", calls.load(Relaxed));
    }
    println!("{:>4}  calls that both ops saw", several.load(Relaxed));
    Ok(())
}
