//! Goroutines that threads run in turns, written as text.

use super::*;
use crate::output::Consumer;
use crate::raw::Goroutine;
use calltap_trace::{Batch, ClockPair, Error, Unpacker};

/// A consumer that writes the events of each goroutine as text: `f` begins, `/f` ends, and how.
#[derive(Default)]
struct Told {
    lanes: Vec<(u64, String)>,
}

impl Consumer for Told {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        if let Record::Thread(thread) = record {
            assert_eq!(thread.id.0 as usize, self.lanes.len());
            self.lanes.push((thread.goroutine.expect("a goroutine"), String::new()));
        }
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        let lane = &mut self.lanes[encoder.thread().0 as usize].1;
        Unpacker::default().events(encoder, |batch: &Batch| {
            for event in &batch.events {
                let name = event.site.0 as u8 as char;
                *lane += &match event.kind {
                    EventKind::Entry => format!("{name} "),
                    EventKind::Call { .. } => format!("{name}! "),
                    EventKind::Exit { pops } => format!("/{name}{pops} "),
                    EventKind::Left { pops } => format!("left{pops} "),
                    EventKind::ThreadEnded => "ended ".to_owned(),
                    other => format!("{other:?} "),
                };
            }
        });
        Ok(())
    }

    fn flush(&mut self, _: ClockPair) -> Result<(), Error> {
        Ok(())
    }
}

/// Checks the events of goroutines. `1:f@N=T`: at the time T goroutine 1 enters f, with its slot
/// `N` words below the top of its stack; `/f` returns, `!f` never will. `1g7:` gives its `g` a
/// number, which else is the goroutine's. A word holds the events that one thread leaves, with
/// commas between; `<T` releases events before T. `expected`: the goroutines in the order in which
/// they were met.
fn check(words: &str, expected: &[(u64, &str)]) {
    let (mut told, mut goroutines, mut next) = (Told::default(), Goroutines::default(), 0);
    let mut output = Output::new(&mut told);
    for word in words.split_whitespace() {
        if let Some(until) = word.strip_prefix('<') {
            goroutines.release(until.parse().expect("a time"), &mut output);
            goroutines.flush(&mut output);
            continue;
        }
        let mut events = GoEvents::default();
        word.split(',').for_each(|text| add(text, &mut events));
        goroutines.take((0, ThreadId(0)), &mut events, &mut next, &mut output);
    }
    goroutines.release(u64::MAX, &mut output);
    goroutines.end(&mut output);
    let got: Vec<(u64, &str)> = told.lanes.iter().map(|(number, text)| (*number, text.trim_end())).collect();
    assert_eq!(got, expected, "{words}");
}

fn add(text: &str, events: &mut GoEvents) {
    let (whose, rest) = text.split_once(':').expect("whose");
    let (number, g) = whose.split_once('g').unwrap_or((whose, whose));
    let (call, rest) = rest.split_once('@').expect("a call");
    let (at, time) = rest.split_once('=').expect("a position");
    let code = match call.as_bytes()[0] {
        b'/' => code::EXIT,
        b'!' => code::CALL,
        _ => code::ENTRY,
    };
    let name = call.trim_start_matches(['/', '!']).as_bytes()[0];
    let slot = at.parse::<u64>().expect("a position").wrapping_mul(8).wrapping_neg() >> 3;
    let raw =
        RawEvent { ticks: time.parse().expect("a time"), low: u32::from(name) << 5 | code, slot, parent: 0 };
    let number = number.parse().expect("a number");
    let goroutine = Goroutine { number, at: g.parse().expect("a number"), start: None, begins: false };
    events.push(goroutine, raw, Vec::new());
}

#[test]
fn events_of_goroutine_on_several_threads_are_ordered_by_time() {
    // The thread that continues the goroutine is read first.
    check("1:g@2=30,1:/g@2=40 1:f@1=10 1:/f@1=50", &[(1, "f g /g1 /f1")]);
    check("1:f@1=10,2:m@1=15,1:g@2=20 2:/m@1=25 1:/g@2=30,1:/f@1=40", &[(1, "f g /g1 /f1"), (2, "m /m1")]);
}

#[test]
fn event_waits_for_earlier_events_of_other_threads() {
    check("1:f@1=10,1:/g@2=40 <20 1:g@2=30 1:/f@1=50 <60", &[(1, "f g /g1 /f1")]);
}

#[test]
fn a_position_tells_which_frames_a_panic_has_left() {
    check("1:f@1=1,1:g@2=2,1:h@3=3,1:d@5=4,1:/d@5=5,1:/f@1=6", &[(1, "f g h d /d1 left2 /f1")]);
    check("1:f@1=1,1:g@2=2,1:h@3=3,1:k@2=4,1:/k@2=5,1:/f@1=6", &[(1, "f g h left2 k /k1 /f1")]);
    // The runtime's function that ends a goroutine has the slot of its first function.
    check("1:f@1=1,1:g@2=2,1:!x@1=3", &[(1, "f g left2 x!")]);
}

#[test]
fn a_record_that_is_used_again_shows_that_its_goroutine_is_over() {
    check("1g7:f@1=1 2g7:f@1=5,2g7:/f@1=6 <9", &[(1, "f ended"), (2, "f /f1")]);
    // The newer goroutine is met first.
    check("2g7:f@1=5,2g7:g@2=6 1g7:f@1=1,1g7:g@2=2 <9", &[(2, "f g"), (1, "f g ended")]);
    check("1g7:f@1=1 2g8:f@1=5 <9", &[(1, "f"), (2, "f")]);
}
