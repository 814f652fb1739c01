//! The server of the page: to this machine only, and to those who know its token.

use super::api;
use super::subject::Subject;
use anyhow::{Result, anyhow};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::Cursor;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tiny_http::{Header, Method, Request, Response};

/// Requests that are answered at the same time.
const WORKERS: usize = 4;
/// How long a connection may wait that was forgotten.
const NUDGE: Duration = Duration::from_millis(200);

/// Files of the page, by name, with their types.
const FILES: [(&str, &str, &str); 9] = [
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("common.js", SCRIPT, include_str!("page/common.js")),
    ("timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("flame.js", SCRIPT, include_str!("page/flame.js")),
    ("functions.js", SCRIPT, include_str!("page/functions.js")),
    ("details.js", SCRIPT, include_str!("page/details.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Nothing but what we send ourselves, for nobody else to frame, to keep or to learn the address of.
const HEADERS: [(&str, &str); 5] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

/// A server that nobody knows of yet.
pub struct Server {
    http: tiny_http::Server,
    port: u16,
    token: String,
    /// When the page was last asked for anything.
    asked: Mutex<Instant>,
}

impl Server {
    /// At this port, or at any that is free for 0.
    pub fn new(port: u16) -> Result<Server> {
        let http = tiny_http::Server::http((Ipv4Addr::LOCALHOST, port))
            .map_err(|error| anyhow!("cannot serve the page at port {port}: {error}"))?;
        let port = http.server_addr().to_ip().map_or(port, |address| address.port());
        let mut random = [0u8; 16];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Server { http, port, token, asked: Mutex::new(Instant::now()) })
    }

    /// Says where the page is.
    pub fn announce(&self) -> Result<()> {
        super::say(&format!("http://127.0.0.1:{}/{}/", self.port, self.token))
    }

    /// Has nobody asked for so long?
    pub fn is_forgotten(&self, idle: Option<Duration>) -> bool {
        let asked = self.asked.lock().map(|asked| asked.elapsed());
        idle.is_some_and(|idle| asked.is_ok_and(|since| since > idle))
    }

    /// Answers until `wait` returns.
    pub fn serve(&self, subject: &dyn Subject, wait: &dyn Fn()) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // A browser opens several connections at once, and keeps them. Of two that come together, the pool of tiny_http may leave one without a thread, as both count on the same idle
            // one, until another connection ends: so one comes and goes now and then.
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    thread::sleep(NUDGE);
                    let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
                }
            });
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    // (An error: we are told to stop.)
                    while let Ok(request) = self.http.recv() {
                        self.answer(request, subject);
                    }
                });
            }
            wait();
            over.store(true, Ordering::Release);
            (0..WORKERS).for_each(|_| self.http.unblock());
        });
    }

    fn answer(&self, request: Request, subject: &dyn Subject) {
        let response = match self.within(request.url()) {
            None => {
                plain(404, "There is nothing here. The address that calltap printed has a token in it.\n")
            }
            Some((path, query)) => {
                if let Ok(mut asked) = self.asked.lock() {
                    *asked = Instant::now();
                }
                let file = FILES.iter().find(|(name, ..)| *name == path);
                match (request.method(), file, path.strip_prefix("api/")) {
                    (Method::Get, Some((_, kind, text)), _) => {
                        with(Response::from_string(*text), &[("Content-Type", kind)])
                    }
                    (method, _, Some(name)) => {
                        json(api::answer(subject, name, query, *method == Method::Post))
                    }
                    _ => plain(404, "There is no such page.\n"),
                }
            }
        };
        // (The browser may have been closed.)
        let _ = request.respond(with(response, &HEADERS));
    }

    /// Path and query below our token; none for those who do not know it.
    fn within<'a>(&self, url: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = url.strip_prefix('/')?;
        let (token, rest) = rest.split_once('/')?;
        let same = token.len() == self.token.len()
            && token.bytes().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
        same.then(|| rest.split_once('?').unwrap_or((rest, "")))
    }
}

type Answer = Response<Cursor<Vec<u8>>>;

fn plain(code: u16, text: &str) -> Answer {
    Response::from_string(text).with_status_code(code)
}

fn json(answer: Result<String, api::Refusal>) -> Answer {
    let (code, text) = match answer {
        Ok(text) => (200, text),
        Err(api::Refusal { code, why }) => (code, serde_json::json!({ "error": why }).to_string()),
    };
    with(Response::from_string(text).with_status_code(code), &[("Content-Type", "application/json")])
}

fn with(mut response: Answer, headers: &[(&str, &str)]) -> Answer {
    for (name, value) in headers {
        if let Ok(header) = Header::from_bytes(*name, *value) {
            response.add_header(header);
        }
    }
    response
}
