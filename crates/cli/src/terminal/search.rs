//! The input line for searching names, in interactive views.

use ratatui::crossterm::event::KeyCode;

/// Handles a key of the input line: enter keeps the text, escape clears it; both end the input.
pub fn type_key(text: &mut String, typing: &mut bool, key: KeyCode) {
    match key {
        KeyCode::Enter => *typing = false,
        KeyCode::Esc => {
            *typing = false;
            text.clear();
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(character) => text.push(character),
        _ => {}
    }
}
