//! The table on a screen: its rows, the selected row, and the keys.

use super::switches::State;
use super::together::Together;
use super::view;
use crate::terminal::key_effect::KeyEffect;
use crate::terminal::search;
use calltap_analysis::intervals::{Column, FunctionCalls, Interval};
use calltap_analysis::units::{duration, one_line};
use calltap_analysis::{ShortNames, fitted};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Cell, TableState};

/// The columns, with their sort keys.
const COLUMNS: [(&str, Option<Column>); 7] = [
    ("CALLS/S", Some(Column::Calls)),
    ("AVG", Some(Column::Avg)),
    ("MAX", Some(Column::Max)),
    ("TIME%", Some(Column::Total)),
    ("STATE", None),
    ("MODULE", None),
    ("FUNCTION", Some(Column::Function)),
];
/// Widths of the columns in front of the module and the function, which share the rest.
const WIDTHS: [u16; 5] = [10, 10, 10, 7, 10];
/// Number of columns with numbers, which come first.
const NUMBERS: usize = 4;
/// Largest width of the module.
const MODULE: u16 = 20;
/// Least width of the function; the module is narrower, or not shown, where that leaves less.
const FUNCTION: u16 = 24;

/// The table on a screen.
pub struct Grid {
    /// The rows that are displayed, filtered and sorted.
    shown: Option<Interval>,
    /// The newest interval with all its rows.
    newest: Option<Interval>,
    sort: Column,
    limit: Option<usize>,
    /// The shortened names, unique among the functions of all intervals; `None` if names are shown
    /// in full.
    short: Option<ShortNames>,
    /// Text that a function's name must contain to be displayed.
    filter: String,
    /// Whether keys are input for the filter.
    typing: bool,
    paused: bool,
    /// Name and module of the selected function, which stays selected when its row moves.
    selected: Option<(String, String)>,
    state: TableState,
    /// Number of rows that fit on the screen.
    page: usize,
}

impl Grid {
    /// Returns an empty table. `short`: whether names are shortened.
    pub fn new(sort: Column, limit: Option<usize>, short: bool) -> Grid {
        Grid {
            shown: None,
            newest: None,
            sort,
            limit,
            short: short.then(ShortNames::default),
            filter: String::new(),
            typing: false,
            paused: false,
            selected: None,
            state: TableState::default(),
            page: 1,
        }
    }

    /// Takes a new interval, unless the display is paused.
    pub fn set(&mut self, interval: Option<Interval>) {
        if !self.paused {
            self.show(interval);
        }
    }

    /// Takes a new interval, also while the display is paused.
    pub fn show(&mut self, interval: Option<Interval>) {
        self.newest = interval;
        if let Some(short) = &mut self.short {
            let rows = self.newest.iter().flat_map(|interval| &interval.rows);
            rows.for_each(|row| short.add(&row.function));
        }
        self.arrange();
    }

    /// Filters and sorts the newest interval.
    fn arrange(&mut self) {
        self.shown = self.newest.clone().map(|mut interval| {
            interval.rows.retain(|row| row.function.contains(&self.filter));
            interval.sort(self.sort);
            interval.rows.truncate(self.limit.unwrap_or(usize::MAX));
            interval
        });
        let is_selected = |row: &FunctionCalls| {
            self.selected
                .as_ref()
                .is_some_and(|(function, module)| (&row.function, &row.module) == (function, module))
        };
        let place = self.rows().iter().position(is_selected);
        self.state.select(place);
        if place.is_none() {
            *self.state.offset_mut() = 0;
        }
    }

