//! Connections of browsers: hyper speaks HTTP on each, in a thread of its own.
//!
//! Any process of this machine may connect, so every limit applies before a request is looked at:
//! the length of a head, the number of connections, the time until a request is complete. No
//! request has a body.

use http_body_util::Full;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::ready;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Number of connections at a time. Beyond that, the oldest one that has not shown the token is
/// closed.
const MAX_CONNECTIONS: usize = 32;
/// Number of bytes of a request's head at most.
const MAX_HEAD_LEN: usize = 16 << 10;
/// Time until the first request must be complete.
const FIRST: Duration = Duration::from_secs(5);
/// Time from one request until the next must be complete.
const NEXT: Duration = Duration::from_secs(30);
/// Interval between two looks whether the server is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The response to a request.
pub type Answer = Response<Full<Bytes>>;

/// A connection, as the other threads see it.
struct Peer {
    stream: TcpStream,
    /// Whether a request of the connection had the token.
    is_known: AtomicBool,
}

/// Answers requests until `over`. `answer` also returns whether a request had the token.
pub fn serve(
    listener: &TcpListener,
    over: &AtomicBool,
    answer: &(dyn Fn(&Request<Incoming>) -> (Answer, bool) + Sync),
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let peers: Mutex<Vec<Arc<Peer>>> = Mutex::default();
    thread::scope(|scope| {
        while !over.load(Acquire) {
            let Ok((stream, _)) = listener.accept() else {
                wait(listener, PollFlags::IN, LOOK_INTERVAL);
                continue;
            };
            let Some(peer) = admit(&mut lock(&peers), stream) else { continue };
            let peers = &peers;
            scope.spawn(move || {
                // A browser that disconnects in the middle of an answer is no error.
                let _ = speak(&peer, over, answer);
                lock(peers).retain(|other| !Arc::ptr_eq(other, &peer));
            });
        }
    });
    Ok(())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a new connection, unless the limit is reached or the connection cannot be set up.
fn admit(peers: &mut Vec<Arc<Peer>>, stream: TcpStream) -> Option<Arc<Peer>> {
    if peers.len() >= MAX_CONNECTIONS {
        let stranger = peers.iter().position(|peer| !peer.is_known.load(Acquire))?;
        let _ = peers.remove(stranger).stream.shutdown(Shutdown::Both);
    }
    stream.set_nonblocking(true).ok()?;
    let peer = Arc::new(Peer { stream, is_known: AtomicBool::new(false) });
    peers.push(Arc::clone(&peer));
    Some(peer)
}

/// Waits until a stream is ready.
fn wait(stream: &impl std::os::fd::AsFd, flags: PollFlags, time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(stream, flags)], Some(&time));
}

/// Answers the requests of one connection until it is closed, late, or the server ends.
fn speak(
    peer: &Arc<Peer>,
    over: &AtomicBool,
    answer: &(dyn Fn(&Request<Incoming>) -> (Answer, bool) + Sync),
) -> Result<(), hyper::Error> {
    let (due, awaited) = (Cell::new(Instant::now() + FIRST), Rc::new(Cell::new(PollFlags::empty())));
    let service = service_fn(|request: Request<Incoming>| {
        let (answer, is_known) = match request.body().is_end_stream() {
            true => answer(&request),
            false => (refuse_body(), false),
        };
        peer.is_known.fetch_or(is_known, AcqRel);
        due.set(Instant::now() + NEXT);
        ready(Ok::<_, Infallible>(answer))
    });
    let stream = Stream { peer: Arc::clone(peer), awaited: Rc::clone(&awaited) };
    let mut connection = pin!(
        Builder::new().max_buf_size(MAX_HEAD_LEN).pipeline_flush(true).serve_connection(stream, service)
    );
    let mut context = Context::from_waker(Waker::noop());
    while !over.load(Acquire) && Instant::now() < due.get() {
        awaited.set(PollFlags::empty());
        if let Poll::Ready(ended) = connection.as_mut().poll(&mut context) {
            return ended;
        }
        wait(&peer.stream, awaited.get(), LOOK_INTERVAL);
    }
    Ok(())
}

fn refuse_body() -> Answer {
    let mut answer = Response::new(Full::from("No request has a body here.\n"));
    *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    answer.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    answer
}

/// A stream for hyper that records which readiness it waits for.
struct Stream {
    peer: Arc<Peer>,
    awaited: Rc<Cell<PollFlags>>,
}

impl Stream {
    fn poll<T>(&self, flag: PollFlags, act: impl FnOnce(&TcpStream) -> io::Result<T>) -> Poll<io::Result<T>> {
        match act(&self.peer.stream) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.awaited.set(self.awaited.get() | flag);
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        let room = into.remaining().min(bytes.len());
        let read = self.poll(PollFlags::IN, |mut stream| stream.read(&mut bytes[..room]));
        read.map_ok(|count| into.put_slice(&bytes[..count]))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(PollFlags::OUT, |mut stream| stream.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.peer.stream.shutdown(Shutdown::Write))
    }
}
