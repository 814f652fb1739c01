//! The program `switch.c`, whose functions are switched while it runs.
#![allow(dead_code)] // the tests and the benchmark use different parts

use calltap_patch::{Avma, Bias, Change, Demand, Site, State, carry_out};
use calltap_process::memory::text::ProcessText;
use calltap_sites::{SiteForm, Svma};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The running program.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The program's text.
    pub text: ProcessText,
    /// Sites 16 bytes apart.
    pub regular: Vec<Site>,
    /// Sites that cross words, cache lines and pages.
    pub odd: Vec<Site>,
    /// Jump target of an enabled site.
    pub target: Avma,
}

/// Counts of the program's threads.
#[derive(Debug)]
pub struct CallCounts {
    pub calls: u64,
    pub errors: u64,
    /// Microseconds between two calls of one thread: at p50, p99, p99.9, p99.999.
    pub gaps: [f64; 4],
}

const NOP: [u8; 5] = [0x0F, 0x1F, 0x44, 0, 0];

fn site(at: u64) -> Site {
    Site::new(&SiteForm::Entry { at: Svma(at), old: NOP.to_vec() }, Bias(0)).expect("a site")
}

impl Program {
    /// Compiles and starts the program.
    pub fn start(sites: usize, threads: usize) -> Program {
        let place = tempfile::tempdir().expect("a directory");
        let binary = place.path().join("switch");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/switch.c");
        let status = Command::new("gcc")
            .args(["-O2", "-pthread", &format!("-DSITES={sites}"), source, "-o"])
            .arg(&binary)
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("gcc").success(), "{source} compiles");
        let mut child = Command::new(&binary)
            .arg(threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("its input");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("where its functions are");
        let mut places =
            line.split_whitespace().map(|word| u64::from_str_radix(&word[2..], 16).expect("an address"));
        let (first, target) = (places.next().expect("sites"), places.next().expect("a target"));
        let text = ProcessText::open(child.id()).expect("its memory");
        let regular = (0..sites as u64).map(|n| site(first + 16 * n)).collect();
        Program { text, regular, odd: places.map(site).collect(), target: Avma(target), child, input, output }
    }

    /// Switches the first `count` sites; all must have been in state `from`.
    pub fn switch(&mut self, odd: bool, count: usize, from: State, to: State) {
        let sites = if odd { &self.odd } else { &self.regular };
        let changes = sites.iter().take(count).map(|site| Change { site, from, to, recover: &[] });
        let failed = carry_out(&mut self.text, changes, Demand::Nothing);
        assert_eq!(failed, [], "{from:?} -> {to:?}");
    }

    /// Switches all sites in one batch. Returns their number.
    pub fn switch_all(&mut self, from: State, to: State) -> u64 {
        let sites = self.regular.iter().chain(&self.odd);
        let changes: Vec<_> = sites.map(|site| Change { site, from, to, recover: &[] }).collect();
        let count = changes.len() as u64;
        assert_eq!(carry_out(&mut self.text, changes, Demand::Nothing), [], "{from:?} -> {to:?}");
        count
    }

    /// Switches one odd site.
    pub fn switch_one(&mut self, n: usize, from: State, to: State) {
        let change = Change { site: &self.odd[n], from, to, recover: &[] };
        assert_eq!(carry_out(&mut self.text, [change], Demand::Nothing), []);
    }

    /// Makes the program count from zero again.
    pub fn reset(&mut self) {
        self.input.write_all(b"r").expect("its input");
    }

    /// Ends the program and returns its counts.
    pub fn end(self) -> CallCounts {
        let Program { mut child, input, mut output, .. } = self;
        drop(input);
        let mut line = String::new();
        output.read_line(&mut line).expect("what it saw");
        let status = child.wait().expect("its end");
        let words: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [calls, errors, gaps @ ..] = &words[..] else { panic!("it died: {status}") };
        CallCounts { calls: *calls as u64, errors: *errors as u64, gaps: gaps.try_into().expect("four gaps") }
    }
}
