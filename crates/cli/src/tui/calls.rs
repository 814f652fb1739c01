//! The timeline: a row for every thread and depth, a column for a stretch of time.

use super::app::App;
use super::screen_data::ScreenData;
use super::states;
use calltap_analysis::Source;
use calltap_analysis::timeline::Block;
use calltap_analysis::units::{count, duration, one_line};
use calltap_analysis::{Names, explore::Explorer};
use calltap_trace::{SiteId, ThreadId};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Background colours of functions, from the 256 colours: dark letters are legible on them.
const COLOURS: [u8; 12] = [110, 114, 144, 150, 152, 174, 179, 180, 182, 187, 216, 223];
/// Number of levels of a thread that are shown.
const LEVELS: usize = 24;
/// Shortest stretch of time, nanoseconds.
const MIN_SPAN_NS: u64 = 100;

/// A row of the timeline: a thread's heading, its states, or one level of its calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Head(ThreadId),
    /// The states of a thread.
    States(ThreadId),
    Level(ThreadId, usize),
}

fn parts<S: Source>(explorer: &Explorer<S>) -> Vec<Part> {
    let levels = |thread| {
        let (depth, _) = explorer.timeline.depth(thread);
        (0..depth.min(LEVELS)).map(move |level| Part::Level(thread, level))
    };
    explorer
        .timeline
        .threads()
        .flat_map(|thread| {
            let band = explorer.source.has_switches().then_some(Part::States(thread));
            [Part::Head(thread)].into_iter().chain(band).chain(levels(thread))
        })
        .collect()
}

impl App {
    /// Returns the part of the time that is shown.
    fn stretch<S: Source + Sync>(&self, shown: &ScreenData<'_, S>) -> (u64, u64) {
        self.stretch.unwrap_or((0, shown.explorer.timeline.end().max(MIN_SPAN_NS)))
    }

    pub(super) fn draw_timeline<S: Source + Sync>(
        &mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        shown: &ScreenData<'_, S>,
    ) {
        let (from, to) = self.stretch(shown);
        let parts = parts(shown.explorer);
        self.page = usize::from(area.height.saturating_sub(2)).max(1);
        self.scroll = self.scroll.min(parts.len().saturating_sub(self.page));
        let buffer = frame.buffer_mut();
        let span = format!(" {} .. {} ", duration(from), duration(to));
        buffer.set_stringn(area.x, area.y, span, area.width.into(), Style::new().add_modifier(Modifier::DIM));
        let names = Names::new(shown.explorer.source.meta(), false);
        let resolution = (to - from) / u64::from(area.width.max(1));
        let (mut window, mut ran) = (None, None);
        for (row, part) in (1..area.height).zip(parts.iter().skip(self.scroll)) {
            let line = Rect { y: area.y + row, height: 1, ..area };
            match *part {
                Part::Head(thread) => {
                    let text = one_line(&names.task(thread)).into_owned();
                    let bold = Style::new().add_modifier(Modifier::BOLD);
                    buffer.set_stringn(line.x, line.y, text, line.width.into(), bold);
                }
                Part::States(thread) => {
                    if let Some(columns) = states::columns(shown.explorer, thread, (from, to), line.width) {
                        states::draw(buffer, line, &columns, self.plain);
                    }
                }
                Part::Level(thread, level) => {
                    if window.as_ref().is_none_or(|(of, _)| *of != thread) {
                        let blocks = shown.explorer.timeline.window(
                            &shown.explorer.source,
                            thread,
                            (from, to),
                            resolution,
                        );
                        ran = states::columns(shown.explorer, thread, (from, to), line.width);
                        window = Some((thread, blocks));
                    }
                    let tracks = window.as_ref().map(|(_, window)| &window.tracks);
                    let track = tracks.and_then(|tracks| tracks.get(level)).map_or(&[][..], Vec::as_slice);
                    self.draw_blocks(buffer, line, track, (from, to), shown.explorer);
                    states::hatch(buffer, line, ran.as_deref().unwrap_or_default());
                }
            }
        }
    }

