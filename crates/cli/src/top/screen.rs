//! The table on a terminal, and its keys.

use super::Show;
use super::grid::Grid;
use super::intervals::Intervals;
use super::switches::Switches;
use super::together::Together;
use crate::terminal::key_effect::KeyEffect;
use crate::terminal::screen::Screen;
use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

/// Interval between two looks for new intervals; keys are handled at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Whether there is a terminal to draw on, and one to read keys from.
pub fn is_there() -> bool {
    io::stdout().is_terminal() && (io::stdin().is_terminal() || File::open("/dev/tty").is_ok())
}

/// Displays the intervals until all processes have ended or the user quits.
pub(super) fn run(intervals: &mut Intervals, switches: &[Switches], show: &Show) -> Result<()> {
    let mut screen = Screen::enter()?;
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
        screen.draw(|frame| grid.draw(frame, &together))?;
        let event = match keys.recv_timeout(LOOK_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => bail!("cannot read keys from the terminal: it was closed"),
        };
        let Event::Key(key) = event else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match grid.key(key) {
            KeyEffect::Quit => return Ok(()),
            KeyEffect::Toggle(row) => together.toggle(&row),
            KeyEffect::Turn(back) => {
                together.turn(back);
                grid.show(together.interval());
            }
            KeyEffect::Nothing => {}
        }
    }
}

/// Starts a thread that reads the terminal's events, and returns their receiver. The thread is
/// never joined: after a terminal was closed, reading an event never returns.
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
