//! The search through all orders of changes, and all points where a batch may be interrupted.

use std::collections::BTreeMap;

use calltap_patch::{State, Transition};

use super::machine::{Exit, Fetches, Memory, Thread, World};
use super::sites::{Act, Case, Look};

/// Turns a batch into an incorrect one.
pub type Falsify<'a> = &'a dyn Fn(&Case, Vec<Act>) -> Vec<Act>;
/// Description of how a thread was harmed, from its entry on.
pub type Harm = String;

/// Applies batches in all orders, until threads reach no new position.
pub struct Proof<'a> {
    case: &'a Case,
    falsify: Falsify<'a>,
    fetches: Fetches,
    /// Transition of the batch that follows an interrupted one.
    resuming: Transition,
    /// Worlds between batches, by state.
    rest: BTreeMap<(usize, Memory), World>,
}

/// Worlds after interrupted batches, by the states between which they were.
type Cuts = BTreeMap<([usize; 2], Memory), World>;

impl<'a> Proof<'a> {
    pub fn new(case: &'a Case, falsify: Falsify<'a>) -> Result<Proof<'a>, Harm> {
        let (fetches, rest, resuming) = (Fetches::default(), BTreeMap::new(), Transition::Test);
        let mut proof = Proof { case, falsify, fetches, resuming, rest };
        proof.reach_rest(0, World::new(&case.bytes(State::Original)))?;
        Ok(proof)
    }

    /// Sets the transition of batches that follow interrupted ones.
    pub fn resuming(self, resuming: Transition) -> Proof<'a> {
        Proof { resuming, ..self }
    }

    fn run(&mut self, world: &mut World, states: &[State]) -> Result<(), Harm> {
        let always = (!self.case.ground.falls_through || self.case.returns).then_some(Exit::Return);
        let allowed: Vec<Exit> =
            states.iter().flat_map(|state| self.case.exits(*state)).chain(always).collect();
        world.run(&self.case.ground, &allowed, &mut self.fetches)
    }

    /// Waits for the threads inside the site.
    fn drain(&self, world: &mut World, look: Look) {
        if look == Look::Nowhere {
            return;
        }
        let address = |offset: usize| self.case.ground.base + offset as u64;
        let is_inside = |offset: usize| self.case.site.is_inside(address(offset));
        let is_return = |offset: usize| self.case.site.may_return_to(address(offset));
        world.threads.retain(|thread, _| match *thread {
            Thread::At(offset) => !is_inside(offset),
            Thread::Away(back) => look == Look::Here || !(is_inside(back) && is_return(back)),
            // The position of a trapped thread is on the stack while the handler runs.
            Thread::Trapped(at) => look == Look::Here || !is_inside(at + 1),
        });
    }

    fn take(&mut self, world: &mut World, act: &Act, states: &[State]) -> Result<(), Harm> {
        let now = |what: String| format!("{:x?}, {what}", states).into();
        match act {
            Act::Store(step, offset, bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    world.memory.store(offset + i, *byte);
                }
                world.now = now(format!("step {step} stored"));
            }
            Act::Sync(step) => {
                world.memory.sync();
                world.now = now(format!("step {step} synced"));
            }
            Act::Drain(look) => self.drain(world, *look),
            Act::Stop(look) => {
                self.drain(world, *look);
                world.stopped = true;
            }
            Act::Continue => {
                // A thread that was stopped returns from the kernel, which serialises.
                world.memory.sync();
                world.stopped = false;
                world.now = now("all continue".to_owned());
            }
        }
        self.run(world, states)
    }

    fn take_all(&mut self, world: &mut World, acts: &[Act], states: &[State]) -> Result<(), Harm> {
        acts.iter().try_for_each(|act| self.take(world, act, states))
    }

    /// Adds a world whose batch is done to those before. Returns whether it was new.
    fn reach_rest(&mut self, state: usize, mut world: World) -> Result<bool, Harm> {
        let (to, newest) = (self.case.state(state), world.memory.newest());
        if newest != self.case.bytes(to) {
            return Err(format!("{}: not {to:x?} but {newest:02x?}", world.now));
        }
        self.run(&mut world, &[to])?;
        Ok(join(&mut self.rest, (state, world.memory.clone()), world))
    }

    fn acts(&self, from: usize, to: usize) -> Vec<Act> {
        let (from, to) = (self.case.state(from), self.case.state(to));
        (self.falsify)(self.case, self.case.acts(from, to, self.case.transition))
    }

    /// A batch that follows an interrupted one, possibly through another transition.
    fn resume(&self, memory: &Memory, cut: [usize; 2], to: usize) -> Vec<Act> {
        let (cut, to) = (cut.map(|n| self.case.state(n)), self.case.state(to));
        let int3 = self.case.ground.handled.is_some();
        let from = self.case.site.recognise(&memory.newest(), &cut, to, int3).unwrap();
        // A writer that undoes everything must not take the bytes for another tool's.
        assert!(!self.case.site.is_foreign(&memory.newest(), &[2, 3].map(|n| self.case.state(n))));
        let mut acts = self.case.acts(from, to, self.resuming);
        acts.insert(0, Act::Sync(0));
        acts
    }

    /// Applies all batches, one after another, in all orders.
    pub fn changes(&mut self) -> Result<(), Harm> {
        let mut tried = BTreeMap::new();
        loop {
            let mut is_new = false;
            for ((from, memory), rest) in self.rest.clone() {
                // Threads are only ever added.
                if tried.insert((from, memory), rest.threads.len()) == Some(rest.threads.len()) {
                    continue;
                }
                for to in (0..4).filter(|to| *to != from) {
                    let mut world = rest.clone();
                    let states = [self.case.state(from), self.case.state(to)];
                    self.take_all(&mut world, &self.acts(from, to), &states)?;
                    is_new |= self.reach_rest(to, world)?;
                }
            }
            if !is_new {
                return Ok(());
            }
        }
    }

    /// Returns a world after each act of a batch, and after every part of each store.
    fn cut_short(&mut self, mut world: World, acts: &[Act], states: &[State]) -> Result<Vec<World>, Harm> {
        let mut cuts = Vec::new();
        for act in acts {
            // The writer's death may also tear a store to stopped threads' code, but may then leave
            // any bytes.
            if let Act::Store(step, offset, bytes) = act
                && !world.stopped
            {
                let old = world.memory.newest();
                let differ: Vec<_> = (0..bytes.len()).filter(|i| bytes[*i] != old[offset + i]).collect();
                for some in 0..1 << differ.len() {
                    let mut torn = world.clone();
                    torn.now = format!("{states:x?}, step {step} cut short").into();
                    for (_, i) in differ.iter().enumerate().filter(|(n, _)| some >> n & 1 == 1) {
                        torn.memory.store(offset + i, bytes[*i]);
                    }
                    self.run(&mut torn, states)?;
                    cuts.push(torn);
                }
            }
            self.take(&mut world, act, states)?;
            let mut left = world.clone();
            if left.stopped {
                self.take(&mut left, &Act::Continue, states)?;
            }
            cuts.push(left);
        }
        Ok(cuts)
    }

    fn all_cuts(&mut self) -> Result<Cuts, Harm> {
        let mut cuts = Cuts::new();
        for ((from, _), rest) in self.rest.clone() {
            for to in (0..4).filter(|to| *to != from) {
                let states = [self.case.state(from), self.case.state(to)];
                for cut in self.cut_short(rest.clone(), &self.acts(from, to), &states)? {
                    join(&mut cuts, ([from, to], cut.memory.clone()), cut);
                }
            }
        }
        Ok(cuts)
    }

    /// Interrupts all batches at every point, then recovers to each of the target states, possibly
    /// after another interrupted recovery, and applies all changes that may follow.
    pub fn recoveries(&mut self, targets: &[usize], twice: bool) -> Result<(), Harm> {
        let mut tried = BTreeMap::new();
        loop {
            self.changes()?;
            let mut is_new = false;
            let mut cuts = self.all_cuts()?;
            for again in [twice, false] {
                for ((cut, memory), world) in cuts.clone() {
                    let key = (again, cut, memory.clone());
                    if tried.insert(key, world.threads.len()) == Some(world.threads.len()) {
                        continue;
                    }
                    if again {
                        let states = [cut[0], cut[1], 0].map(|n| self.case.state(n));
                        for second in self.cut_short(world, &self.resume(&memory, cut, 0), &states)? {
                            join(&mut cuts, (cut, second.memory.clone()), second);
                        }
                        continue;
                    }
                    for target in targets {
                        let states = [cut[0], cut[1], 0, *target].map(|n| self.case.state(n));
                        let mut world = world.clone();
                        self.take_all(&mut world, &self.resume(&memory, cut, *target), &states)?;
                        is_new |= self.reach_rest(*target, world)?;
                    }
                }
            }
            if !is_new {
                return Ok(());
            }
        }
    }
}

/// Adds the threads of a world to those of the same key. Returns whether any was new.
fn join<K: Ord>(worlds: &mut BTreeMap<K, World>, key: K, world: World) -> bool {
    match worlds.get_mut(&key) {
        Some(known) => known.join(&world.threads),
        None => {
            worlds.insert(key, world);
            true
        }
    }
}

/// Checks that a thread that enters may execute these bytes while the site is between states.
pub fn is_valid(case: &Case, bytes: &[u8], states: &[State]) -> Result<(), Harm> {
    let mut proof = Proof::new(case, &|_, acts| acts)?;
    proof.run(&mut World::new(bytes), states)
}
