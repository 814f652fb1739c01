//! The browser that opens the page: `BROWSER`, else the desktop's own, by xdg-open.

use crate::command_line::arguments::Arguments;
use calltap_process::launch::as_started;
use std::env;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

/// The command of freedesktop.org that opens an address in the user's browser.
const OPENER: &str = "xdg-open";

/// Returns the command of a browser, if the user is at a terminal of a desktop or has named one.
/// The output of a script, or of a terminal without a screen, is the address alone.
pub fn wanted(arguments: &Arguments) -> Option<String> {
    if arguments.is_set("no-browser") || !io::stdout().is_terminal() {
        return None;
    }
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let has_screen = || variable("DISPLAY").or_else(|| variable("WAYLAND_DISPLAY")).is_some();
    match variable("BROWSER") {
        Some(list) => list.split(':').next().map(str::to_owned),
        None => has_screen().then(|| OPENER.to_owned()),
    }
}

/// Starts a browser. Its address is printed already: a browser that cannot be started needs no
/// message.
pub fn open(browser: &str, address: &str) {
    let mut words = browser.split_whitespace();
    let Some(program) = words.next() else { return };
    let mut command = Command::new(program);
    let mut has_address = false;
    for word in words {
        has_address |= word.contains("%s");
        command.arg(word.replace("%s", address));
    }
    if !has_address {
        command.arg(address);
    }
    // In a process group of its own, so that the Ctrl-C that ends calltap does not end the browser.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    if let Ok(mut browser) = as_started(&mut command).spawn() {
        thread::spawn(move || browser.wait());
    }
}
