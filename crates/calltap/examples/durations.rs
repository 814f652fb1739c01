//! A program that measures its own functions: their calls, and the longest of each. `cargo run
//! --release -p calltap --example durations`

use calltap::{Call, Ops, Return, register, traced};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

#[traced]
fn parse(line: &str) -> u64 {
    line.split(' ').map(|word| word.parse::<u64>().unwrap_or_default()).sum()
}

struct Server {
    slow: Duration,
}

impl Server {
    #[traced]
    fn handle(&self, line: &str) -> u64 {
        if line.len() > 5 {
            std::thread::sleep(self.slow);
        }
        parse(line)
    }
}

/// Number of calls of a function, and the duration of the longest.
type Rows = BTreeMap<&'static str, (u64, Duration)>;

fn main() -> Result<(), calltap::Error> {
    static ROWS: Mutex<Rows> = Mutex::new(BTreeMap::new());
    let measure = |call: &Return| {
        let Some(function) = call.function() else { return };
        // These ops trace nothing that the callback calls, so it may allocate and lock.
        let mut rows = ROWS.lock().unwrap_or_else(|poison| poison.into_inner());
        let row = rows.entry(function.name()).or_default();
        *row = (row.0 + 1, row.1.max(call.duration()));
    };
    // A misspelt filter is an error: it would measure nothing.
    let measuring = register(
        Ops::new("durations", |_: &Call| ()).filter(["*::parse", "*::Server::*"]).on_return(measure),
    )?;
    let server = Server { slow: Duration::from_millis(10) };
    let sum: u64 = ["1 2", "3", "40 50 60"].iter().map(|line| server.handle(line)).sum();
    println!("sum {sum}");
    measuring.unregister()?;
    for (name, (calls, longest)) in ROWS.lock().unwrap_or_else(|poison| poison.into_inner()).iter() {
        let is_slow = *longest >= server.slow;
        println!(
            "{name}: {calls} calls, longest {}",
            if is_slow { "at least 10 ms" } else { "less than 10 ms" }
        );
    }
    Ok(())
}
