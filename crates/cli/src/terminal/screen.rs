//! The whole terminal, as tables and texts that replace each other use it.
//!
//! The terminal may be closed at any time. `ratatui::init` and the destructor of its `Terminal`
//! report by `eprintln!` that a terminal could not be restored, which panics where standard error
//! is that terminal, before calltap has detached.

use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute, terminal};
use std::io::{self, stdout};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic;

/// The alternate screen, left on drop.
pub struct AlternateScreen(());

impl AlternateScreen {
    /// Enters the alternate screen and hides the cursor. A panic of any thread leaves it before the
    /// message is printed.
    pub fn enter() -> io::Result<AlternateScreen> {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            leave();
            print(why);
        }));
        let screen = AlternateScreen(());
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Leaves the alternate screen, and raw mode if the terminal is in it.
fn leave() {
    let _ = terminal::disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
}

/// A terminal that programs draw on, in raw mode.
pub struct Screen {
    /// Never dropped, as its destructor prints.
    terminal: ManuallyDrop<DefaultTerminal>,
    _alternate: AlternateScreen,
}

impl Screen {
    /// Enters raw mode and the alternate screen.
    pub fn enter() -> io::Result<Screen> {
        let alternate = AlternateScreen::enter()?;
        terminal::enable_raw_mode()?;
        let terminal = ManuallyDrop::new(DefaultTerminal::new(CrosstermBackend::new(stdout()))?);
        Ok(Screen { terminal, _alternate: alternate })
    }
}

impl Deref for Screen {
    type Target = DefaultTerminal;

    fn deref(&self) -> &DefaultTerminal {
        &self.terminal
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }
}
