//! The interactive screen: the state of its views, and the handling of keys.

use super::rows::{Column, FILE, LIVE, Line};
use super::screen_data::ScreenData;
use crate::terminal::key_effect::KeyEffect;
use crate::terminal::search;
use calltap_analysis::explore::{Around, Relative};
use calltap_analysis::units::one_line;
use calltap_analysis::{ShortNames, Source};
use calltap_trace::SiteId;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line as Text;
use ratatui::widgets::TableState;

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Functions,
    Timeline,
}

/// A list of functions on the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Table,
    Callers,
    Callees,
}

/// The state of the screen.
pub struct App {
    view: View,
    pub(super) pane: Pane,
    /// Index of the column to sort by; `None` sorts by name.
    pub(super) sort: Option<usize>,
    pub(super) filter: String,
    /// Whether keys are input for the filter.
    typing: bool,
    paused: bool,
    /// Number of watched processes; 0 if a recording is shown.
    live: usize,
    /// Whether the screen has no colours.
    pub(super) plain: bool,
    /// Shortened names and the number of the events with these names; `None` shows full names.
    short: Option<(ShortNames, Option<u64>)>,
    pub(super) chosen: Option<SiteId>,
    /// The selected row of each pane, in the order of [`Pane`].
    pub(super) places: [TableState; 3],
    /// The chosen function's callers and callees, and the number of the events with them.
    around: Option<(SiteId, u64, Around)>,
    /// The part of the time that the timeline shows; `None` for all of it.
    pub(super) stretch: Option<(u64, u64)>,
    /// The beginning of the call that the last jump led to.
    pub(super) at: Option<u64>,
    /// Number of rows of the timeline above the screen.
    pub(super) scroll: usize,
    /// Number of rows that fit on the screen.
    pub(super) page: usize,
    /// Message about the last key.
    pub(super) said: String,
}

impl App {
    /// Returns the screen of a recording (0), or of this number of watched processes.
    pub fn new(live: usize) -> App {
        App {
            view: View::Functions,
            pane: Pane::Table,
            sort: Some(0),
            filter: String::new(),
            typing: false,
            paused: false,
            live,
            plain: std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            short: None,
            chosen: None,
            places: Default::default(),
            around: None,
            stretch: None,
            at: None,
            scroll: 0,
            page: 1,
            said: String::new(),
        }
    }

    /// Returns the screen with shortened names, if `short`.
    pub fn shortening(self, short: bool) -> App {
        App { short: short.then(|| (ShortNames::default(), None)), ..self }
    }

    /// Collects the names of all functions, so that shortened names are unique.
    fn see_names<S: Source + Sync>(&mut self, shown: &ScreenData<'_, S>) {
        let Some((short, seen)) = &mut self.short else { return };
        if seen.replace(shown.number) == Some(shown.number) {
            return;
        }
        shown.explorer.functions.iter().for_each(|function| short.add(&function.name));
        let rows = shown.live.iter().flat_map(|live| &live.interval.rows);
        rows.for_each(|row| short.add(&row.function));
    }

    /// Returns a function's name as it is shown.
    pub(super) fn name(&self, full: &str) -> String {
        let name = self.short.as_ref().map_or_else(|| full.to_owned(), |(short, _)| short.of(full));
        one_line(&name).into_owned()
    }

