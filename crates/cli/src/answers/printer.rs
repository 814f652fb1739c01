//! Prints answers in a thread of its own, so that the collector never waits for a terminal or a
//! pager.

use crate::terminal::screen::AlternateScreen;
use anyhow::{Context, Result};
use ratatui::crossterm::terminal::size;
use ratatui::crossterm::{cursor, queue, terminal};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Number of messages that may wait to be printed. Further lines are left out and counted.
const WAITING: usize = 64;

enum Message {
    Lines(String),
    Screen(String),
}

/// Handle of the printing thread, which starts with the first message.
pub struct Printer {
    /// The output file; standard output if `None`.
    file: Option<Arc<File>>,
    thread: OnceLock<(SyncSender<Message>, JoinHandle<()>)>,
    over: Arc<AtomicBool>,
    left_out: AtomicU64,
}

impl Printer {
    /// Returns a printer that writes to a file, or to standard output.
    pub fn new(path: Option<&Path>) -> Result<Printer> {
        let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        let file = path.map(create).transpose()?.map(Arc::new);
        Ok(Printer { file, thread: OnceLock::new(), over: Arc::default(), left_out: AtomicU64::new(0) })
    }

    /// Prints the last lines, and waits until the queue has room for them.
    pub fn finish(self, lines: String) {
        let (sender, _) = self.thread.get_or_init(|| self.begin());
        let _ = sender.send(Message::Lines(lines));
    }

    /// Prints whole lines; counts them as left out if the queue is full.
    pub fn lines(&self, lines: String) {
        let count = lines.lines().count() as u64;
        if !self.send(Message::Lines(lines)) {
            self.left_out.fetch_add(count, Relaxed);
        }
    }

    /// Replaces the screen's contents by a text.
    pub fn screen(&self, text: String) {
        self.send(Message::Screen(text));
    }

    /// Ends the session: enough was printed.
    pub fn end(&self) {
        self.over.store(true, Release);
    }

    /// Whether enough was printed, or the output's reader has closed it.
    pub fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    fn begin(&self) -> (SyncSender<Message>, JoinHandle<()>) {
        let (sender, messages) = sync_channel(WAITING);
        let (over, file) = (Arc::clone(&self.over), self.file.clone());
        (sender, thread::spawn(move || print(&messages, file.as_deref(), &over)))
    }

    fn send(&self, message: Message) -> bool {
        let (sender, _) = self.thread.get_or_init(|| self.begin());
        match sender.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            // The pipe's reader has closed it.
            Err(TrySendError::Disconnected(_)) => true,
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
        let left_out = *self.left_out.get_mut();
        if left_out > 0 {
            tell!("calltap: {left_out} lines left out: the reader of the output was too slow");
        }
    }
}

fn print(messages: &Receiver<Message>, file: Option<&File>, over: &AtomicBool) {
    let mut screen = None;
    for message in messages {
        let printed = match message {
            Message::Lines(lines) => match file {
                Some(mut file) => file.write_all(lines.as_bytes()),
                None => {
                    let mut out = io::stdout().lock();
                    out.write_all(lines.as_bytes()).and_then(|()| out.flush())
                }
            },
            Message::Screen(text) => draw(&text, &mut screen),
        };
        match printed {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                over.store(true, Release);
                return;
            }
            _ => {}
        }
    }
}

/// Draws as much of a text as fits on the screen.
fn draw(text: &str, screen: &mut Option<AlternateScreen>) -> io::Result<()> {
    if screen.is_none() {
        *screen = Some(AlternateScreen::enter()?);
    }
    let mut out = io::stdout().lock();
    // Some terminals do not report their size.
    let (width, height) = size().ok().filter(|size| size.0 > 0 && size.1 > 0).unwrap_or((80, 24));
    queue!(out, cursor::MoveTo(0, 0), terminal::Clear(terminal::ClearType::All))?;
    for (row, line) in text.lines().take(usize::from(height)).enumerate() {
        let line: String = line.chars().take(usize::from(width)).collect();
        queue!(out, cursor::MoveTo(0, row as u16))?;
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}
