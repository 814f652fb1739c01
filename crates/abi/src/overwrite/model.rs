//! Explores all interleavings of a thread in overwrite mode with its signal handlers, on a small
//! ring, and checks that no word is written between the load and the store that clear it. Each step
//! is an access before which a signal can arrive, in the order of `agent/src/ring.rs` and
//! `record.rs`.

use std::collections::HashSet;

/// Chunks of the ring, and words of a chunk.
const CHUNKS: usize = 3;
const WORDS: usize = 2;
/// Maximum number of signals, and most events of each flow: the program and each handler.
const SIGNALS: u8 = 2;
const EVENTS: u8 = 9;

/// Protection that is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    Nothing,
    /// Handlers may unlink a chunk while another is cleared.
    NotBusy,
    /// The chunk is linked, and the cursor moved to it, before it is cleared.
    LinkedFirst,
    /// The oldest chunk is cleared before it is unlinked, by handlers too.
    StillLinked,
}

/// Next step of a flow. Chunks are numbered from 1; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Reserve,
    Store(WordPosition),
    ReadCursor,
    ReadLink(WordPosition),
    Obtain(WordPosition),
    SetBusy(WordPosition),
    ReadFirst(WordPosition),
    ReadNext(WordPosition, u8),
    Unlink(WordPosition, u8, u8),
    Load(WordPosition, u8, u8),
    Clear(WordPosition, u8, u8),
    ClearBusy(WordPosition, u8),
    Reset(WordPosition, u8),
    Link(WordPosition, u8),
    Move(WordPosition),
}
use Step::*;

/// A word of a chunk. Before the first event, the cursor is in chunk 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct WordPosition {
    chunk: u8,
    word: u8,
}

/// The program or a handler: its next step, and its remaining events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flow {
    step: Step,
    left: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Ring {
    /// Successor of each chunk.
    next: [u8; CHUNKS],
    first: u8,
    cursor: WordPosition,
    busy: bool,
    free: Vec<u8>,
    /// The program, and handlers that interrupt each other.
    flows: Vec<Flow>,
    signals: u8,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            next: [0; CHUNKS],
            first: 0,
            cursor: WordPosition { chunk: 0, word: WORDS as u8 },
            busy: false,
            free: (1..=CHUNKS as u8).collect(),
            flows: vec![Flow { step: Reserve, left: EVENTS }],
            signals: SIGNALS,
        }
    }

    fn link(&mut self, of: u8) -> &mut u8 {
        if of == 0 { &mut self.first } else { &mut self.next[of as usize - 1] }
    }

    /// Takes the next step of the newest flow. Fails if it writes a word between the load and the
    /// store that clear it.
    fn step(&mut self, mutant: Mutant) -> Result<(), String> {
        let flow = self.flows.len() - 1;
        let next = match self.flows[flow].step {
            Reserve => {
                let at = self.cursor;
                self.cursor.word = (at.word + 1).min(WORDS as u8);
                if usize::from(at.word) < WORDS { Some(Store(at)) } else { Some(ReadCursor) }
            }
            Store(at) => {
                let clears = |flow: &Flow| matches!(flow.step, Clear(_, chunk, word) if (chunk, word) == (at.chunk, at.word));
                if self.flows.iter().any(clears) {
                    return Err(format!("{mutant:?}: a word is written between its load and its store"));
                }
                None
            }
            ReadCursor if usize::from(self.cursor.word) < WORDS => Some(Reserve),
            ReadCursor => Some(ReadLink(self.cursor)),
            ReadLink(seen) => Some(if *self.link(seen.chunk) == 0 { Obtain(seen) } else { Move(seen) }),
            Obtain(seen) => Some(self.free.pop().map_or(SetBusy(seen), |chunk| Reset(seen, chunk))),
            SetBusy(_) if self.busy && mutant == Mutant::Nothing => None,
            step => self.reuse(step, mutant),
        };
        match next {
            Some(step) => self.flows[flow].step = step,
            None if self.flows[flow].left > 1 => {
                self.flows[flow] = Flow { step: Reserve, left: self.flows[flow].left - 1 };
            }
            None => drop(self.flows.pop()),
        }
        Ok(())
    }

    /// Takes a step of turning the oldest chunk into the newest. None if there is no room for the
    /// event.
    fn reuse(&mut self, step: Step, mutant: Mutant) -> Option<Step> {
        Some(match step {
            SetBusy(seen) => {
                self.busy = true;
                ReadFirst(seen)
            }
            ReadFirst(seen) => ReadNext(seen, self.first),
            ReadNext(seen, oldest) => match oldest.checked_sub(1).map_or(0, |at| self.next[at as usize]) {
                0 => {
                    self.busy = false;
                    return None;
                }
                next => Unlink(seen, oldest, next),
            },
            Unlink(seen, oldest, next) => {
                if mutant != Mutant::StillLinked {
                    self.first = next;
                }
                if mutant == Mutant::LinkedFirst { Reset(seen, oldest) } else { Load(seen, oldest, 0) }
            }
            Load(seen, chunk, word) if usize::from(word) < WORDS => Clear(seen, chunk, word),
            Load(..) if mutant == Mutant::LinkedFirst => {
                self.busy = false;
                Reserve
            }
            Load(seen, chunk, _) => {
                if mutant == Mutant::StillLinked {
                    self.first = self.next[chunk as usize - 1];
                }
                ClearBusy(seen, chunk)
            }
            Clear(seen, chunk, word) => Load(seen, chunk, word + 1),
            ClearBusy(seen, chunk) => {
                self.busy = false;
                Reset(seen, chunk)
            }
            Reset(seen, chunk) => {
                *self.link(chunk) = 0;
                Link(seen, chunk)
            }
            Link(seen, chunk) => {
                match self.link(seen.chunk) {
                    link @ 0 => *link = chunk,
                    _ => self.free.push(chunk),
                }
                Move(seen)
            }
            Move(seen) => {
                let next = *self.link(seen.chunk);
                if self.cursor == seen && next != 0 {
                    self.cursor = WordPosition { chunk: next, word: 0 };
                }
                if mutant == Mutant::LinkedFirst && self.busy { Load(seen, next, 0) } else { Reserve }
            }
            _ => Reserve,
        })
    }

    /// Returns all possible next states.
    fn successors(&self, mutant: Mutant) -> Result<Vec<Ring>, String> {
        let mut all = Vec::new();
        if self.flows.is_empty() {
            return Ok(all);
        }
        let mut stepped = self.clone();
        stepped.step(mutant)?;
        all.push(stepped);
        if self.signals > 0 {
            let mut handler = self.clone();
            handler.signals -= 1;
            handler.flows.push(Flow { step: Reserve, left: EVENTS });
            all.push(handler);
        }
        if let [.., interrupted, handler] = self.flows[..] {
            // A handler may return after any event.
            if handler.step == Reserve {
                let mut returned = self.clone();
                returned.flows.pop();
                all.push(returned);
            }
            // The handler may also leave the interrupted flow by siglongjmp.
            let mut left = self.clone();
            left.flows.truncate(self.flows.len() - 2);
            left.flows.push(Flow { step: Reserve, left: interrupted.left });
            all.push(left);
        }
        Ok(all)
    }
}

