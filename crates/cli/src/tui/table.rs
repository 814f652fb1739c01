//! The table of functions, with the callers and callees of the chosen one beside it.

use super::app::{App, Pane};
use super::rows::{self, Column, Line};
use super::screen_data::ScreenData;
use crate::top::switches::State;
use calltap_analysis::Source;
use calltap_analysis::explore::Relative;
use calltap_analysis::units::{count, duration, one_line};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Widths of the columns of names, with a module's name and without, and of states.
const NAMES: u16 = 44;
const NAME: u16 = 24;
const STATE: u16 = 13;

/// Returns the columns that fit beside the names, and whether the modules' names fit, too.
fn fitting(columns: &[Column], live: bool, width: u16) -> (&[Column], bool) {
    let mut used = 2 + if live { STATE + 1 } else { 0 };
    let mut fitting = 0;
    for column in columns {
        if used + column.width + 1 + NAME > width && fitting > 0 {
            break;
        }
        used += column.width + 1;
        fitting += 1;
    }
    (&columns[..fitting], used + NAMES <= width)
}

impl App {
    pub(super) fn draw_functions<S: Source + Sync>(
        &mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        shown: &ScreenData<'_, S>,
    ) {
        let [left, right] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
        self.draw_table(frame, left, shown);
        let [callers, callees] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(right);
        self.find_around(shown);
        self.draw_relatives(frame, callers, shown, Pane::Callers);
        self.draw_relatives(frame, callees, shown, Pane::Callees);
    }

    fn draw_table<S: Source + Sync>(&mut self, frame: &mut Frame<'_>, area: Rect, shown: &ScreenData<'_, S>) {
        let lines = self.lines(shown);
        let place = self.chosen.and_then(|site| lines.iter().position(|line| line.site == site));
        self.places[Pane::Table as usize].select(place);
        self.page = usize::from(area.height.saturating_sub(3)).max(1);
        let live = shown.live.is_some();
        let (columns, with_module) = fitting(self.columns(), live, area.width);
        let line = |line: &Line| {
            let numbers = columns.iter().map(|column| right(column.text(line)));
            let state = line.state.map(|state| Cell::from(state.word()));
            let names = [self.name(&line.name), one_line(&line.module).into_owned()];
            let names = names.map(Cell::from).into_iter().take(1 + usize::from(with_module));
            let style = match line.state {
                Some(State::Off) => Style::new().fg(Color::DarkGray),
                Some(State::DisabledByLimit) => Style::new().fg(Color::Yellow),
                _ => Style::new(),
            };
            Row::new(numbers.chain(state).chain(names).collect::<Vec<_>>()).style(style)
        };
        let sorted = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let titles = columns.iter().enumerate().map(|(at, column)| {
            right(column.title.to_owned()).style(if Some(at) == self.sort { sorted } else { Style::new() })
        });
        let state = live.then(|| Cell::from("STATE"));
        let name = Cell::from("FUNCTION").style(if self.sort.is_none() { sorted } else { Style::new() });
        let module = with_module.then(|| Cell::from("MODULE"));
        let titles = Row::new(titles.chain(state).chain([name]).chain(module).collect::<Vec<_>>());
        let widths = columns.iter().map(|column| Constraint::Length(column.width));
        let state = live.then_some(Constraint::Length(STATE));
        let module = with_module.then_some(Constraint::Fill(1));
        let widths = widths.chain(state).chain([Constraint::Fill(3)]).chain(module);
        let table = Table::new(lines.iter().map(line), widths.collect::<Vec<_>>())
            .header(titles)
            .row_highlight_style(REVERSED)
            .block(self.framed(Pane::Table, format!(" functions: {} ", count(lines.len() as u64))));
        frame.render_stateful_widget(table, area, &mut self.places[Pane::Table as usize]);
    }

    fn draw_relatives<S: Source + Sync>(
        &mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        shown: &ScreenData<'_, S>,
        pane: Pane,
    ) {
        let name = |site| shown.explorer.function(site).map_or("[unknown]", |function| &function.name);
        let chosen = self.name(self.chosen.map_or("", name));
        let title = match pane {
            Pane::Callers => format!(" callers of {chosen} "),
            _ => format!(" callees of {chosen} "),
        };
        let line = |relative: &Relative| {
            Row::new([
                right(duration(relative.total_ns)),
                right(count(relative.calls)),
                Cell::from(self.name(name(relative.site))),
            ])
        };
        let widths = [Constraint::Length(11), Constraint::Length(11), Constraint::Fill(1)];
        let table = Table::new(self.relatives(pane).iter().map(line), widths)
            .header(Row::new([right("TOTAL".into()), right("CALLS".into()), Cell::from("FUNCTION")]))
            .row_highlight_style(REVERSED)
            .block(self.framed(pane, title));
        frame.render_stateful_widget(table, area, &mut self.places[pane as usize]);
    }

    fn framed(&self, pane: Pane, title: String) -> Block<'static> {
        let style = if self.pane == pane { Style::new().fg(Color::Cyan) } else { Style::new() };
        Block::new().borders(Borders::TOP | Borders::LEFT).border_style(style).title(title)
    }

    /// Returns the rows of the table.
    pub(super) fn lines<S: Source + Sync>(&self, shown: &ScreenData<'_, S>) -> Vec<Line> {
        rows::lines(shown, &self.filter, self.sort.and_then(|at| self.columns().get(at)))
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}