    /// Whether the display is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the columns of the table.
    pub(super) fn columns(&self) -> &'static [Column] {
        if self.live > 0 { &LIVE } else { &FILE }
    }

    /// Draws the screen.
    pub fn draw<S: Source + Sync>(&mut self, frame: &mut Frame<'_>, shown: &ScreenData<'_, S>) {
        self.see_names(shown);
        let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
        let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Text::from(format!(" {}", shown.head)).style(reversed), top);
        match self.view {
            View::Functions => self.draw_functions(frame, middle, shown),
            View::Timeline => self.draw_timeline(frame, middle, shown),
        }
        frame.render_widget(Text::from(self.help()), bottom);
    }

    fn help(&self) -> String {
        if self.typing {
            return format!(" /{}_   Enter: keep  Esc: show all", self.filter);
        }
        let paused = if self.paused { "PAUSED  " } else { "" };
        let filter = if self.filter.is_empty() { String::new() } else { format!("/{}  ", self.filter) };
        let live = match self.live {
            0 => "",
            1 => "space: on/off  p: pause  ",
            _ => "space: on/off  p: pause  [ ]: process  ",
        };
        let said = if self.said.is_empty() { String::new() } else { format!("{}   ", self.said) };
        match self.view {
            View::Functions => format!(
                " {said}{paused}{filter}q: quit  2: timeline  up/down: select  tab: callers, callees  enter: go there  s: sort  /: filter  {live}"
            ),
            View::Timeline => format!(
                " {said}{paused}q: quit  1: functions  left/right: pan  +/-: zoom  0: all  up/down: scroll  n/N: next, previous call"
            ),
        }
    }

    /// Handles a key.
    pub fn key<S: Source + Sync>(&mut self, key: KeyEvent, shown: &ScreenData<'_, S>) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyEffect::Quit } else { KeyEffect::Nothing };
        }
        if self.typing {
            self.type_filter(key.code, shown);
            return KeyEffect::Nothing;
        }
        self.said.clear();
        match key.code {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char('[') => return KeyEffect::Turn(true),
            KeyCode::Char(']') => return KeyEffect::Turn(false),
            KeyCode::Char('1') => self.view = View::Functions,
            KeyCode::Char('2') => self.view = View::Timeline,
            KeyCode::Char('p') if self.live > 0 => self.paused = !self.paused,
            KeyCode::Char('/') => (self.view, self.pane, self.typing) = (View::Functions, Pane::Table, true),
            KeyCode::Char('n') | KeyCode::Char('N') => {
                self.view = View::Timeline;
                self.jump(key.code == KeyCode::Char('n'), shown);
            }
            _ if self.view == View::Functions => return self.key_in_functions(key.code, shown),
            _ => self.key_in_timeline(key.code, shown),
        }
        KeyEffect::Nothing
    }

    fn key_in_functions<S: Source + Sync>(&mut self, key: KeyCode, shown: &ScreenData<'_, S>) -> KeyEffect {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, shown),
            KeyCode::Down | KeyCode::Char('j') => self.step(1, shown),
            KeyCode::PageUp => self.step(-(self.page as isize), shown),
            KeyCode::PageDown => self.step(self.page as isize, shown),
            KeyCode::Home => self.step(isize::MIN, shown),
            KeyCode::End => self.step(isize::MAX, shown),
            KeyCode::Tab | KeyCode::BackTab => {
                let panes = [Pane::Table, Pane::Callers, Pane::Callees];
                let by = if key == KeyCode::Tab { 1 } else { 2 };
                self.pane = panes[(self.pane as usize + by) % panes.len()];
            }
            KeyCode::Enter => self.go_there(),
            KeyCode::Esc => {
                (self.chosen, self.pane) = (None, Pane::Table);
                self.filter.clear();
            }
            KeyCode::Char('s') => {
                let last = self.columns().len() - 1;
                self.sort = match self.sort {
                    Some(at) if at < last => Some(at + 1),
                    Some(_) => None,
                    None => Some(0),
                };
            }
            KeyCode::Char('f') => self.sort = None,
            KeyCode::Char(letter @ ('c' | 't' | 'a' | 'm')) => {
                self.sort = self.column_of(letter).or(self.sort)
            }
            KeyCode::Char(' ') => return self.toggle(shown),
            _ => {}
        }
        KeyEffect::Nothing
    }

    /// Returns the column by which a letter sorts, as in `top`: its title begins with that letter.
    fn column_of(&self, letter: char) -> Option<usize> {
        let title = letter.to_ascii_uppercase();
        self.columns().iter().position(|column| column.title.starts_with(title))
    }

    fn key_in_timeline<S: Source + Sync>(&mut self, key: KeyCode, shown: &ScreenData<'_, S>) {
        match key {
            KeyCode::Left | KeyCode::Char('a' | 'h') => self.pan(-0.2, shown),
            KeyCode::Right | KeyCode::Char('d' | 'l') => self.pan(0.2, shown),
            KeyCode::Char('+' | '=' | 'w') => self.zoom(0.5, shown),
            KeyCode::Char('-' | 's') => self.zoom(2.0, shown),
            KeyCode::Char('0') => (self.stretch, self.at) = (None, None),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::PageDown => self.scroll += self.page,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
    }

    fn type_filter<S: Source + Sync>(&mut self, key: KeyCode, shown: &ScreenData<'_, S>) {
        search::type_key(&mut self.filter, &mut self.typing, key);
        // The first match is chosen.
        if !self.filter.is_empty() {
            let lines = self.lines(shown);
            if !lines.iter().any(|line| Some(line.site) == self.chosen) {
                self.choose(lines.first());
            }
        }
    }

    fn choose(&mut self, line: Option<&Line>) {
        self.choose_site(line.map(|line| line.site));
    }

    fn choose_site(&mut self, site: Option<SiteId>) {
        (self.chosen, self.at) = (site, None);
    }

    /// Moves the selection in the current pane; the first step down selects the first row.
    fn step<S: Source + Sync>(&mut self, by: isize, shown: &ScreenData<'_, S>) {
        let lines = if self.pane == Pane::Table { self.lines(shown) } else { Vec::new() };
        let rows = if self.pane == Pane::Table { lines.len() } else { self.relatives(self.pane).len() };
        let Some(last) = rows.checked_sub(1) else { return };
        let place = &mut self.places[self.pane as usize];
        let at = match place.selected() {
            Some(at) => at.saturating_add_signed(by).min(last),
            None if by == isize::MAX => last,
            None => 0,
        };
        place.select(Some(at));
        if self.pane == Pane::Table {
            self.choose(lines.get(at));
            self.places[Pane::Callers as usize].select(None);
            self.places[Pane::Callees as usize].select(None);
        }
    }

    /// Chooses the caller or callee that is selected.
    fn go_there(&mut self) {
        if self.pane == Pane::Table {
            return;
        }
        let at = self.places[self.pane as usize].selected();
        let site = at.and_then(|at| self.relatives(self.pane).get(at)).map(|relative| relative.site);
        if site.is_some() {
            self.choose_site(site);
            (self.pane, self.filter) = (Pane::Table, String::new());
            self.places[Pane::Callers as usize].select(None);
            self.places[Pane::Callees as usize].select(None);
        }
    }

    fn toggle<S>(&self, shown: &ScreenData<'_, S>) -> KeyEffect {
        let (Some(live), Some(chosen)) = (&shown.live, self.chosen) else { return KeyEffect::Nothing };
        let row = live.interval.rows.iter().find(|row| row.sites.contains(&chosen));
        row.map_or(KeyEffect::Nothing, |row| KeyEffect::Toggle(row.clone()))
    }

    /// Looks up the chosen function's callers and callees, if they are not known yet.
    pub(super) fn find_around<S: Source + Sync>(&mut self, shown: &ScreenData<'_, S>) {
        let Some(site) = self.chosen else {
            self.around = None;
            return;
        };
        if self.around.as_ref().is_none_or(|(of, number, _)| (*of, *number) != (site, shown.number)) {
            let function = shown.explorer.function(site);
            let around = function.map(|function| shown.explorer.around(function)).unwrap_or_default();
            self.around = Some((site, shown.number, around));
        }
    }

    /// Returns the list of a pane beside the table.
    pub(super) fn relatives(&self, pane: Pane) -> &[Relative] {
        match (&self.around, pane) {
            (Some((.., around)), Pane::Callers) => &around.callers,
            (Some((.., around)), Pane::Callees) => &around.callees,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::switches::Switches;
    use crate::tui::screen_data::Live;
    use calltap_analysis::MemorySource;
    use calltap_analysis::explore::Explorer;
    use calltap_analysis::intervals::{FunctionCalls, Interval};
    use calltap_analysis::timeline::Limits;
    use calltap_trace::{Batch, Event, EventKind, Site, Thread, ThreadId};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// Returns an explorer of calls: `main` calls `parse` once, and `send` three times, of which
    /// the last call is the longest.
    fn explorer() -> Explorer<MemorySource> {
        let mut source = MemorySource { ns_per_tick: 1, ..MemorySource::default() };
        source.meta.threads.push(Thread::new(ThreadId(0), 0, 7, "app".into()));
        for (id, name) in (0..).zip(["main", "parse", "send"]) {
            let (name, kind) = (name.to_owned(), "nop".to_owned());
            let (id, address) = (SiteId(id), 16 * u64::from(id));
            source.meta.sites.push(Site {
                id,
                module: 0,
                address,
                size: 16,
                name,
                kind,
                tracers: 1,
                aliases: Vec::new(),
                captured: None,
            });
        }
        let call =
            |site, start, end| [(start, site, EventKind::Entry), (end, site, EventKind::Exit { pops: 1 })];
        let inner =
            [call(1, 1_000, 2_000), call(2, 3_000, 3_100), call(2, 4_000, 4_200), call(2, 5_000, 9_000)];
        let [first, last] = call(0, 0, 10_000);
        let all = [first].into_iter().chain(inner.into_iter().flatten()).chain([last]);
        let event = |(ticks, site, kind)| Event { ticks, site: SiteId(site), kind };
        source.batches.push(Batch { events: all.map(event).collect(), ..Batch::default() });
        Explorer::new(source, Limits::default(), None).unwrap()
    }

    /// Returns the screen's lines after some keys, and the effect of the last key.
    fn after(keys: &[KeyCode], live: Option<Live<'_>>) -> (Vec<String>, KeyEffect) {
        let explorer = explorer();
        let mut app = App::new(usize::from(live.is_some()));
        let shown = ScreenData { explorer: &explorer, number: 0, head: "app.data: 10 events", live };
        let mut terminal = Terminal::new(TestBackend::new(150, 12)).unwrap();
        let mut act = KeyEffect::Nothing;
        terminal.draw(|frame| app.draw(frame, &shown)).unwrap();
        for key in keys {
            act = app.key(KeyEvent::from(*key), &shown);
            terminal.draw(|frame| app.draw(frame, &shown)).unwrap();
        }
        let text = terminal.backend().to_string();
        (text.lines().map(|line| line.trim_matches('"').to_owned()).collect(), act)
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    const DOWN: KeyCode = KeyCode::Down;

    #[test]
    fn functions_are_shown_with_callers_and_callees() {
        let (lines, _) = after(&[DOWN], None);
        assert_eq!(lines[0].trim_end(), " app.data: 10 events");
        assert!(lines[1].contains("functions: 3") && lines[1].contains("callers of main"), "{lines:#?}");
        assert!(words(&lines[2]).starts_with("│ TOTAL SELF CALLS AVG P99 FUNCTION"), "{lines:#?}");
        assert!(words(&lines[3]).contains("10.000 us 4.700 us 1 10.000 us"), "{lines:#?}");
        let callees: Vec<String> =
            lines[6..].iter().map(|line| words(line.rsplit('│').next().unwrap())).collect();
        assert!(callees.contains(&"4.300 us 3 send".to_owned()), "{callees:?}");
        assert!(callees.contains(&"1.000 us 1 parse".to_owned()), "{callees:?}");
    }

    #[test]
    fn enter_selects_caller_and_search_selects_match() {
        let (lines, _) = after(&[DOWN, DOWN, KeyCode::Tab, DOWN, KeyCode::Enter], None);
        assert!(lines[1].contains("callers of main"), "from send to its caller: {lines:#?}");
        let search = ['/', 'P', 'a', 'r'].map(KeyCode::Char);
        let (lines, _) = after(&search, None);
        assert!(lines[1].contains("functions: 1") && lines[1].contains("callers of parse"), "{lines:#?}");
        assert!(lines[11].contains("/Par_"), "{lines:#?}");
        let (lines, act) = after(&[search.as_slice(), &[KeyCode::Esc, KeyCode::Char('q')]].concat(), None);
        assert!(lines[1].contains("functions: 3") && act == KeyEffect::Quit, "{lines:#?}");
    }

    #[test]
    fn the_table_is_sorted_by_each_column_and_by_name() {
        let first = |times: usize| {
            let (lines, _) = after(&vec![KeyCode::Char('s'); times], None);
            let names = ["main", "parse", "send"];
            names.into_iter().find(|name| lines[3].contains(name)).unwrap_or("nothing")
        };
        assert_eq!([0, 1, 2, 6].map(first), ["main", "main", "send", "main"]);
        let of_letter = |letter: char| {
            let (lines, _) = after(&[KeyCode::Char(letter)], None);
            ["main", "parse", "send"].into_iter().find(|name| lines[3].contains(name)).unwrap_or("nothing")
        };
        assert_eq!(['c', 't', 'm', 'f'].map(of_letter), ["send", "main", "main", "main"]);
    }

    #[test]
    fn the_timeline_has_a_row_for_each_depth_and_can_be_zoomed() {
        let (lines, _) = after(&[KeyCode::Char('2')], None);
        assert!(lines[1].contains("0 ns .. 10.000 us") && lines[2].starts_with("app-7"), "{lines:#?}");
        assert!(lines[3].starts_with("main"), "{lines:#?}");
        let (parse, send) = (lines[4].find("parse").unwrap(), lines[4].find("send").unwrap());
        // Each of the two calls takes a tenth of 150 columns.
        assert!((14..=16).contains(&parse) && (74..=76).contains(&send), "{lines:#?}");
        let (lines, _) = after(&['2', '+', 'd'].map(KeyCode::Char), None);
        assert!(lines[1].contains("3.500 us .. 8.500 us"), "{lines:#?}");
        let (lines, _) = after(&['2', '+', 'd', '0', '-', 'a'].map(KeyCode::Char), None);
        assert!(lines[1].contains("0 ns .. 10.000 us"), "never beyond the ends: {lines:#?}");
    }

    #[test]
    fn the_calls_of_a_function_are_gone_to_one_by_one() {
        let n = KeyCode::Char('n');
        let send = [DOWN, DOWN];
        let said = |keys: &[KeyCode]| after(&[&send, keys].concat(), None).0[11].clone();
        assert!(said(&[n]).contains("send: 100 ns at 3.000 us in app-7"), "{}", said(&[n]));
        assert!(said(&[n, n, n]).contains("send: 4.000 us at 5.000 us"));
        assert!(said(&[n, n, n, n]).contains("no further call of send"));
        assert!(said(&[n, n, KeyCode::Char('N')]).contains("send: 100 ns"));
        let (lines, _) = after(&[n], None);
        assert!(lines[11].contains("choose a function first"), "{lines:#?}");
    }

    #[test]
    fn a_function_of_a_process_can_be_switched() {
        let row = |site: u32, function: &str, calls| FunctionCalls {
            function: function.into(),
            module: "app".into(),
            sites: vec![SiteId(site)],
            calls,
            ended: calls,
            avg_ns: 10,
            max_ns: 20,
            total_ns: 10 * calls,
            ..FunctionCalls::default()
        };
        let rows = vec![row(1, "parse", 5), row(2, "send", 50)];
        let interval = Interval { length_ns: 1_000_000_000, events: 110, lost: 0, rows };
        let switches = Switches::new(7);
        switches.toggle(&interval.rows[0]);
        let (lines, act) =
            after(&[DOWN, KeyCode::Char(' ')], Some(Live { interval: &interval, switches: &switches }));
        let KeyEffect::Toggle(row) = act else { panic!("{act:?}") };
        assert_eq!(row.function, "send", "most calls first");
        assert!(words(&lines[3]).contains("50.0 10 ns 4.000 us 20 ns on send"), "{lines:#?}");
        assert!(words(&lines[4]).contains("off(user) parse"), "{lines:#?}");
    }

    #[test]
    fn no_screen_is_too_small() {
        let explorer = explorer();
        let shown = ScreenData { explorer: &explorer, number: 0, head: "", live: None };
        for (width, height) in [(0, 0), (1, 1), (5, 3), (30, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut app = App::new(0);
            for key in [DOWN, KeyCode::Tab, DOWN, KeyCode::Char('2'), KeyCode::Char('n'), KeyCode::PageDown] {
                app.key(KeyEvent::from(key), &shown);
                terminal.draw(|frame| app.draw(frame, &shown)).unwrap();
            }
        }
    }
}
