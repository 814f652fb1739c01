//! The line of a display in which a name is searched for.

use ratatui::crossterm::event::KeyCode;

/// A key is pressed while it is typed: enter keeps the text, escape gives it up; both end the typing.
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
