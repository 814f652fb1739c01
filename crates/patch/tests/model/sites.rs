//! Every kind of site, and the actions that change it.

use calltap_patch::{Avma, Bias, Demand, STEPS, Site, State, Transition};
use calltap_sites::{SiteForm, Svma};

use super::machine::{Exit, Ground};

/// Addresses near the beginning of a page, across two cache lines, and across two pages.
pub const PLACES: [u64; 3] = [0x40_1010, 0x40_103d, 0x40_1ffd];

/// A kind of site.
pub struct Case {
    pub name: String,
    pub site: Site,
    pub ground: Ground,
    /// Ways of threads out of the site with the file's bytes.
    leaves: Vec<Exit>,
    pub calls: bool,
    /// Whether it is a function that is replaced as a whole: disabled, it returns.
    pub returns: bool,
    /// The instruction of the site while it is changed.
    pub transition: Transition,
}

/// Method to find the threads inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// No method.
    Nowhere,
    /// By the threads' positions.
    Here,
    /// By the threads' positions, and the return addresses of calls from the site.
    Returns,
}

/// An action of the patcher.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Stores bytes: step, offset, bytes.
    Store(usize, usize, Vec<u8>),
    Sync(usize),
    /// Waits until no thread is inside.
    Drain(Look),
    /// Stops all threads, with none inside.
    Stop(Look),
    Continue,
}

impl Case {
    pub fn state(&self, n: usize) -> State {
        // The operands differ in all bytes, and no byte of them is a good instruction.
        let on = |relative: u64| State::Enabled(Avma(self.ground.base + 5 + relative));
        match n {
            0 => State::Original,
            1 => State::Disabled,
            2 => on(0x70F4_CCC3),
            _ => on(0x1B0F_0BF1),
        }
    }

    pub fn bytes(&self, state: State) -> Vec<u8> {
        self.site.bytes(state).unwrap().to_vec()
    }

    /// Ways of threads out of the site in a state.
    pub fn exits(&self, state: State) -> Vec<Exit> {
        match state {
            State::Enabled(target) if self.calls => vec![Exit::Call(target.0)],
            State::Enabled(target) => vec![Exit::Jump(target.0)],
            State::Disabled if self.returns => vec![Exit::Return],
            State::Disabled if self.bytes(state) != self.bytes(State::Original) => Vec::new(),
            State::Original | State::Disabled => self.leaves.clone(),
        }
    }

    pub fn acts(&self, from: State, to: State, transition: Transition) -> Vec<Act> {
        let steps = self.site.steps(from, to, transition).unwrap();
        let demand = self.site.demand(from, to);
        let mut acts = Vec::new();
        for step in 0..STEPS {
            steps.each(step, |at, new| match acts.last_mut() {
                // Bytes written together may be torn at any point.
                Some(Act::Store(same, before, bytes))
                    if (*same, *before + bytes.len()) == (step, at.into()) =>
                {
                    bytes.extend(new);
                }
                _ => acts.push(Act::Store(step, at.into(), new.to_vec())),
            });
            if !steps.is_empty(step) {
                acts.push(Act::Sync(step));
            }
            if step == 0 && demand == Demand::Outside {
                acts.push(Act::Drain(Look::Returns));
            }
        }
        if demand == Demand::Stopped {
            acts.insert(0, Act::Stop(Look::Returns));
            acts.push(Act::Continue);
        }
        acts
    }
}

fn entry(name: &str, place: u64, old: &[u8], leaves: Vec<Exit>) -> Case {
    let form = SiteForm::Entry { at: Svma(place), old: old.to_vec() };
    whole(name, place, old, leaves, Site::new(&form, Bias(0)), false)
}

fn after_prologue(name: &str, place: u64, old: &[u8], leaves: Vec<Exit>) -> Case {
    let form = SiteForm::AfterPrologue { at: Svma(place), old: old.to_vec() };
    whole(name, place, old, leaves, Site::new(&form, Bias(0)), true)
}

fn whole(name: &str, base: u64, old: &[u8], leaves: Vec<Exit>, site: Option<Site>, calls: bool) -> Case {
    let falls_through = old[0] != 0xC3;
    let (site, handled) = (site.unwrap(), None);
    let ground = Ground { base, length: old.len(), entries: vec![0], falls_through, handled };
    let name = format!("{name} at {base:#x}");
    let (returns, transition) = (false, Transition::Test);
    Case { name, site, ground, leaves, calls, returns, transition }
}