    fn draw_blocks<S: Source>(
        &self,
        buffer: &mut Buffer,
        line: Rect,
        track: &[Block],
        (from, to): (u64, u64),
        explorer: &Explorer<S>,
    ) {
        let column = |at: u64| {
            let share = at.saturating_sub(from).min(to - from) as f64 / (to - from).max(1) as f64;
            (share * f64::from(line.width)) as u16
        };
        for (at, block) in track.iter().enumerate() {
            let first = column(block.start).min(line.width.saturating_sub(1));
            let wide = column(block.end).saturating_sub(first).max(1).min(line.width - first);
            let site = explorer.known(block.site);
            let is_chosen = self.chosen == Some(site);
            let style = self.colour(site, at, is_chosen);
            buffer.set_style(Rect { x: line.x + first, width: wide, ..line }, style);
            let name = match block.calls {
                1 => self.name(explorer.function(site).map_or("[unknown]", |function| &function.name)),
                calls => format!("{}×", count(calls.into())),
            };
            // The end of a cut call is not known.
            let name = if block.cut > 0 { format!("~{name}") } else { name };
            // A free column separates two names.
            let name = if wide > 2 { name } else { " ".to_owned() };
            buffer.set_stringn(
                line.x + first,
                line.y,
                name,
                usize::from(wide.saturating_sub(1)).max(1),
                style,
            );
        }
    }

    fn colour(&self, site: SiteId, at: usize, is_chosen: bool) -> Style {
        if is_chosen {
            return Style::new().fg(Color::Black).bg(Color::Cyan).add_modifier(Modifier::BOLD);
        }
        if self.plain {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            return if at.is_multiple_of(2) { style } else { style.add_modifier(Modifier::DIM) };
        }
        let hue = site.0.wrapping_mul(2_654_435_769) >> 16;
        Style::new().fg(Color::Black).bg(Color::Indexed(COLOURS[hue as usize % COLOURS.len()]))
    }

    /// Scales the shown part of the time by a factor, around its middle.
    pub(super) fn zoom<S: Source + Sync>(&mut self, factor: f64, shown: &ScreenData<'_, S>) {
        let (from, to) = self.stretch(shown);
        let (middle, length) = (from + (to - from) / 2, ((to - from) as f64 * factor) as u64);
        self.show_stretch(middle.saturating_sub(length / 2), length, shown);
    }

    /// Moves the shown part of the time by a share of its length.
    pub(super) fn pan<S: Source + Sync>(&mut self, share: f64, shown: &ScreenData<'_, S>) {
        let (from, to) = self.stretch(shown);
        let by = ((to - from) as f64 * share) as i64;
        self.show_stretch(from.saturating_add_signed(by), to - from, shown);
    }

    fn show_stretch<S: Source + Sync>(&mut self, from: u64, length: u64, shown: &ScreenData<'_, S>) {
        let end = shown.explorer.timeline.end().max(MIN_SPAN_NS);
        let length = length.clamp(MIN_SPAN_NS, end);
        let from = from.min(end - length);
        self.stretch = Some((from, from + length));
    }

    /// Moves to the next or previous call of the chosen function.
    pub(super) fn jump<S: Source + Sync>(&mut self, forwards: bool, shown: &ScreenData<'_, S>) {
        let explorer = shown.explorer;
        let Some(function) = self.chosen.and_then(|site| explorer.function(site)) else {
            self.said = "choose a function first (1)".to_owned();
            return;
        };
        let Ok(calls) = explorer.only(function) else { return };
        let moment = self.at.or_else(|| self.stretch.map(|(from, _)| from));
        let found = explorer.next_call(&calls, moment, forwards);
        let Some((thread, start, end)) = found else {
            self.said = format!(
                "no {} call of {}",
                if forwards { "further" } else { "earlier" },
                self.name(&function.name)
            );
            return;
        };
        let names = Names::new(explorer.source.meta(), false);
        self.said = format!(
            "{}: {}{} at {} in {}",
            self.name(&function.name),
            duration(end - start),
            states::said(explorer, thread, start, end),
            duration(start),
            one_line(&names.task(thread))
        );
        self.at = Some(start);
        let (from, to) = self.stretch(shown);
        let (span, length) = (to - from, (end - start).max(MIN_SPAN_NS));
        let span = if span > length * 40 || span < length { length.saturating_mul(3) } else { span };
        self.show_stretch((start + (end - start) / 2).saturating_sub(span / 2), span, shown);
        let level = explorer.depth_of(thread, function, start).min(LEVELS - 1);
        let row = parts(explorer).iter().position(|part| *part == Part::Level(thread, level)).unwrap_or(0);
        if row < self.scroll || row >= self.scroll + self.page {
            self.scroll = row.saturating_sub(self.page / 2);
        }
    }
}
