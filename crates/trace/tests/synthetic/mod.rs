//! Traces made up by a rule: the same on every machine, with the regularities and the noise of real ones.

use calltap_trace::{ClockKind, Event, EventKind, Session, SiteId};

/// xorshift64*: small, and the same for ever.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How a machine's clock moves from event to event.
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// The counter steps by 22.5 (Zen at a base clock of 2.25 GHz).
    Amd,
    /// The counter steps by 2; the noise is finer.
    Intel,
    /// A number per event.
    Counter,
    /// Nanoseconds, a step once a millisecond.
    Coarse,
}

pub struct Clock {
    machine: Machine,
    halves: u64,
    random: Random,
}

impl Clock {
    pub fn new(machine: Machine) -> Self {
        Self { machine, halves: 1 << 45, random: Random::new(99) }
    }

    /// The ticks of an event before which `work` cycles were spent, more or less.
    fn tick(&mut self, work: u64) -> u64 {
        // The sum of two dice is near enough to the jitter of a pipeline; once in a while a cache miss or an interrupt.
        let jitter = self.random.below(8) + self.random.below(8);
        let rare = self.random.below(4096);
        let stall = if rare == 0 {
            20_000 + self.random.below(9000)
        } else if rare < 64 {
            150 + self.random.below(300)
        } else {
            0
        };
        self.halves += 2 * (50 + work + jitter + stall);
        match self.machine {
            Machine::Amd => self.halves / 45 * 45 / 2,
            Machine::Intel => self.halves / 4 * 2,
            Machine::Counter => {
                self.halves -= 2 * (49 + work + jitter + stall);
                self.halves / 2
            }
            Machine::Coarse => self.halves / 6_000_000 * 1_000_000,
        }
    }
}

/// What the events are events of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracer {
    Graph,
    Function,
    Both,
}

pub struct Maker {
    pub events: Vec<Event>,
    limit: usize,
    clock: Clock,
    tracer: Tracer,
    random: Random,
}

impl Maker {
    fn enter(&mut self, site: u32, from: u32, place: u64, work: u64) {
        let parent = 0x5555_5540_0000 + u64::from(from) * 400 + place * 23;
        let kind = match self.tracer {
            Tracer::Graph => EventKind::Entry,
            Tracer::Function => EventKind::Call { parent },
            Tracer::Both => EventKind::EntryFrom { parent },
        };
        let ticks = self.clock.tick(work);
        self.events.push(Event { ticks, site: SiteId(site), kind });
    }

    fn leave(&mut self, site: u32, work: u64) {
        if self.tracer != Tracer::Function {
            let ticks = self.clock.tick(work);
            self.events.push(Event { ticks, site: SiteId(site), kind: EventKind::Exit { pops: 1 } });
        }
    }

    fn done(&self) -> bool {
        self.events.len() >= self.limit
    }

    fn fib(&mut self, n: u64, from: u32, place: u64) {
        if self.done() {
            return;
        }
        self.enter(7, from, place, 3);
        if n > 1 {
            self.fib(n - 1, 7, 1);
            self.fib(n - 2, 7, 2);
        }
        self.leave(7, 4);
    }

    /// A function of an interpreter: a fixed list of callees, some behind a branch, some in a loop.
    fn node(&mut self, site: u32, depth: u32, from: u32, place: u64) {
        if self.done() {
            return;
        }
        self.enter(site, from, place, u64::from(site % 13) * 3);
        let mut shape = Random::new(u64::from(site).wrapping_mul(0x9e37_79b9) + 1);
        shape.next();
        if depth < 12 {
            for place in 0..shape.below(4) {
                let callee = 1 + (shape.below(250) * shape.below(250) / 250) as u32;
                let bias = [100, 100, 95, 80, 50, 20][shape.below(6) as usize];
                let times = if shape.below(5) == 0 { 1 + self.random.below(4) } else { 1 };
                if self.random.below(100) < bias {
                    for _ in 0..times {
                        self.node(callee, depth + 1, site, place);
                    }
                }
            }
        }
        self.leave(site, u64::from(site % 7) * 5);
    }
}

fn maker(tracer: Tracer, machine: Machine, limit: usize) -> Maker {
    Maker {
        events: Vec::with_capacity(limit + 64),
        limit,
        clock: Clock::new(machine),
        tracer,
        random: Random::new(5),
    }
}

/// `fib(40)` until there are `limit` events: one function, a pattern that never quite repeats.
pub fn fib(tracer: Tracer, machine: Machine, limit: usize) -> Vec<Event> {
    let mut maker = maker(tracer, machine, limit);
    while !maker.done() {
        maker.fib(40, 0, 0);
    }
    maker.events
}

/// An interpreter: 250 functions, a third of the decisions open.
pub fn lua(tracer: Tracer, machine: Machine, limit: usize) -> Vec<Event> {
    let mut maker = maker(tracer, machine, limit);
    while !maker.done() {
        let operation = 1 + maker.random.below(40) as u32;
        maker.node(operation, 0, 0, u64::from(operation));
    }
    maker.events
}

/// Any session.
pub fn session(clock: ClockKind) -> Session {
    Session {
        calltap: "0.1.0".to_owned(),
        command: vec!["synthetic".to_owned()],
        host: "host".to_owned(),
        kernel: "6.1 x86_64".to_owned(),
        cpu: "cpu".to_owned(),
        start_realtime_ns: 1_700_000_000_000_000_000,
        start_monotonic_ns: 5_000_000_000,
        ..Session::of(clock)
    }
}