const NOPS: [&[u8]; 6] = [
    &[0x0F, 0x1F, 0x44, 0, 0],
    &[0x66, 0x0F, 0x1F, 0x44, 0, 0],
    &[0x0F, 0x1F, 0x80, 0, 0, 0, 0],
    &[0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x2E, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
];
const CALL: [u8; 5] = [0xE8, 0xC1, 0xF2, 0xD3, 0x24];
const ADDR32_CALL: [u8; 6] = [0x67, 0xE8, 0xC1, 0xF2, 0xD3, 0x24];
const CALL_THROUGH: [u8; 6] = [0xFF, 0x15, 0xC1, 0xF2, 0xD3, 0x24];
const CALLED: u64 = 0x24D3_F2C1;

pub fn nops(place: u64) -> Vec<Case> {
    let of = |old: &&[u8]| entry(&format!("a NOP of {} bytes", old.len()), place, old, vec![]);
    NOPS.iter().map(of).collect()
}

pub fn single_nops(place: u64) -> Case {
    entry("five NOPs", place, &[0x90; 5], vec![])
}

pub fn calls(place: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for make in [entry, after_prologue] {
        cases.push(make("a call", place, &CALL, vec![Exit::Call(place + 5 + CALLED)]));
        cases.push(make("a call of 6 bytes", place, &ADDR32_CALL, vec![Exit::Call(place + 6 + CALLED)]));
        let through = vec![Exit::CallThrough(place + 6 + CALLED)];
        cases.push(make("a call through a pointer", place, &CALL_THROUGH, through));
    }
    cases.push(after_prologue("a NOP for a call", place, NOPS[0], vec![]));
    cases.push(after_prologue("a NOP of 7 bytes for a call", place, NOPS[2], vec![]));
    cases.push(after_prologue("a NOP for a call of 6 bytes", place, NOPS[1], vec![]));
    cases.push(entry("NOPs of 3 and 2 bytes", place, &[0x0F, 0x1F, 0, 0x66, 0x90], vec![]));
    cases
}

/// Sites of the library, which call from the entry.
pub fn calling(place: u64) -> Vec<Case> {
    let of = |old: &[u8]| {
        let form = SiteForm::Entry { at: Svma(place), old: old.to_vec() };
        let site = Site::calling(&form, Bias(0));
        assert_eq!(site.map(|site| site.after().0), Some(place + if old.len() == 6 { 6 } else { 5 }));
        whole(&format!("{old:02x?} that shall call"), place, old, vec![], site, true)
    };
    NOPS.iter().copied().chain([&[0x90; 5][..], &[0x90; 8]]).map(of).collect()
}

pub fn prefixed(place: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for prefix_old in [vec![0x90; 5], NOPS[0].to_vec()] {
        for entry_old in [vec![0x90; 2], vec![0x66, 0x90]] {
            for gap in [0, 4] {
                let (prefix, entry) = (Svma(place), Svma(place + 5 + gap));
                let name =
                    format!("{prefix_old:02x?} in front, {entry_old:02x?} at the entry behind {gap} bytes");
                let (prefix_old, entry_old) = (prefix_old.clone(), entry_old.clone());
                let form = SiteForm::Prefix { prefix, prefix_old, entry, entry_old };
                let site = Site::new(&form, Bias(0)).unwrap();
                let case =
                    whole(&name, place, &site.bytes(State::Original).unwrap(), vec![], Some(site), false);
                let ground = Ground { entries: vec![5], ..case.ground };
                cases.push(Case { ground, ..case });
            }
        }
    }
    cases
}

pub fn empty_functions(place: u64) -> Vec<Case> {
    let paddings =
        [[0x90; 4], [0xCC; 4], [0x66, 0x66, 0x2E, 0x0F], [0x0F, 0x1F, 0x40, 0], [0x66, 0x90, 0xCC, 0xCC]];
    let of = |padding: [u8; 4]| {
        let old = [0xC3, padding[0], padding[1], padding[2], padding[3]];
        let site = Site::empty_function(Avma(place), old);
        whole(&format!("a return and {padding:02x?}"), place, &old, vec![Exit::Return], site, false)
    };
    paddings.into_iter().map(of).collect()
}

/// Sleds that XRay leaves at entries and exits.
pub fn sleds(place: u64) -> Vec<Case> {
    let jump = [0xEB, 9, 0x66, 0x0F, 0x1F, 0x84, 0, 0, 2, 0, 0];
    let ret = [0xC3, 0x2E, 0x66, 0x0F, 0x1F, 0x84, 0, 0, 2, 0, 0];
    let exit = |old: &[u8]| {
        let exit = calltap_sites::Exit {
            at: Svma(place),
            old: old.to_vec(),
            leaves: vec![0],
            is_sled: true,
            keeps_pop: false,
        };
        Site::exit(&exit, Bias(0))
    };
    vec![
        entry("a sled at an entry", place, &jump, vec![]),
        whole("a sled in front of a jump", place, &jump, vec![], exit(&jump), false),
        whole("a sled that returns", place, &ret, vec![Exit::Return], exit(&ret), false),
    ]
}

/// Functions of harmless instructions, replaced as a whole.
pub fn functions(place: u64) -> Vec<Case> {
    let of = |old: [u8; 5]| {
        let site = Site::function(Avma(place), old);
        let case = whole(&format!("a function that begins {old:02x?}"), place, &old, vec![], site, false);
        Case { returns: true, ..case }
    };
    let all = [
        [0x0F, 0x1F, 0x40, 0, 0x90],
        [0x0F, 0x1F, 0x44, 0, 0],
        [0x0F, 0x1F, 0, 0x66, 0x90],
        [0x66, 0x90, 0x66, 0x66, 0x90],
        [0x90; 5],
        [0xF3, 0x0F, 0x1E, 0xFA, 0x90],
    ];
    all.map(of).into()
}

/// Functions whose prologue is overwritten. Its instructions are harmless here.
pub fn prologues(place: u64) -> Vec<Case> {
    let of = |old: &&[u8]| {
        let form = SiteForm::Prologue { at: Svma(place), old: old.to_vec() };
        whole(
            &format!("a function that begins {old:02x?}"),
            place,
            old,
            vec![],
            Site::new(&form, Bias(0)),
            false,
        )
    };
    let all: [&[u8]; 5] = [
        &[0x0F, 0x1F, 0x44, 0, 0],
        &[0xF9, 0x0F, 0x1F, 0, 0xF5],
        &[0x66, 0x90, 0x0F, 0x1F, 0],
        &[0x0F, 0x1F, 0, 0x0F, 0x1F, 0x44, 0, 0],
        &[0x66, 0x90, 0x66, 0x90, 0x66, 0x2E, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
    ];
    all.iter().map(of).collect()
}

/// Passes cases through another transition.
pub fn through(transition: Transition, cases: Vec<Case>) -> Vec<Case> {
    let handled = |case: &Case| {
        let at = (case.site.breakpoint()?.0 - case.ground.base) as usize;
        Some((at, at + 5)).filter(|_| transition == Transition::Int3)
    };
    let through = |case: Case| {
        let handled = if case.site.is_trap() { case.ground.handled } else { handled(&case) };
        let ground = Ground { handled, ..case.ground };
        Case { ground, transition, ..case }
    };
    cases.into_iter().map(through).collect()
}

/// Functions whose first instruction becomes a jump to the one in front of them. That instruction
/// and the padding are harmless here.
pub fn besides(place: u64) -> Vec<Case> {
    let of = |(gap, old): (&[u8], &[u8])| {
        let front_old = [&[0x90; 5][..], gap].concat();
        let at = Svma(place + front_old.len() as u64);
        let form = SiteForm::PaddingJump { front: Svma(place), front_old, at, old: old.to_vec() };
        let site = Site::new(&form, Bias(0)).unwrap();
        let (handled, transition) = (None, Transition::Test);
        let ground =
            Ground { base: place, length: site.len(), entries: vec![5], falls_through: true, handled };
        let name = format!("a jump in front of {gap:02x?} {old:02x?} at {place:#x}");
        Case { name, site, ground, leaves: vec![], calls: false, returns: false, transition }
    };
    let endbr = &[0xF3, 0x0F, 0x1E, 0xFA][..];
    let all: [(&[u8], &[u8]); 4] = [
        (&[0x66, 0x0F, 0x1F, 0x44, 0, 0], &[0x0F, 0x1F, 0]),
        (&[], &[0x66, 0x90]),
        (&[], &[0x0F, 0x1F, 0]),
        (endbr, &[0x0F, 0x1F, 0x40, 0]),
    ];
    all.into_iter().map(of).collect()
}

/// Functions whose first byte becomes a breakpoint. The instruction is harmless here.
pub fn traps(place: u64) -> Vec<Case> {
    let of = |old: &&[u8]| {
        let form = SiteForm::Trap { at: Svma(place), old: old.to_vec() };
        let name = format!("a breakpoint on {old:02x?}");
        let case = whole(&name, place, old, vec![], Site::new(&form, Bias(0)), false);
        // A thread that has trapped does not return here.
        let ground = Ground { handled: Some((0, usize::MAX)), ..case.ground };
        Case { ground, ..case }
    };
    let all: [&[u8]; 5] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0F, 0x1F, 0],
        &[0xF9, 0x0F, 0x1F, 0, 0xF5],
        &[0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
    ];
    all.iter().map(of).collect()
}

/// Sites that are switched while threads run.
pub fn live(place: u64) -> Vec<Case> {
    let mut cases = nops(place);
    cases.push(single_nops(place));
    cases.extend(calls(place));
    cases.extend(calling(place));
    cases.extend(prefixed(place));
    cases.extend(empty_functions(place));
    cases.extend(functions(place));
    cases.extend(sleds(place));
    cases
}

/// All sites.
pub fn every_kind(place: u64) -> Vec<Case> {
    let mut cases = live(place);
    cases.extend(prologues(place));
    cases.extend(besides(place));
    cases.extend(traps(place));
    cases
}
