//! The states of a thread, column by column: running, runnable, blocked.

use calltap_analysis::explore::Explorer;
use calltap_analysis::units::duration;
use calltap_analysis::{Off, Source};
use calltap_trace::{RunState, ThreadId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Returns for each column the state in which the thread spent most of its time; `None` if states
/// were not recorded.
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
        predominant_state(to - from, &band.off(from, to))
    };
    Some((0..width).map(state).collect())
}

/// Returns the state that took most of a time.
fn predominant_state(total: u64, off: &Off) -> RunState {
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

/// Draws the states as a line of their own.
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

/// Hatches calls where their thread did not run, beside their names.
pub(super) fn hatch(buffer: &mut Buffer, line: Rect, columns: &[RunState]) {
    for (x, state) in (line.x..line.right()).zip(columns) {
        let Some(cell) = buffer.cell_mut((x, line.y)) else { continue };
        let is_call = cell.bg != Color::Reset || cell.modifier.contains(Modifier::REVERSED);
        if is_call && cell.symbol() == " " && !matches!(state, RunState::Running | RunState::Unknown) {
            cell.set_symbol(symbol(*state));
        }
    }
}

/// Returns a text such as `, blocked 16.495 ms`: the times of a call in which its thread did not
/// run.
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
