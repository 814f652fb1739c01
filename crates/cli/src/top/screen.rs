//! The table on a terminal, and its keys.

use super::Show;
use super::desk::Desk;
use super::grid::{Act, Grid};
use anyhow::Result;
use calltap_analysis::live::Interval;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Between two looks at what has come; keys are answered at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Gives the terminal back, whatever happens. (Where a panic ends all, its message comes after that.)
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows what comes until it is over or the user has seen enough.
pub fn look(intervals: &Receiver<Option<Interval>>, desk: &Desk, show: &Show) -> Result<()> {
    let _restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let mut grid = Grid::new(show.sort, show.limit);
    let mut seen = 0;
    loop {
        match intervals.try_recv() {
            Ok(interval) => {
                grid.set(interval);
                seen += 1;
                if show.count.is_some_and(|count| seen >= count) {
                    return Ok(());
                }
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        terminal.draw(|frame| grid.draw(frame, desk))?;
        if event::poll(PAUSE)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match grid.key(key) {
                Act::Quit => return Ok(()),
                Act::Toggle(row) => desk.toggle(&row),
                Act::Nothing => {}
            }
        }
    }
}
