//! nginx with two workers, and the state of its processes as seen from outside.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Port of the server.
pub const PORT: u16 = 18_081;
/// Path of a small file.
pub const SMALL: &str = "/small.txt";
/// Path of a page that includes another and is compressed.
pub const LARGE: &str = "/page.html";

const CONFIGURATION: &str = "
worker_processes 2;
pid nginx.pid;
error_log error.log;
events { worker_connections 1024; }
http {
    types { text/html html; text/plain txt; }
    access_log off;
    sendfile on;
    keepalive_requests 100000;
    client_body_temp_path temporary; proxy_temp_path temporary; fastcgi_temp_path temporary;
    uwsgi_temp_path temporary; scgi_temp_path temporary;
    server {
        listen 127.0.0.1:PORT reuseport;
        root www;
        location = /page.html { ssi on; gzip on; gzip_min_length 0; gzip_comp_level 5; }
    }
}
";

/// A running server, stopped on drop.
pub struct Server {
    program: PathBuf,
    place: PathBuf,
    main: u32,
}

impl Server {
    /// Starts the server, with its files in `place`.
    pub fn start(program: &Path, place: &Path) -> Result<Server> {
        fs::create_dir_all(place.join("www"))?;
        fs::create_dir_all(place.join("temporary"))?;
        let words: Vec<String> =
            (0..2000_u32).map(|n| format!("<p>{}</p>", n.wrapping_mul(2_654_435_761))).collect();
        for (name, text) in [
            ("nginx.conf", CONFIGURATION.replace("PORT", &PORT.to_string())),
            ("www/small.txt", "a small file\n".repeat(10)),
            ("www/part.html", "<b>part</b>\n".to_owned()),
            ("www/page.html", format!("<!--# include virtual=\"/part.html\" -->{}\n", words.join("\n"))),
        ] {
            super::file(place, name, &text)?;
        }
        let mut server = Server { program: program.to_owned(), place: place.to_owned(), main: 0 };
        shell::status(&mut server.command(&[])).context("nginx: does another one run?")?;
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(50));
            let pid = fs::read_to_string(place.join("nginx.pid")).unwrap_or_default();
            server.main = pid.trim().parse().unwrap_or_default();
            if server.main != 0 && server.workers().is_ok_and(|workers| workers.len() == 2) {
                return Ok(server);
            }
        }
        bail!("nginx does not start: see {}", place.join("error.log").display())
    }

    /// Returns the process ids of the workers.
    pub fn workers(&self) -> Result<Vec<u32>> {
        let text = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.main))?;
        text.split_whitespace().map(|pid| Ok(pid.parse()?)).collect()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-p").arg(&self.place).args(["-e", "error.log", "-c", "nginx.conf"]).args(words);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = shell::output(&mut self.command(&["-s", "quit"]));
    }
}

/// Returns the state of a process that must be the same afterwards.
pub fn state(pid: u32) -> Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kept =
        ["SigBlk:", "SigIgn:", "SigCgt:", "TracerPid:", "Threads:", "CapEff:", "NoNewPrivs:", "Seccomp:"];
    let lines = text.lines().filter(|line| kept.iter().any(|key| line.starts_with(key)));
    Ok(lines.map(str::to_owned).collect())
}

/// Returns the executable mappings that differ from their files.
pub fn changed_text(pid: u32) -> Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let (mut changed, mut compared) = (Vec::new(), 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, flags, offset, _, _, path, ..] = words[..] else { continue };
        if !flags.contains('x') || !path.starts_with('/') || path.contains("/calltap.") {
            continue;
        }
        let (start, end) = range.split_once('-').context("a range")?;
        let hex = |text: &str| u64::from_str_radix(text, 16);
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
        let (mut now, mut then) = (vec![0; (end - start) as usize], vec![0; (end - start) as usize]);
        memory.read_exact_at(&mut now, start)?;
        let file = File::open(path).with_context(|| path.to_owned())?;
        let mut at = 0;
        while let Ok(n @ 1..) = file.read_at(&mut then[at..], offset + at as u64) {
            at += n;
        }
        compared += 1;
        if let Some(first) = (0..now.len()).find(|&n| now[n] != then[n]) {
            changed.push(format!("{pid}: {path} {:#x} is not as in the file", offset + first as u64));
        }
    }
    if compared == 0 {
        bail!("{pid}: no text was compared");
    }
    Ok(changed)
}
