//! `cargo xtask picture`: makes the README's picture from a real run.
//!
//! Each command is run; the picture types it and shows its output after the time that it took, or
//! sooner if that was longer than a reader waits. Every frame is a group of text lines that an
//! animation of the SVG shows for its time: no script, no font and no external picture.

use crate::programs::{Build, Origin, Program, Variant, build_all};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Columns and rows of the terminal that is drawn.
const COLUMNS: usize = 100;
const ROWS: usize = 22;
/// Maximum size in bytes: a larger picture makes README pages load slowly.
const MAX_SIZE: usize = 150_000;
/// Seconds for which a full screen is shown.
const READING: f64 = 3.5;
/// Maximum number of seconds for which a command is shown running.
const MAX_WAIT_S: f64 = 1.5;
const KEY: f64 = 0.03;

/// The commands of the picture, as they are typed, with calltap and lua in the path.
const COMMANDS: [&str; 3] = [
    "calltap record -o lua.data -- lua words.lua",
    "calltap report -i lua.data -n 8 -s self --columns total,self,calls,avg,max",
    "calltap replay -i lua.data -n 14",
];

/// A command that was run.
struct Run {
    typed: &'static str,
    printed: Vec<String>,
    took: Duration,
}

/// A screen, shown from its time until that of the next one.
struct Frame {
    start: f64,
    lines: Vec<String>,
}

/// Runs the commands and writes `docs/demo.svg`.
pub fn run() -> Result<()> {
    let calltap = shell::calltap()?;
    let lua = build_all(&[(Program::Lua, Build::gcc(Variant::Nop))], Origin::Crates)?.remove(0);
    let place = tempfile::tempdir().context("a directory to run in")?;
    for (from, name) in
        [(&calltap, "calltap"), (&lua, "lua"), (&shell::root().join("examples/words.lua"), "words.lua")]
    {
        fs::copy(from, place.path().join(name)).with_context(|| from.display().to_string())?;
    }
    let runs = COMMANDS.iter().map(|typed| observe(typed, place.path())).collect::<Result<Vec<_>>>()?;
    let svg = svg(&frames(&runs));
    if svg.len() > MAX_SIZE {
        bail!("the picture has {} bytes: more than {MAX_SIZE}", svg.len());
    }
    let path = shell::root().join("docs/demo.svg");
    fs::write(&path, &svg).with_context(|| path.display().to_string())?;
    println!("{} bytes in docs/demo.svg", svg.len());
    Ok(())
}

/// Runs a command and collects the lines of both of its outputs.
fn observe(typed: &'static str, place: &Path) -> Result<Run> {
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap_or_default());
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {typed}")])
        .current_dir(place)
        .env("PATH", path)
        .env("COLUMNS", COLUMNS.to_string())
        .stdin(Stdio::null())
        .output()
        .with_context(|| typed.to_owned())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{typed}: {}\n{printed}", output.status);
    }
    let line = |line: &str| line.chars().take(COLUMNS).collect::<String>();
    Ok(Run { typed, printed: printed.lines().map(line).collect(), took: start.elapsed() })
}

/// Returns the screens: each command is typed, then its output stands below it. A command whose
/// output does not fit below the last one gets a new screen.
fn frames(runs: &[Run]) -> Vec<Frame> {
    let (mut frames, mut screen, mut time) = (Vec::new(), Vec::new(), 0.0);
    for run in runs {
        if screen.len() + run.printed.len() + 2 > ROWS {
            screen.clear();
        }
        let characters: Vec<char> = run.typed.chars().collect();
        // Three characters per frame make the file smaller, and look as smooth.
        for end in (0..characters.len()).step_by(3).chain([characters.len()]) {
            let typed: String = characters[..end].iter().collect();
            let lines = screen.iter().cloned().chain([format!("$ {typed}\u{2588}")]).collect();
            frames.push(Frame { start: time, lines });
            time += 3.0 * KEY;
        }
        time += run.took.as_secs_f64().min(MAX_WAIT_S);
        screen.push(format!("$ {}", run.typed));
        screen.extend(run.printed.iter().take(ROWS - 2).cloned());
        frames.push(Frame { start: time, lines: screen.clone() });
        time += READING;
    }
    // The end of the last frame is that of the animation.
    frames.push(Frame { start: time, lines: Vec::new() });
    frames
}

/// Returns the animation. A line that stays is drawn once, for as long as it stays.
fn svg(frames: &[Frame]) -> String {
    let (width, height) = (COLUMNS as f64 * 8.2 + 24.0, ROWS as f64 * 18.0 + 20.0);
    let total = frames.last().map_or(0.0, |frame| frame.start);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"calltap records lua, reports its functions and replays calls\">\n<style>text{{font:13px ui-monospace,Menlo,Consolas,monospace;\
         fill:#d8dee9;white-space:pre;visibility:hidden}}.c{{fill:#8fd694}}</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1b1f27\"/>\n"
    );
    for row in 0..ROWS {
        let mut n = 0;
        while n + 1 < frames.len() {
            let Some(line) = frames[n].lines.get(row) else {
                n += 1;
                continue;
            };
            let stays = frames[n..].iter().take_while(|frame| frame.lines.get(row) == Some(line)).count();
            let (start, end) = (frames[n].start, frames[n + stays].start);
            text += &shown(line, row, start / total, end / total, total);
            n += stays;
        }
    }
    text + "</svg>\n"
}

/// Returns one line of text that is visible between two fractions of the whole time.
fn shown(line: &str, row: usize, start: f64, end: f64, total: f64) -> String {
    let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let y = row as f64 * 18.0 + 24.0;
    let class = if line.starts_with("$ ") { " class=\"c\"" } else { "" };
    let (values, times) = match (start > 0.0, end < 1.0) {
        (true, true) => ("hidden;visible;hidden".to_owned(), format!("0;{start:.4};{end:.4}")),
        (true, false) => ("hidden;visible".to_owned(), format!("0;{start:.4}")),
        (false, true) => ("visible;hidden".to_owned(), format!("0;{end:.4}")),
        (false, false) => ("visible".to_owned(), "0".to_owned()),
    };
    format!(
        "<text x=\"12\" y=\"{y}\"{class} xml:space=\"preserve\">{escaped}<animate attributeName=\"visibility\" calcMode=\"discrete\" \
         values=\"{values}\" keyTimes=\"{times}\" dur=\"{total:.2}s\" repeatCount=\"indefinite\"/></text>\n"
    )
}
