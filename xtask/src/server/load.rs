//! Load on the server, and a client that compares answers.

use super::nginx::{LARGE, PORT, SMALL};
use crate::shell;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Results of wrk; times in milliseconds.
#[derive(Clone, Copy)]
pub struct Load {
    pub requests: u64,
    pub rate: f64,
    pub p50: f64,
    pub p99: f64,
    pub worst: f64,
    /// Requests without an answer, with a late answer (2 s), or with a status other than 200.
    pub failed: u64,
}

/// wrk's script: one request in ten is for the larger page.
const SCRIPT: &str = r#"
local n = 0
local small = "GET SMALL HTTP/1.1\r\nHost: x\r\n\r\n"
local large = "GET LARGE HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
request = function() n = n + 1; if n % 10 == 0 then return large end; return small end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests":%d,"us":%d,"p50":%d,"p99":%d,"worst":%d,"failed":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Loads the server for some seconds.
pub fn load(place: &Path, seconds: u64) -> Result<Load> {
    let script = SCRIPT.replace("SMALL", SMALL).replace("LARGE", LARGE);
    let script = super::file(place, "load.lua", &script)?;
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c16", &format!("-d{seconds}s"), "-s"]).arg(&script);
    wrk.arg(format!("http://127.0.0.1:{PORT}{SMALL}"));
    let text = String::from_utf8(shell::output(&mut wrk)?.stdout)?;
    let line = text.lines().find(|line| line.starts_with('{')).with_context(|| text.clone())?;
    let json: Value = serde_json::from_str(line)?;
    let number = |key: &str| json[key].as_f64().unwrap_or(f64::NAN);
    let requests = number("requests");
    if requests < 1.0 {
        bail!("no request was answered:\n{text}");
    }
    Ok(Load {
        requests: requests as u64,
        rate: requests / number("us") * 1e6,
        p50: number("p50") / 1e3,
        p99: number("p99") / 1e3,
        worst: number("worst") / 1e3,
        failed: number("failed") as u64,
    })
}

/// A thread that requests both pages continuously, and compares the answers with the first ones.
pub struct Checker {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Vec<String>)>,
}

impl Checker {
    /// Starts the thread.
    pub fn start() -> Checker {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (mut count, mut wrong) = (0, Vec::new());
            let mut first: [Option<Vec<u8>>; 2] = [None, None];
            while !flag.load(Ordering::Relaxed) {
                for (path, first) in [SMALL, LARGE].into_iter().zip(&mut first) {
                    match (ask(path), &first) {
                        (Ok(answer), Some(first)) if answer == *first => count += 1,
                        (Ok(answer), None) => *first = Some(answer),
                        (Ok(answer), Some(first)) => wrong.push(format!(
                            "{path}: {} bytes that are not the {} of the first answer",
                            answer.len(),
                            first.len()
                        )),
                        (Err(error), _) => wrong.push(format!("{path}: {error:#}")),
                    }
                }
                thread::sleep(Duration::from_millis(2));
            }
            (count, wrong)
        });
        Checker { over, thread }
    }

    /// Ends the thread. Returns the number of right answers, and the errors.
    pub fn end(self) -> (u64, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| (0, vec!["the comparison of answers ended early".to_owned()]))
    }
}

/// Returns the body of an answer.
fn ask(path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    if !text.starts_with("HTTP/1.1 200 ") {
        bail!("{}", text.lines().next().unwrap_or("no answer"));
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no end of the head")?;
    Ok(answer.split_off(end + 4))
}