    fn rows(&self) -> &[FunctionCalls] {
        self.shown.as_ref().map_or(&[], |interval| &interval.rows)
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyEffect::Quit } else { KeyEffect::Nothing };
        }
        if self.typing {
            self.type_filter(key.code);
            return KeyEffect::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char(' ') => {
                let row = self.state.selected().and_then(|at| self.rows().get(at));
                return row.map_or(KeyEffect::Nothing, |row| KeyEffect::Toggle(row.clone()));
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-(self.page as isize)),
            KeyCode::PageDown => self.step(self.page as isize),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Esc => {
                self.filter.clear();
                self.select(None);
                self.arrange();
            }
            KeyCode::Char('s') => self.sort_by(self.sort.next()),
            KeyCode::Char('c') => self.sort_by(Column::Calls),
            KeyCode::Char('t') => self.sort_by(Column::Total),
            KeyCode::Char('a') => self.sort_by(Column::Avg),
            KeyCode::Char('m') => self.sort_by(Column::Max),
            KeyCode::Char('f') => self.sort_by(Column::Function),
            KeyCode::Char('[') => return KeyEffect::Turn(true),
            KeyCode::Char(']') => return KeyEffect::Turn(false),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            _ => {}
        }
        KeyEffect::Nothing
    }

    fn type_filter(&mut self, key: KeyCode) {
        search::type_key(&mut self.filter, &mut self.typing, key);
        self.arrange();
    }

    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.arrange();
    }

    /// Moves the selection; the first step down selects the first row.
    fn step(&mut self, rows: isize) {
        let Some(last) = self.rows().len().checked_sub(1) else { return };
        let at = match self.state.selected() {
            Some(at) => at.saturating_add_signed(rows).min(last),
            None if rows == isize::MAX => last,
            None => 0,
        };
        self.select(Some(at));
    }

    fn select(&mut self, place: Option<usize>) {
        let row = place.and_then(|at| self.rows().get(at));
        self.selected = row.map(|row| (row.function.clone(), row.module.clone()));
        self.state.select(place);
        if place.is_none() {
            *self.state.offset_mut() = 0;
        }
    }

    /// Draws the table.
    pub fn draw(&mut self, frame: &mut Frame<'_>, together: &Together<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        self.page = usize::from(middle.height.saturating_sub(1)).max(1);
        let head = match &self.shown {
            Some(interval) => together.heading(interval),
            None => "attached; the first interval has begun".to_owned(),
        };
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Line::from(format!(" {head}")).style(reversed), top);
        let (widths, room) = self.widths(middle.width);
        let rows: Vec<widgets::Row<'_>> = match &self.shown {
            Some(interval) => {
                let name = |row: &FunctionCalls| match &self.short {
                    Some(short) => fitted(&short.of(&row.function), room),
                    None => row.function.clone(),
                };
                let line = |row| line(interval, row, &name(row), together.state(row));
                interval.rows.iter().map(line).collect()
            }
            None => Vec::new(),
        };
        let table = widgets::Table::new(rows, widths).header(self.titles()).row_highlight_style(reversed);
        frame.render_stateful_widget(table, middle, &mut self.state);
        frame.render_widget(self.help(together.is_several()), bottom);
    }

    /// Returns the widths of the columns on a screen of this width, and what is left of it for
    /// functions.
    fn widths(&self, screen: u16) -> ([Constraint; 7], usize) {
        let numbers: u16 = WIDTHS.iter().map(|width| width + 1).sum();
        let names = self.rows().iter().map(|row| row.module.chars().count());
        let longest = names.max().and_then(|length| u16::try_from(length).ok()).unwrap_or(0);
        let title = COLUMNS[WIDTHS.len()].0.len() as u16;
        let module = longest.max(title).min(MODULE).min(screen.saturating_sub(numbers + 1 + FUNCTION));
        let [calls, avg, max, time, state] = WIDTHS.map(Constraint::Length);
        let columns = [calls, avg, max, time, state, Constraint::Length(module), Constraint::Fill(1)];
        (columns, usize::from(screen.saturating_sub(numbers + module + 1)))
    }

    fn titles(&self) -> widgets::Row<'static> {
        let sorted = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let title = |(at, (title, column)): (usize, (&'static str, Option<Column>))| {
            let style = if column == Some(self.sort) { sorted } else { Style::new() };
            cell(at, title.to_owned()).style(style)
        };
        widgets::Row::new(COLUMNS.into_iter().enumerate().map(title))
    }

    fn help(&self, is_several: bool) -> Line<'_> {
        if self.typing {
            return Line::from(format!(" /{}_   Enter: keep  Esc: show all", self.filter));
        }
        let paused = if self.paused { "PAUSED  " } else { "" };
        let filter = if self.filter.is_empty() { String::new() } else { format!("/{}  ", self.filter) };
        let (sort, turn) = (self.sort.name(), if is_several { "[ ]: process  " } else { "" });
        Line::from(format!(
            " {paused}{filter}q: quit  up/down: select  space: on/off  {turn}s: sort ({sort})  p: pause  /: filter"
        ))
    }
}

fn line(interval: &Interval, row: &FunctionCalls, name: &str, state: State) -> widgets::Row<'static> {
    let cells = [
        view::rate(interval, row),
        view::known(row, duration(row.avg_ns)),
        view::known(row, duration(row.max_ns)),
        view::share_of_time(interval, row),
        state.word().to_owned(),
        one_line(&row.module).into_owned(),
        one_line(name).into_owned(),
    ];
    let style = match state {
        State::On => Style::new(),
        State::Off => Style::new().fg(Color::DarkGray),
        State::DisabledByLimit => Style::new().fg(Color::Yellow),
    };
    widgets::Row::new(cells.into_iter().enumerate().map(|(at, text)| cell(at, text))).style(style)
}

