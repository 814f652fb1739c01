//! `--compare`: another build of calltap beside this one, and the rows that have changed beyond
//! noise.
//!
//! Both run in turn, each first in every other pair of runs. Figures are compared within a pair, so
//! that a machine that becomes slower affects both.

use super::measure::median;
use super::subjects::Subject;
use super::workloads::{self, Workload};
use super::{Bench, head};
use anyhow::{Result, ensure};
use std::path::Path;

const SUBJECTS: [Subject; 6] = [
    Subject::Calltap("function_graph", &[]),
    Subject::Calltap("overwrite", &["--overwrite", "--buffer-size", "4M"]),
    Subject::Calltap("function", &["--tracer", "function"]),
    Subject::Calltap("sparse", &["--clock", "sparse"]),
    Subject::Calltap("counter", &["--clock", "counter"]),
    Subject::Calltap("profile", &["--tracer", "profile"]),
];

/// Probability with which an unchanged row may be reported as changed.
const ERROR: f64 = 0.002;
/// Smallest change that is reported, however certain it is.
const MIN_CHANGE: f64 = 0.01;

/// The change of a figure, with its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Change {
    /// Median of the pairs' ratios, this calltap's figure to the other's.
    ratio: f64,
    /// Confidence interval of the true median, at error probability [`ERROR`].
    between: (f64, f64),
}

impl Change {
    /// Returns the change from at least one ratio. The interval is that of the sign test, which
    /// assumes no distribution of the noise.
    fn of(mut ratios: Vec<f64>) -> Change {
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len() - 1;
        let left_out = outer(ratios.len());
        Change { between: (ratios[left_out], ratios[last - left_out]), ratio: median(ratios) }
    }

    fn verdict(self) -> &'static str {
        let (least, most) = self.between;
        match self.ratio {
            ratio if most < 1.0 && ratio < 1.0 - MIN_CHANGE => "less",
            ratio if least > 1.0 && ratio > 1.0 + MIN_CHANGE => "MORE",
            _ => "",
        }
    }

    fn cells(self) -> String {
        let (least, most) = self.between;
        format!("{:.3} | {least:.3} to {most:.3} | {}", self.ratio, self.verdict())
    }
}

/// Returns the number of sorted ratios that lie outside the interval, on each side.
fn outer(count: usize) -> usize {
    // Binomial distribution: at most `left_out` of `count` coins show the same side.
    let (mut left_out, mut ways, mut sum) = (0, 1.0, 1.0);
    for heads in 1..count {
        ways *= (count - heads + 1) as f64 / heads as f64;
        sum += ways;
        if 2.0 * sum / 2_f64.powi(count as i32) > ERROR {
            break;
        }
        left_out = heads;
    }
    left_out
}

/// Measures the rows with these words in their names, with this calltap and with the other.
pub fn run(bench: &Bench, other: &Path, only: &[&str]) -> Result<()> {
    ensure!(other.is_file(), "--compare: there is no {}", other.display());
    let other = Bench { calltap: other.canonicalize()?, place: bench.place.clone(), ..*bench };
    let pairs = if bench.quick { 11 } else { 21 };
    println!(
        "{}\nThis calltap's processor time to that of {}: median of {pairs} pairs, and between what it lies; `less` or `MORE` where it has changed.\n\n\
         | workload | tracer | program | between | | recorder | between | |\n|---|---|--:|---|---|--:|---|---|",
        head(bench),
        other.calltap.display()
    );
    for workload in workloads::all(bench)? {
        for subject in SUBJECTS {
            let name = format!("{} | {}", workload.name, subject.name());
            if only.is_empty() || only.iter().any(|word| name.contains(word)) {
                let [program, recorder] = row([bench, &other], &workload, subject, pairs)?;
                println!("| {name} | {} | {} |", program.cells(), recorder.cells());
            }
        }
    }
    Ok(())
}

/// Returns the changes of the program's processor time and of the recorder's.
fn row(both: [&Bench; 2], workload: &Workload, subject: Subject, pairs: usize) -> Result<[Change; 2]> {
    for bench in both {
        subject.run(bench, workload)?;
    }
    let (mut program, mut recorder) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let first = pair % 2;
        let one = subject.run(both[first], workload)?.info;
        let two = subject.run(both[1 - first], workload)?.info;
        let (this, other) = if first == 0 { (one, two) } else { (two, one) };
        ensure!(this.calls == other.calls, "{}: {} calls, and {}", subject.name(), this.calls, other.calls);
        program.push(this.program / other.program);
        recorder.push(this.recorder / other.recorder);
    }
    Ok([Change::of(program), Change::of(recorder)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ratios: &[f64], verdict: &str) {
        let change = Change::of(ratios.to_vec());
        assert_eq!(change.verdict(), verdict, "{change:?}");
    }

    #[test]
    fn interval_excludes_ranks_allowed_by_sign_test() {
        // 2 * P(at most k of n coins) <= 0.002
        assert_eq!([1, 9, 11, 15, 21].map(outer), [0, 0, 0, 1, 3]);
    }

    #[test]
    fn a_change_is_one_when_nearly_all_pairs_agree() {
        let steady =
            [0.90, 0.91, 0.89, 0.92, 0.90, 0.91, 0.90, 0.93, 0.88, 0.90, 0.91, 0.90, 0.92, 0.89, 0.91];
        check(&steady, "less");
        check(&steady.map(|ratio| 2.0 - ratio), "MORE");
        let mut disturbed = steady;
        disturbed[3] = 1.7;
        check(&disturbed, "less");
        disturbed[4] = 1.2;
        check(&disturbed, "");
        check(&steady.map(|ratio| ratio + 0.1), "");
        check(&[0.995; 21], "");
    }
}
