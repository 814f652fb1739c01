//! A machine whose processors fetch stale bytes, and the threads on it.
//!
//! All processors serialise at the same time, so one set of values for each byte describes what any
//! of them may fetch. Threads do not affect each other, so the set of all positions of one thread
//! describes those of any number of threads.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, Instruction, Mnemonic, Register};

/// Code behind every site. Only its first byte is a harmless entry.
const BODY: [u8; 15] =
    [0x55, 0x48, 0x89, 0xE5, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4, 0xF4];

/// Values of each byte since the last core sync, the newest last.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Memory {
    seen: Vec<Vec<u8>>,
}

impl Memory {
    pub fn new(bytes: &[u8]) -> Memory {
        Memory { seen: bytes.iter().map(|byte| vec![*byte]).collect() }
    }

    pub fn store(&mut self, offset: usize, byte: u8) {
        let seen = &mut self.seen[offset];
        seen.retain(|old| *old != byte);
        seen.push(byte);
    }

    pub fn sync(&mut self) {
        for seen in &mut self.seen {
            seen.drain(..seen.len() - 1);
        }
    }

    pub fn newest(&self) -> Vec<u8> {
        self.seen.iter().filter_map(|seen| seen.last().copied()).collect()
    }

    fn fetchable(&self, offset: usize) -> &[u8] {
        match self.seen.get(offset) {
            Some(seen) => seen,
            None => BODY.get(offset - self.seen.len()).map_or(&[], std::slice::from_ref),
        }
    }
}

/// Way of a thread out of the site, other than into its body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exit {
    Jump(u64),
    Call(u64),
    /// A call through the address stored there.
    CallThrough(u64),
    Return,
}

/// Position of a thread: the offset of its next instruction, or of its return into the site if it
/// is in a called function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Thread {
    At(usize),
    Away(usize),
    /// The thread has executed a breakpoint here: until the handler has run, its next instruction
    /// is the one behind.
    Trapped(usize),
}

#[derive(Clone, Debug)]
enum Effect {
    Next(usize),
    Leaves(Exit, usize),
    /// Offset of the breakpoint.
    Trap(usize),
    Harm,
}

/// Returns the effect of an instruction. Only instructions that change nothing but flags are
/// harmless, as only flags are dead at a site.
fn execute(instruction: &Instruction, base: u64) -> Effect {
    let next = (instruction.next_ip() - base) as usize;
    match (instruction.mnemonic(), instruction.code()) {
        (Mnemonic::Nop | Mnemonic::Stc | Mnemonic::Cmc | Mnemonic::Endbr64, _) => Effect::Next(next),
        (_, Code::Test_EAX_imm32) => Effect::Next(next),
        (_, Code::Jmp_rel8_64) if instruction.near_branch_target() >= base => {
            Effect::Next((instruction.near_branch_target() - base) as usize)
        }
        (Mnemonic::Int3, _) => Effect::Trap(next - 1),
        (_, Code::Jmp_rel32_64) => Effect::Leaves(Exit::Jump(instruction.near_branch_target()), next),
        (_, Code::Call_rel32_64) => Effect::Leaves(Exit::Call(instruction.near_branch_target()), next),
        (_, Code::Call_rm64) if instruction.memory_base() == Register::RIP => {
            Effect::Leaves(Exit::CallThrough(instruction.ip_rel_memory_address()), next)
        }
        (_, Code::Retnq) => Effect::Leaves(Exit::Return, next),
        _ => Effect::Harm,
    }
}

/// An instruction that some processor may fetch, and its effect.
type Fetched = (Vec<u8>, Effect);

/// Instructions that may be fetched at each offset, if computed.
type FetchTable = Vec<Option<Rc<Vec<Fetched>>>>;

/// Instructions that may be fetched in each state of the memory.
#[derive(Default)]
pub struct Fetches {
    known: HashMap<Memory, FetchTable>,
}

