//! What the user sees while something goes on, on a terminal: sentences, and a progress bar for what takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Tells the user something while it goes on, where stderr is a terminal.
pub fn tell(text: &str) {
    if stderr().is_terminal() {
        eprintln!("calltap: {text}");
    }
}

/// Tells nothing.
pub fn keep_quiet(_: &str) {}

/// Appears after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bar, once it is needed.
pub struct Progress {
    total: u64,
    started: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For so many events.
    pub fn new(total: u64) -> Progress {
        Progress { total, started: Instant::now(), terminal: stderr().is_terminal(), bar: None }
    }

    /// So many are done.
    pub fn set(&mut self, done: u64) {
        if !self.terminal || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} events, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(done);
    }

    /// All done.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
