//! When a thread ran, column by column.

use calltap_analysis::explore::Explorer;
use calltap_analysis::units::duration;
use calltap_analysis::{Off, Source};
use calltap_trace::{RunState, ThreadId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// What a thread did most of the time of each column; none where that was not recorded.
pub(super) fn columns<S: Source + Sync>(
    explorer: &Explorer<S>,
    thread: ThreadId,
    (from, to): (u64, u64),
    width: u16,
) -> Option<Vec<RunState>> {
    let band = explorer.timeline.band(&explorer.source, thread).ok()??;
    let edge = |column: u16| from + ((to - from) as f64 * f64::from(column) / f64::from(width.max(1))) as u64;
    let state = |column| {
        let (from, to) = (edge(column), edge(column + 1));
        most(to - from, &band.off(from, to))
    };
    Some((0..width).map(state).collect())
}

/// What took most of a time.
fn most(total: u64, off: &Off) -> RunState {
    let ran = off.ran(total);
    let all = [
        (ran, RunState::Running),
        (off.runnable, RunState::Runnable),
        (off.blocked, RunState::Blocked),
        (off.unknown, RunState::Unknown),
        (off.tracing, RunState::Tracing),
    ];
    all.into_iter().max_by_key(|(ns, _)| *ns).map_or(RunState::Unknown, |(_, state)| state)
}

fn symbol(state: RunState) -> &'static str {
    match state {
        RunState::Running => "▂",
        RunState::Runnable => "▒",
        RunState::Blocked => "░",
        RunState::Unknown => "?",
        RunState::Tracing => "t",
    }
}

/// A line of its own.
pub(super) fn draw(buffer: &mut Buffer, line: Rect, columns: &[RunState], plain: bool) {
    for (x, state) in (line.x..line.right()).zip(columns) {
        let colour = match state {
            RunState::Running => Color::Green,
            RunState::Runnable => Color::Yellow,
            RunState::Blocked => Color::Red,
            RunState::Unknown => Color::DarkGray,
            RunState::Tracing => Color::Blue,
        };
        let style = Style::new().add_modifier(Modifier::DIM);
        let style = if plain { style } else { style.fg(colour) };
        buffer.set_string(x, line.y, symbol(*state), style);
    }
}

/// Hatches the calls of a line where their thread did not run: where their names leave room.
pub(super) fn hatch(buffer: &mut Buffer, line: Rect, columns: &[RunState]) {
    for (x, state) in (line.x..line.right()).zip(columns) {
        let Some(cell) = buffer.cell_mut((x, line.y)) else { continue };
        let is_call = cell.bg != Color::Reset || cell.modifier.contains(Modifier::REVERSED);
        if is_call && cell.symbol() == " " && !matches!(state, RunState::Running | RunState::Unknown) {
            cell.set_symbol(symbol(*state));
        }
    }
}

/// `, blocked 16.495 ms`: what of a call its thread did not run.
pub(super) fn said<S: Source + Sync>(explorer: &Explorer<S>, thread: ThreadId, from: u64, to: u64) -> String {
    let band = explorer.timeline.band(&explorer.source, thread).ok().flatten();
    let off = band.map(|band| band.off(from, to)).unwrap_or_default();
    let parts = [
        ("runnable", off.runnable),
        ("blocked", off.blocked),
        ("held by calltap", off.tracing),
        ("not known whether it ran", off.unknown),
    ];
    let parts = parts.into_iter().filter(|(_, ns)| *ns > 0);
    parts.map(|(name, ns)| format!(", {name} {}", duration(ns))).collect()
}