fn fetch(memory: &Memory, offset: usize, base: u64) -> Vec<Fetched> {
    let (mut found, mut open) = (Vec::new(), vec![Vec::new()]);
    // Tries one more byte where the decoder asks for it. This covers every mixture, and no byte
    // behind the instruction.
    while let Some(bytes) = open.pop() {
        let mut decoder = Decoder::with_ip(64, &bytes, base + offset as u64, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let more = memory.fetchable(offset + bytes.len());
        if decoder.last_error() == DecoderError::NoMoreBytes && !more.is_empty() {
            open.extend(more.iter().map(|byte| [&bytes[..], &[*byte]].concat()));
        } else {
            let effect = if instruction.is_invalid() { Effect::Harm } else { execute(&instruction, base) };
            found.push((bytes, effect));
        }
    }
    found
}

/// The steps by which a thread came to its position.
#[derive(Debug)]
pub struct Trail {
    what: String,
    before: Option<Rc<Trail>>,
}

impl Trail {
    pub fn tell(trail: &Option<Rc<Trail>>) -> String {
        let mut told = Vec::new();
        let mut at = trail;
        while let Some(trail) = at {
            told.push(trail.what.clone());
            at = &trail.before;
        }
        told.reverse();
        told.join("\n  ")
    }
}

/// Properties of a site that matter for its threads.
pub struct Ground {
    pub base: u64,
    pub length: usize,
    /// Offsets at which threads enter.
    pub entries: Vec<usize>,
    /// Whether threads fall through into the code behind the site.
    pub falls_through: bool,
    /// The breakpoint that the program's handler knows, and the offset where it resumes.
    pub handled: Option<(usize, usize)>,
}

/// The memory, and all possible positions of threads.
#[derive(Clone)]
pub struct World {
    pub memory: Memory,
    pub threads: BTreeMap<Thread, Option<Rc<Trail>>>,
    /// Last action of the patcher, for trails.
    pub now: Rc<str>,
    pub stopped: bool,
}

impl World {
    pub fn new(bytes: &[u8]) -> World {
        World { memory: Memory::new(bytes), threads: BTreeMap::new(), now: "".into(), stopped: false }
    }

    /// Adds the threads of another world. Returns whether any was new.
    pub fn join(&mut self, threads: &BTreeMap<Thread, Option<Rc<Trail>>>) -> bool {
        let before = self.threads.len();
        for (thread, trail) in threads {
            self.threads.entry(*thread).or_insert_with(|| trail.clone());
        }
        self.threads.len() > before
    }

    /// Adds a thread at every entry. Returns all threads.
    fn enter(&mut self, ground: &Ground) -> Vec<Thread> {
        for entry in &ground.entries {
            self.threads.entry(Thread::At(*entry)).or_default();
        }
        self.threads.keys().copied().collect()
    }

    /// Adds threads at the entries, and runs all as far as they may get. The error describes how a
    /// thread was harmed.
    pub fn run(&mut self, ground: &Ground, allowed: &[Exit], fetches: &mut Fetches) -> Result<(), String> {
        if self.stopped {
            return Ok(());
        }
        let mut open = self.enter(ground);
        let mut edges: Vec<(usize, usize)> = Vec::new();
        let here = fetches.known.entry(self.memory.clone()).or_insert_with(|| vec![None; ground.length]);
        while let Some(thread) = open.pop() {
            let trail = self.threads.get(&thread).cloned().flatten();
            let mut come = |next: Thread, what: &dyn Fn() -> String| {
                self.threads.entry(next).or_insert_with(|| {
                    open.push(next);
                    Some(Rc::new(Trail { what: format!("{}: {}", self.now, what()), before: trail.clone() }))
                });
            };
            let offset = match thread {
                Thread::Away(back) => {
                    come(Thread::At(back), &|| format!("returns to +{back}"));
                    continue;
                }
                Thread::Trapped(at) => {
                    let Some((_, next)) = ground.handled.filter(|(known, _)| *known == at) else {
                        let what = format!("no handler for the breakpoint at +{at}");
                        return Err(harm(&trail, &self.now, &what));
                    };
                    if next < ground.length {
                        come(Thread::At(next), &|| format!("is resumed at +{next}"));
                    }
                    continue;
                }
                Thread::At(offset) => offset,
            };
            let fetched =
                here[offset].get_or_insert_with(|| Rc::new(fetch(&self.memory, offset, ground.base)));
            for (bytes, effect) in fetched.iter() {
                let executes = || format!("at +{offset} executes {bytes:02x?}");
                let harmless = match *effect {
                    Effect::Next(next) if next == ground.length => ground.falls_through,
                    Effect::Next(next) if next < ground.length => {
                        edges.push((offset, next));
                        come(Thread::At(next), &executes);
                        true
                    }
                    Effect::Trap(at) => {
                        come(Thread::Trapped(at), &executes);
                        true
                    }
                    Effect::Leaves(exit, next) if allowed.contains(&exit) => {
                        if matches!(exit, Exit::Call(_) | Exit::CallThrough(_)) && next < ground.length {
                            come(Thread::Away(next), &executes);
                        }
                        true
                    }
                    _ => false,
                };
                if !harmless {
                    return Err(harm(&trail, &self.now, &format!("{}, and comes to harm", executes())));
                }
            }
        }
        match is_loop(&edges) {
            true => Err(format!("  {}: a thread runs in circles", self.now)),
            false => Ok(()),
        }
    }
}

/// Describes a thread's steps up to its harm.
fn harm(trail: &Option<Rc<Trail>>, now: &str, what: &str) -> String {
    format!("  {}\n  {now}: {what}", Trail::tell(trail))
}

/// Whether the edges contain a cycle. Edges to dead ends are removed until none is left.
fn is_loop(edges: &[(usize, usize)]) -> bool {
    let mut edges = edges.to_vec();
    loop {
        let left: Vec<_> =
            edges.iter().filter(|(_, to)| edges.iter().any(|(from, _)| from == to)).copied().collect();
        if left.len() == edges.len() {
            return !left.is_empty();
        }
        edges = left;
    }
}
