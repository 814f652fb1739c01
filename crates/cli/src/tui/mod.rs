//! `calltap tui`: explores a recording or a running process on a terminal.
//!
//! A recording is read once, before the screen appears. A process is watched by a thread of its
//! own, and its newest events are read again for each drawing. The main thread draws, waits for a
//! key, and handles it.

mod app;
mod calls;
mod rows;
mod screen_data;
mod states;
mod table;

use crate::command_line::arguments::Arguments;
use crate::command_line::table::LOOKING;
use crate::input;
use crate::observed::ObservedProcess;
use crate::terminal::key_effect::KeyEffect;
use crate::terminal::output;
use crate::terminal::progress::Progress;
use crate::terminal::screen::Screen;
use crate::top::{self, screen, several, several::Watching, view::heading};
use anyhow::{Result, bail};
use app::App;
use calltap_analysis::explore::Explorer;
use calltap_analysis::timeline::Limits;
use calltap_analysis::units::{counted, one_line};
use calltap_analysis::{Source, left_out};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyEventKind};
use screen_data::{Live, ScreenData};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Interval between two looks for new intervals; keys are handled at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Shows the screen until the user ends it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pids = crate::command_line::processes::all(arguments)?;
    let path = arguments.shown();
    if !pids.is_empty() && path.is_some() {
        bail!("a trace and '-p PID' exclude each other: name one of them");
    }
    if !screen::is_there() {
        bail!("tui needs a terminal: without one use 'calltap report', 'calltap top' or 'calltap view'");
    }
    match &pids[..] {
        [] => {
            let path = path.unwrap_or_else(|| "calltap.data".into());
            arguments.refuse_with_trace(LOOKING, &path)?;
            file(path, output::is_short(arguments))
        }
        pids => all_of(pids, arguments),
    }
}

fn file(path: PathBuf, short: bool) -> Result<()> {
    let reader = input::open(&path)?;
    let mut progress = Progress::new(reader.event_count());
    let explorer = Explorer::new(reader, Limits::default(), Some(&mut |done| progress.set(done)))?;
    progress.finish();
    let meta = explorer.source.meta();
    let lost: u64 = meta.loss.iter().map(|loss| loss.lost_entries + loss.lost_exits).sum();
    let lost = if lost > 0 { format!(", LOST {}", counted(lost, "event")) } else { String::new() };
    let left_out: String =
        left_out::sentences(&explorer.source).iter().map(|sentence| format!("; {sentence}")).collect();
    let head = format!(
        "{}: {}, {}{lost}{left_out}",
        one_line(&path.display().to_string()),
        counted(explorer.totals.events, "event"),
        counted(explorer.totals.threads, "thread"),
    );
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, over.clone())?;
    }
    on_screen(|terminal, keys| {
        let mut app = App::new(0).shortening(short);
        while !over.load(Acquire) {
            let shown = ScreenData { explorer: &explorer, number: 0, head: &head, live: None };
            if let KeyEffect::Quit = turn(terminal, keys, &mut app, &shown)? {
                break;
            }
        }
        Ok(())
    })
}

fn all_of(pids: &[u32], arguments: &Arguments) -> Result<()> {
    let interval = top::interval(arguments)?;
    let (all, short) = (Watching::new(pids, arguments)?, output::is_short(arguments));
    let seen: Vec<ObservedProcess> = pids.iter().map(|pid| ObservedProcess::new(*pid)).collect();
    let (outcomes, shown) = thread::scope(|scope| {
        let watching: Vec<_> = all
            .iter()
            .zip(&seen)
            .map(|(one, seen)| scope.spawn(move || seen.watch(&one.options, interval)))
            .collect();
        // The processes are detached from whatever happens here, even a panic.
        let leave: Vec<_> = seen.iter().map(|seen| seen.switches.end_on_drop()).collect();
        let has_begun = |at: usize| seen[at].intervals() > 0;
        while (0..seen.len()).any(|at| !has_begun(at) && !watching[at].is_finished()) {
            thread::sleep(LOOK_INTERVAL);
        }
        let begun: Vec<usize> = (0..seen.len()).filter(|at| has_begun(*at)).collect();
        let is_over = || begun.iter().all(|at| watching[*at].is_finished());
        let begun: Vec<&ObservedProcess> = begun.iter().map(|at| &seen[*at]).collect();
        let shown = match &begun[..] {
            [] => Ok(()),
            begun => on_screen(|terminal, keys| show_process(begun, terminal, keys, short, &is_over)),
        };
        drop(leave);
        (watching.into_iter().map(|thread| thread.join()).collect(), shown)
    });
    let (_, result) = several::tell(&all, outcomes);
    shown.and(result)
}

/// Shows one of the processes at a time.
fn show_process(
    all: &[&ObservedProcess],
    terminal: &mut DefaultTerminal,
    keys: &Receiver<Event>,
    short: bool,
    over: &dyn Fn() -> bool,
) -> Result<()> {
    let is_several = all.len() > 1;
    let mut apps: Vec<App> = all.iter().map(|_| App::new(all.len()).shortening(short)).collect();
    let mut at = 0;
    while !over() {
        let (seen, app) = (all[at], &mut apps[at]);
        let explorer = seen.explorer(!app.is_paused())?;
        let interval = seen.interval().unwrap_or_default();
        let mut head = heading(&seen.switches.status(), &interval);
        if is_several {
            head = format!("{} of {}: {head}", at + 1, all.len());
        }
        let live = Some(Live { interval: &interval, switches: &seen.switches });
        let shown = ScreenData { explorer: &explorer, number: seen.intervals(), head: &head, live };
        match turn(terminal, keys, app, &shown)? {
            KeyEffect::Quit => break,
            KeyEffect::Toggle(row) => seen.switches.toggle(&row),
            KeyEffect::Turn(back) => at = (at + if back { all.len() - 1 } else { 1 }) % all.len(),
            KeyEffect::Nothing => {}
        }
    }
    Ok(())
}

/// Draws the screen, waits briefly for a key, and handles it.
fn turn<S: Source + Sync>(
    terminal: &mut DefaultTerminal,
    keys: &Receiver<Event>,
    app: &mut App,
    shown: &ScreenData<'_, S>,
) -> Result<KeyEffect> {
    terminal.draw(|frame| app.draw(frame, shown))?;
    match keys.recv_timeout(LOOK_INTERVAL) {
        Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Ok(app.key(key, shown)),
        Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(KeyEffect::Nothing),
        Err(RecvTimeoutError::Disconnected) => bail!("cannot read keys from the terminal: it was closed"),
    }
}

fn on_screen(act: impl FnOnce(&mut DefaultTerminal, &Receiver<Event>) -> Result<()>) -> Result<()> {
    let mut screen = Screen::enter()?;
    act(&mut screen, &screen::keys())
}
