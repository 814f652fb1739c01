//! Spans of `tracing` and calls of functions on one timeline, for Perfetto or chrome://tracing.
//! `cargo run --release -p calltap --features tracing --example timeline > timeline.json`

use calltap::timeline::Timeline;
use calltap::traced;
use std::time::Duration;
use tracing_subscriber::prelude::*;

#[traced]
fn parse(line: &str) -> u64 {
    line.split(' ').map(|word| word.parse::<u64>().unwrap_or_default()).sum()
}

#[traced]
fn store(sum: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(2));
    sum
}

fn handle(line: &str) -> u64 {
    let _request = tracing::info_span!("request").entered();
    let sum = tracing::info_span!("parsing").in_scope(|| parse(line));
    store(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timeline = Timeline::new(10_000);
    tracing_subscriber::registry().with(timeline.layer()).init();
    let functions = timeline.functions(["*::parse", "*::store"])?;
    let sum: u64 = ["1 2", "3", "40 50 60"].iter().map(|line| handle(line)).sum();
    functions.unregister()?;
    eprintln!("sum {sum}, {} lost", timeline.lost());
    timeline.write(&mut std::io::stdout())?;
    Ok(())
}
