//! The page's server: it listens on this machine only, and answers clients that know its token.

use super::connections::{self, Answer};
use super::subject::{self, Subject};
use super::{api, browser};
use crate::command_line::arguments::Arguments;
use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustix::rand::{GetRandomFlags, getrandom};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The page's files: name, type, contents.
pub const FILES: [(&str, &str, &str); 13] = [
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("common.js", SCRIPT, include_str!("page/common.js")),
    ("timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("flame.js", SCRIPT, include_str!("page/flame.js")),
    ("functions.js", SCRIPT, include_str!("page/functions.js")),
    ("details.js", SCRIPT, include_str!("page/details.js")),
    ("heat.js", SCRIPT, include_str!("page/heat.js")),
    ("values.js", SCRIPT, include_str!("page/values.js")),
    ("states.js", SCRIPT, include_str!("page/states.js")),
    ("why.js", SCRIPT, include_str!("page/why.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Headers of every answer: the page loads only what this server sends, and no other page may frame
/// it, keep it or learn its address.
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

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
    /// Time of the page's last request.
    asked: Mutex<Instant>,
}

impl Server {
    /// Binds a port; 0 is any free port.
    pub fn new(port: u16) -> Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("cannot serve the page at port {port}"))?;
        let port = listener.local_addr()?.port();
        let mut random = [0u8; 16];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Server { listener, port, token, asked: Mutex::new(Instant::now()) })
    }

    /// Prints the address of the page, and has a browser open it where the user expects that.
    pub fn announce(&self, arguments: &Arguments) -> Result<()> {
        let address = format!("http://127.0.0.1:{}/{}/", self.port, self.token);
        super::say(&address)?;
        if let Some(browser) = browser::wanted(arguments) {
            browser::open(&browser, &address);
        }
        Ok(())
    }

    /// Whether no request has arrived for `idle`.
    pub fn is_forgotten(&self, idle: Option<Duration>) -> bool {
        let asked = self.asked.lock().map(|asked| asked.elapsed());
        idle.is_some_and(|idle| asked.is_ok_and(|since| since > idle))
    }

    /// Answers requests until `wait` returns, and returns its result.
    pub fn serve<T>(&self, subject: &dyn Subject, wait: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                connections::serve(&self.listener, &over, &|request| self.answer(request, subject))
            });
            let result = wait();
            over.store(true, Ordering::Release);
            result
        })
    }

    /// Answers a request. Returns whether it had the token.
    fn answer(&self, request: &Request<Incoming>, subject: &dyn Subject) -> (Answer, bool) {
        let within = self.within(request.uri().path());
        let answer = match within {
            None => plain(404, "No such page: use the whole address that calltap printed, with its token.\n"),
            Some(path) => {
                let query = request.uri().query().unwrap_or_default();
                if let Ok(mut asked) = self.asked.lock() {
                    *asked = Instant::now();
                }
                let file = FILES.iter().find(|(name, ..)| *name == path);
                match (request.method(), file, path.strip_prefix("api/")) {
                    (&Method::GET, Some((_, kind, text)), _) => {
                        with(Response::new(Full::from(*text)), &[("Content-Type", kind)])
                    }
                    (method, _, Some(name)) => {
                        json(subject::answer(subject, name, query, *method == Method::POST))
                    }
                    _ => plain(404, "There is no such page.\n"),
                }
            }
        };
        (with(answer, &HEADERS), within.is_some())
    }

    /// Returns the path below the token; `None` without the token.
    fn within<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix('/')?;
        let (token, rest) = rest.split_once('/')?;
        let same = token.len() == self.token.len()
            && token.bytes().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
        same.then_some(rest)
    }
}

fn plain(code: u16, text: &'static str) -> Answer {
    coded(code, Response::new(Full::from(text)))
}

fn coded(code: u16, mut answer: Answer) -> Answer {
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

fn json(answer: Result<String, api::Refusal>) -> Answer {
    let (code, text) = match answer {
        Ok(text) => (200, text),
        Err(api::Refusal { code, why }) => (code, serde_json::json!({ "error": why }).to_string()),
    };
    with(coded(code, Response::new(Full::from(text))), &[("Content-Type", "application/json")])
}

fn with(mut answer: Answer, headers: &[(&'static str, &'static str)]) -> Answer {
    for (name, value) in headers {
        // `HeaderName::from_static` would refuse the capital letters of the table.
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    answer
}
