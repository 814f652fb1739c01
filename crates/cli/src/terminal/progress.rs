//! Messages on a terminal during a recording or a long read: sentences, and a progress bar after a
//! second.

use calltap_analysis::units;
use calltap_session::Recording;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Tells the user something during a recording, if standard error is a terminal.
pub fn tell(text: &str) {
    if stderr().is_terminal() {
        clear();
        tell!("calltap: {text}");
    }
}

/// Whether a line about the recording is on the terminal; the next one replaces it.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// Escape sequence that moves to the beginning of the line and clears it.
const CLEARED: &str = "\r\x1b[K";

/// Shows that a recording goes on, in one line that is overwritten each time. The terminal has to
/// be calltap's.
pub fn recording(recording: &Recording) {
    let text = sentence(recording);
    let fits = tcgetwinsize(stderr()).is_ok_and(|size| usize::from(size.ws_col) > text.len());
    // In the background the line would get between the output of other programs.
    let is_behind = tcgetpgrp(stderr()).is_ok_and(|group| group != getpgrp());
    // A recorder that another calltap has started, as one of several, has no keyboard.
    if stderr().is_terminal() && stdin().is_terminal() && fits && !is_behind {
        let _ = write!(stderr().lock(), "{CLEARED}{text}");
        IS_SHOWN.store(true, Relaxed);
    }
}

/// Clears the line about the recording.
pub fn clear() {
    if IS_SHOWN.swap(false, Relaxed) {
        let _ = write!(stderr().lock(), "{CLEARED}");
    }
}

/// Returns a sentence such as `recording 12 s, 3.1 M calls, Ctrl-C to stop`.
fn sentence(recording: &Recording) -> String {
    let calls = match recording.calls {
        1 => "1 call".to_owned(),
        n @ 0..10_000 => format!("{} calls", units::count(n)),
        n @ 10_000..1_000_000 => format!("{} k calls", n / 1_000),
        n @ 1_000_000..1_000_000_000 => format!("{:.1} M calls", (n / 100_000) as f64 / 10.0),
        n => format!("{:.1} G calls", (n / 100_000_000) as f64 / 10.0),
    };
    format!("recording {} s, {calls}, Ctrl-C to stop", recording.elapsed.as_secs())
}

/// Time after which the bar appears.
const BAR_DELAY: Duration = Duration::from_secs(1);

/// Whether the bar is off for good, as a pager has the terminal.
static GIVES_WAY: AtomicBool = AtomicBool::new(false);
/// The bar that is drawn.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Removes the bar for good.
pub fn give_way() {
    GIVES_WAY.store(true, Relaxed);
    clear_bar();
}

fn clear_bar() {
    if let Some(bar) = BAR.lock().ok().and_then(|mut bar| bar.take()) {
        bar.finish_and_clear();
    }
}

/// A progress bar, drawn once it is needed.
pub struct Progress {
    total: u64,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Returns a bar for `total` events.
    pub fn new(total: u64) -> Progress {
        Progress { total, started: Instant::now(), terminal: stderr().is_terminal() }
    }

    /// Sets the number of events that are done.
    pub fn set(&mut self, done: u64) {
        if !self.terminal || self.started.elapsed() < BAR_DELAY || GIVES_WAY.load(Relaxed) {
            return;
        }
        let Ok(mut bar) = BAR.lock() else { return };
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} events, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(done);
    }

    /// Removes the bar.
    pub fn finish(self) {
        clear_bar();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_time_and_calls() {
        let check = |seconds, calls, expected: &str| {
            let recording = Recording { elapsed: Duration::from_secs(seconds), calls };
            assert_eq!(sentence(&recording), expected);
        };
        check(1, 0, "recording 1 s, 0 calls, Ctrl-C to stop");
        check(2, 1, "recording 2 s, 1 call, Ctrl-C to stop");
        check(3, 9_999, "recording 3 s, 9,999 calls, Ctrl-C to stop");
        check(3, 999_999, "recording 3 s, 999 k calls, Ctrl-C to stop");
        check(12, 3_160_000, "recording 12 s, 3.1 M calls, Ctrl-C to stop");
        check(4000, 12_000_000_000, "recording 4000 s, 12.0 G calls, Ctrl-C to stop");
    }
}