fn cell(column: usize, text: String) -> Cell<'static> {
    let alignment = if column < NUMBERS { Alignment::Right } else { Alignment::Left };
    Cell::from(Text::from(text).alignment(alignment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::switches::Switches;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// Returns a table with rows `(function, calls, avg)` of half a second.
    fn grid(rows: &[(&str, u64, u64)]) -> Grid {
        let mut grid = Grid::new(Column::Calls, None, true);
        grid.set(Some(Interval {
            length_ns: 500_000_000,
            events: 10,
            lost: 0,
            rows: crate::top::rows_of(rows),
        }));
        grid
    }

    fn press(grid: &mut Grid, keys: &[KeyCode]) -> KeyEffect {
        keys.iter().fold(KeyEffect::Nothing, |_, key| grid.key(KeyEvent::from(*key)))
    }

    fn names(grid: &Grid) -> String {
        grid.rows().iter().map(|row| row.function.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn toggled(act: KeyEffect) -> String {
        if let KeyEffect::Toggle(row) = act { row.function } else { panic!("{act:?}") }
    }

    const THREE: &[(&str, u64, u64)] = &[("often", 30, 10), ("slow", 2, 500), ("also", 5, 5)];

    #[test]
    fn keys_sort_and_filter_and_quit() {
        let mut grid = grid(THREE);
        assert_eq!(names(&grid), "often also slow");
        for (key, order) in [
            ('a', "slow often also"),
            ('f', "also often slow"),
            ('t', "slow often also"),
            ('c', "often also slow"),
        ] {
            press(&mut grid, &[KeyCode::Char(key)]);
            assert_eq!(names(&grid), order, "{key}");
        }
        press(&mut grid, &['s', '/', 'l', 'q'].map(KeyCode::Char));
        assert_eq!(names(&grid), "", "q is a letter in a filter");
        press(&mut grid, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(names(&grid), "slow also", "sorted by total");
        press(&mut grid, &[KeyCode::Esc]);
        assert_eq!(names(&grid), "slow often also");
        assert_eq!(press(&mut grid, &[KeyCode::Char('q')]), KeyEffect::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(grid.key(interrupt), KeyEffect::Quit);
    }

    #[test]
    fn selection_follows_function_to_its_new_row() {
        let mut grid = grid(THREE);
        assert_eq!(press(&mut grid, &[KeyCode::Char(' ')]), KeyEffect::Nothing, "nothing is selected yet");
        assert_eq!(toggled(press(&mut grid, &[KeyCode::Down, KeyCode::Char(' ')])), "often");
        assert_eq!(toggled(press(&mut grid, &[KeyCode::Char('f'), KeyCode::Char(' ')])), "often");
        assert_eq!(toggled(press(&mut grid, &[KeyCode::End, KeyCode::Char(' ')])), "slow");
        assert_eq!(
            toggled(press(&mut grid, &[KeyCode::Up, KeyCode::Up, KeyCode::Up, KeyCode::Char(' ')])),
            "also"
        );
        let next = grid.newest.clone();
        grid.set(None);
        assert_eq!(press(&mut grid, &[KeyCode::Char(' ')]), KeyEffect::Nothing);
        grid.set(next);
        assert_eq!(toggled(press(&mut grid, &[KeyCode::Char(' ')])), "also");
        assert_eq!(press(&mut grid, &[KeyCode::Esc, KeyCode::Char(' ')]), KeyEffect::Nothing);
    }

    #[test]
    fn paused_grid_does_not_change() {
        let mut grid = grid(THREE);
        press(&mut grid, &[KeyCode::Char('p')]);
        grid.set(None);
        assert_eq!(names(&grid), "often also slow");
        press(&mut grid, &[KeyCode::Char('p')]);
        grid.set(None);
        assert_eq!(names(&grid), "");
    }

    #[test]
    fn grid_draws_states_and_fits_the_screen() {
        let (mut grid, switches) = (grid(THREE), Switches::new(4711));
        switches.set_name("app");
        let together = Together::new(std::slice::from_ref(&switches));
        switches.toggle(&grid.rows()[1]);
        let mut terminal = Terminal::new(TestBackend::new(90, 4)).unwrap();
        terminal.draw(|frame| grid.draw(frame, &together)).unwrap();
        let text = terminal.backend().to_string();
        let lines: Vec<&str> = text.lines().map(|line| line.trim_matches('"').trim_end()).collect();
        assert_eq!(lines[0], " app (4711): 20 events/s, 0 lost, 0 functions on, 0 off");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), COLUMNS.map(|(title, _)| title));
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>().join(" "),
            "60.0 10 ns 10 ns 0.0 on app often"
        );
        assert!(lines[3].starts_with(" q: quit  up/down: select"), "{}", lines[3]);
        // A function's name is readable on a narrow screen, beside the longest state and module.
        let long = "a_function_with_a_name";
        grid.show(Some(Interval { rows: crate::top::rows_of(&[(long, 30, 10)]), ..Interval::default() }));
        grid.newest.iter_mut().for_each(|interval| interval.rows[0].module = "librdkafka.so.1.2".to_owned());
        grid.arrange();
        for width in [80, 120] {
            let mut terminal = Terminal::new(TestBackend::new(width, 4)).unwrap();
            terminal.draw(|frame| grid.draw(frame, &together)).unwrap();
            let text = terminal.backend().to_string();
            assert!(text.contains(long), "{text}");
            assert_eq!(text.contains("librdkafka.so.1.2"), width == 120, "{text}");
        }
        // Drawing must work on a screen of any size.
        for (width, height) in [(0, 0), (1, 1), (5, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| grid.draw(frame, &together)).unwrap();
        }
    }
}
