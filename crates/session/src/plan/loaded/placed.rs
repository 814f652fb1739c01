//! A site of a process: what its bytes are, what they shall be, and the stubs that it was given.

use crate::plan::ahead::Ahead;
use calltap_patch::{Avma, Change, ChangeError, Demand, HookSet, Site, State};
use calltap_trace::Captured;
use rustix::io::Errno;
use std::sync::Arc;

/// A site that was wanted at some time.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Index of the function.
    pub function: usize,
    pub site: Site,
    /// What its bytes are.
    pub state: State,
    /// Where batches that were cut short led to: its bytes may also be something on the way there.
    pub torn: Vec<State>,
    /// Other bytes were found than expected: never touched again.
    pub refused: bool,
    /// No thread is inside it, so it may be switched.
    pub drained: bool,
    /// The stubs it has.
    pub stubs: Given,
    /// What it shall lead to.
    pub wanted: Option<HookSet>,
    /// It shall not: it is called too often, or the user has switched it off.
    pub disabled: bool,
    /// If it leads nowhere, it shall be a NOP: what it calls otherwise is for calltap alone.
    pub quiet: bool,
    /// It is a profiling function, and shall lead there.
    pub lead: Option<Avma>,
    /// It is not *the* site of its function (whose number may be none).
    pub apart: bool,
    /// It was found when it was first called.
    pub seen: bool,
    /// A thread is inside it: not now.
    pub held_back: bool,
    /// It is a breakpoint that stays, and no handler for those is in its process: it shall be off.
    pub unhandled: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Stub {
    /// What it is for.
    pub wanted: HookSet,
    pub id: u32,
    /// Where the site jumps: the stub or its veneer.
    pub target: Avma,
    /// Where what gave way to the jump is run.
    pub copy: Option<Avma>,
    /// The meaning of what is read of its calls, as far as it is known.
    pub captured: Option<Arc<Captured>>,
}

/// The stubs that a site was given, one for whatever was wanted of it at some time. Nearly always that is one.
#[derive(Clone, Default, Debug)]
pub(super) struct Given {
    pub first: Option<Stub>,
    pub more: Vec<Stub>,
}

impl Given {
    pub fn all(&self) -> impl Iterator<Item = &Stub> {
        self.first.iter().chain(&self.more)
    }

    pub fn of(&self, wanted: HookSet) -> Option<&Stub> {
        self.all().find(|stub| stub.wanted == wanted)
    }

    pub fn of_mut(&mut self, wanted: HookSet) -> Option<&mut Stub> {
        self.first.iter_mut().chain(&mut self.more).find(|stub| stub.wanted == wanted)
    }

    pub fn add(&mut self, stub: Stub) {
        match &mut self.first {
            Some(_) => self.more.push(stub),
            none => *none = Some(stub),
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&Stub) -> bool) {
        self.first.take_if(|stub| !keep(stub));
        self.more.retain(keep);
    }
}

impl Placed {
    pub fn new(function: usize, site: Site) -> Placed {
        let (torn, refused, drained, wanted) = (Vec::new(), false, false, None);
        Placed {
            function,
            site,
            state: State::Original,
            torn,
            refused,
            drained,
            stubs: Given::default(),
            wanted,
            disabled: false,
            quiet: false,
            lead: None,
            apart: false,
            seen: false,
            held_back: false,
            unhandled: site.is_trap(),
        }
    }

    /// What its bytes shall be now.
    pub fn shall(&self) -> State {
        if let Some(lead) = self.lead {
            return if self.drained { State::Enabled(lead) } else { State::Disabled };
        }
        let stub = self.stub().filter(|_| !self.unhandled);
        match (stub, self.state) {
            (None, State::Original) if !self.quiet => State::Original,
            (Some(stub), _) if self.drained => State::Enabled(stub.target),
            (None | Some(_), _) => State::Disabled,
        }
    }

    /// The stub that is wanted of it.
    pub fn stub(&self) -> Option<&Stub> {
        self.wanted.filter(|_| !self.disabled).and_then(|wanted| self.stubs.of(wanted))
    }

    /// What a thread that meets it is led to, or was before it was switched off.
    pub fn leads(&self) -> Option<Avma> {
        let now = if let State::Enabled(target) = self.state { Some(target) } else { None };
        let wanted = self.stub().map(|stub| stub.target);
        wanted.or(now).or(self.stubs.all().next().map(|stub| stub.target))
    }

    /// The change to that, if it is not so.
    pub fn change(&self) -> Option<Change<'_>> {
        let (from, to) = (self.state, self.shall());
        let is_needed = !self.refused && !self.held_back && (from != to || !self.torn.is_empty());
        is_needed.then_some(Change { site: &self.site, from, to, recover: &self.torn })
    }

    /// A change was made, or why not.
    pub fn settle(&mut self, to: State, failure: Option<&ChangeError<Errno>>) {
        match failure {
            None => {
                self.state = to;
                self.torn.clear();
            }
            // It is none: other bytes were there.
            Some(ChangeError::Mismatch(_)) => self.refused = true,
            // It is between its states.
            Some(ChangeError::PartialWrite(_)) if !self.torn.contains(&to) => self.torn.push(to),
            Some(_) => {}
        }
    }

    /// Finds out what it is now.
    pub fn look(&mut self, text: &mut Ahead<'_>) {
        let Ok(actual) = text.at(self.site.address(), self.site.len()) else {
            self.refused = true;
            return;
        };
        let targets = || self.stubs.all().map(|stub| stub.target).chain(self.lead).map(State::Enabled);
        match self.site.state_of(actual, targets()) {
            Some(state) => self.state = state,
            None => (self.state, self.torn) = (State::Disabled, targets().chain([State::Original]).collect()),
        }
        // The controller that switched it on had seen to that; what is as in the file has to be normalized again.
        self.drained &= self.state != State::Original;
        self.drained |= matches!(self.state, State::Enabled(_))
            || self.site.demand(State::Original, State::Disabled) == Demand::Nothing;
    }
}
