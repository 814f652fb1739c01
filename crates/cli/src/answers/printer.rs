//! Prints answers in a thread of its own, so that the collector never waits for a terminal or a
//! pager.

use crate::terminal::screen::AlternateScreen;
use anyhow::{Context, Result};
use ratatui::crossterm::terminal::size;
use ratatui::crossterm::{cursor, queue, terminal};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Bytes of text that may wait to be printed. Further lines are left out and counted.
const WAITING: usize = 64 << 20;

enum Message {
    Lines(String),
    Screen(String),
}

impl Message {
    fn text(&self) -> &str {
        let (Message::Lines(text) | Message::Screen(text)) = self;
        text
    }
}

/// Handle of the printing thread, which starts with the first message.
pub struct Printer {
    /// The output file; standard output if `None`.
    file: Option<Arc<File>>,
    thread: OnceLock<(Sender<Message>, JoinHandle<()>)>,
    over: Arc<AtomicBool>,
    /// Bytes that wait to be printed.
    waiting: Arc<AtomicUsize>,
    left_out: AtomicU64,
}

impl Printer {
    /// Returns a printer that writes to a file, or to standard output.
    pub fn new(path: Option<&Path>) -> Result<Printer> {
        let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        let file = path.map(create).transpose()?.map(Arc::new);
        let (over, waiting) = (Arc::default(), Arc::default());
        Ok(Printer { file, thread: OnceLock::new(), over, waiting, left_out: AtomicU64::new(0) })
    }

    /// Prints the last lines, however many wait.
    pub fn finish(self, lines: String) {
        let (sender, _) = self.thread.get_or_init(|| self.begin());
        self.waiting.fetch_add(lines.len(), Relaxed);
        let _ = sender.send(Message::Lines(lines));
    }

    /// Prints whole lines; counts them as left out if too much text waits.
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

    fn begin(&self) -> (Sender<Message>, JoinHandle<()>) {
        let (sender, messages) = channel();
        let (over, waiting) = (Arc::clone(&self.over), Arc::clone(&self.waiting));
        let file = self.file.clone();
        (sender, thread::spawn(move || print(&messages, file.as_deref(), &over, &waiting)))
    }

    /// Returns whether there is room for the message.
    fn send(&self, message: Message) -> bool {
        let (sender, _) = self.thread.get_or_init(|| self.begin());
        let length = message.text().len();
        let has_room = self.waiting.fetch_add(length, Relaxed) + length <= WAITING;
        if has_room {
            // Fails where the pipe's reader has closed it.
            let _ = sender.send(message);
        } else {
            self.waiting.fetch_sub(length, Relaxed);
        }
        has_room
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

fn print(messages: &Receiver<Message>, file: Option<&File>, over: &AtomicBool, waiting: &AtomicUsize) {
    let mut screen = None;
    for message in messages {
        let length = message.text().len();
        let printed = match &message {
            Message::Lines(lines) => match file {
                Some(mut file) => file.write_all(lines.as_bytes()),
                None => {
                    let mut out = io::stdout().lock();
                    out.write_all(lines.as_bytes()).and_then(|()| out.flush())
                }
            },
            Message::Screen(text) => draw(text, &mut screen),
        };
        waiting.fetch_sub(length, Relaxed);
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