/// Explores all reachable states. Returns their number, or what went wrong in one.
fn explore(mutant: Mutant) -> Result<usize, String> {
    let (mut seen, mut open) = (HashSet::new(), vec![Ring::new()]);
    while let Some(ring) = open.pop() {
        for next in ring.successors(mutant)? {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn no_word_is_written_between_its_load_and_its_store() {
    let states = explore(Mutant::Nothing).unwrap();
    assert!(states > 100_000, "{states} states");
}

#[test]
fn each_reason_is_needed() {
    for mutant in [Mutant::NotBusy, Mutant::LinkedFirst, Mutant::StillLinked] {
        assert!(explore(mutant).is_err(), "{mutant:?}");
    }
}

/// Values that recorder and thread get from a word that both clear, and the value left, in all
/// orders of their steps.
fn outcomes(exchange: bool) -> HashSet<(u8, u8, u8)> {
    fn go(word: u8, [recorder, thread]: [&[bool]; 2], had: (u8, u8), all: &mut HashSet<(u8, u8, u8)>) {
        // A step loads (true) or stores (false); an exchange is a single step.
        if recorder.is_empty() && thread.is_empty() {
            all.insert((had.0, had.1, word));
        }
        if let [loads, rest @ ..] = recorder {
            let had = if *loads { (word, had.1) } else { had };
            go(if *loads { word } else { 0 }, [rest, thread], had, all);
        }
        match thread {
            [true] => go(0, [recorder, &[]], (had.0, word), all),
            [true, rest @ ..] => go(word, [recorder, rest], (had.0, word), all),
            [_, rest @ ..] => go(0, [recorder, rest], had, all),
            [] => {}
        }
    }
    let mut all = HashSet::new();
    go(1, [&[true, false], if exchange { &[true] } else { &[true, false] }], (0, 0), &mut all);
    all
}

#[test]
fn beside_the_recorder_a_load_and_a_store_have_no_other_outcome_than_an_exchange() {
    assert_eq!(outcomes(false), outcomes(true));
    assert_eq!(outcomes(true), HashSet::from([(1, 1, 0), (1, 0, 0), (0, 1, 0)]));
}
