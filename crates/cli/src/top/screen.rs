//! The table on a terminal, and its keys.

use super::Show;
use super::grid::{Act, Grid};
use super::intervals::Intervals;
use super::switches::Switches;
use super::together::Together;
use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

/// Between two looks at what has come; keys are answered at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Is there a terminal to draw on, and one that keys come from?
pub fn is_there() -> bool {
    io::stdout().is_terminal() && (io::stdin().is_terminal() || File::open("/dev/tty").is_ok())
}

/// Gives the terminal back, whatever happens. Where a panic ends all, its message comes after that.
pub struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // It may have been closed.
        let _ = ratatui::try_restore();
    }
}

/// Shows what comes until it is over or the user has seen enough.
pub(super) fn look(intervals: &mut Intervals, switches: &[Switches], show: &Show) -> Result<()> {
    let _restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let keys = keys();
    let mut grid = Grid::new(show.sort, show.limit, show.short);
    let mut together = Together::new(switches);
    let mut seen = vec![0; switches.len()];
    loop {
        match intervals.try_next() {
            Ok((at, interval)) => {
                if together.set(at, interval) {
                    grid.set(together.interval());
                }
                seen[at] += 1;
                let has_enough =
                    |at| !intervals.runs(at) || show.count.is_some_and(|count| seen[at] >= count);
                if (0..seen.len()).all(has_enough) {
                    return Ok(());
                }
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        terminal.draw(|frame| grid.draw(frame, &together))?;
        let event = match keys.recv_timeout(PAUSE) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => bail!("no keys come from the terminal any more"),
        };
        let Event::Key(key) = event else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match grid.key(key) {
            Act::Quit => return Ok(()),
            Act::Toggle(row) => together.toggle(&row),
            Act::Turn(back) => {
                together.turn(back);
                grid.show(together.interval());
            }
            Act::Nothing => {}
        }
    }
}

/// What happens on the terminal. It is read in a thread that is left alone at the end: where a terminal was closed, reading an event never returns.
pub fn keys() -> Receiver<Event> {
    let (sender, keys) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    keys
}
