//! A site of a process: its current and desired bytes, and its stubs.

use crate::plan::read_ahead::ReadAhead;
use calltap_patch::{Avma, Change, ChangeError, Demand, HookSet, Site, State};
use calltap_trace::Captured;
use rustix::io::Errno;
use std::sync::Arc;

/// A site that was selected at some time.
#[derive(Clone, Debug)]
pub(super) struct ProcessSite {
    /// Index of the function.
    pub function: usize,
    pub site: Site,
    /// State of its bytes.
    pub state: State,
    /// Targets of batches that were cut short: its bytes may also be in a transition to one.
    pub torn: Vec<State>,
    /// Whether unexpected bytes were found: the site is never written again.
    pub refused: bool,
    /// Whether no thread is inside, so that it may be switched.
    pub drained: bool,
    /// The stubs of the site.
    pub stubs: SiteStubs,
    /// The hooks that it should lead to.
    pub hook_set: Option<HookSet>,
    /// Whether it stays disabled: by the overhead limit or by the user.
    pub disabled: bool,
    /// Whether it must be a NOP when it leads nowhere, because its original bytes are a call of the
    /// profiling function.
    pub quiet: bool,
    /// Target, if it is a profiling function that leads to the recorder.
    pub lead: Option<Avma>,
    /// Whether it is not the main site of its function, whose index may then be none.
    pub apart: bool,
    /// Whether it was found at its first execution.
    pub seen: bool,
    /// Whether it is not changed now, as a thread is inside.
    pub held_back: bool,
    /// Whether the journal could not take its original bytes, so that it must keep them.
    pub unjournaled: bool,
    /// Whether it is a permanent breakpoint, and its process has no handler: it is disabled then.
    pub unhandled: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Stub {
    /// The hook set.
    pub hook_set: HookSet,
    pub id: u32,
    /// Jump target of the site: the stub or its veneer.
    pub target: Avma,
    /// Out-of-line copy of the instructions that the jump overwrites.
    pub copy: Option<Avma>,
    /// Meaning of the values that it reads, as far as it is known.
    pub captured: Option<Arc<Captured>>,
}

/// The stubs of a site, one for each hook set that was ever requested: nearly always one.
#[derive(Clone, Default, Debug)]
pub(super) struct SiteStubs {
    pub first: Option<Stub>,
    pub more: Vec<Stub>,
}

impl SiteStubs {
    pub(super) fn all(&self) -> impl Iterator<Item = &Stub> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn of(&self, hook_set: HookSet) -> Option<&Stub> {
        self.all().find(|stub| stub.hook_set == hook_set)
    }

    pub(super) fn of_mut(&mut self, hook_set: HookSet) -> Option<&mut Stub> {
        self.first.iter_mut().chain(&mut self.more).find(|stub| stub.hook_set == hook_set)
    }

    pub(super) fn add(&mut self, stub: Stub) {
        match &mut self.first {
            Some(_) => self.more.push(stub),
            none => *none = Some(stub),
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Stub) -> bool) {
        self.first.take_if(|stub| !keep(stub));
        self.more.retain(keep);
    }
}

impl ProcessSite {
    pub(super) fn new(function: usize, site: Site) -> ProcessSite {
        let (torn, refused, drained, hook_set) = (Vec::new(), false, false, None);
        ProcessSite {
            function,
            site,
            state: State::Original,
            torn,
            refused,
            drained,
            stubs: SiteStubs::default(),
            hook_set,
            disabled: false,
            quiet: false,
            lead: None,
            apart: false,
            seen: false,
            held_back: false,
            unjournaled: false,
            unhandled: site.is_trap(),
        }
    }

    /// Returns the desired state.
    pub(super) fn desired_state(&self) -> State {
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

    /// Returns the stub for the requested hooks.
    pub(super) fn stub(&self) -> Option<&Stub> {
        self.hook_set.filter(|_| !self.disabled).and_then(|hook_set| self.stubs.of(hook_set))
    }

    /// Whether it was ever selected to be traced.
    pub(super) fn is_traced(&self) -> bool {
        self.stubs.all().any(|stub| !stub.hook_set.only_watches())
    }

    /// Whether it is the site of a function that is watched and not traced.
    pub(super) fn only_watches(&self) -> bool {
        self.hook_set.map_or(!self.is_traced(), HookSet::only_watches) && self.stubs.first.is_some()
    }

    /// Returns the stub that it leads to now.
    pub(super) fn stub_on(&self) -> Option<&Stub> {
        let State::Enabled(target) = self.state else { return None };
        self.stubs.all().find(|stub| stub.target == target)
    }

    /// Whether it leads to a stub that traces its function.
    pub(super) fn is_on(&self) -> bool {
        self.stub_on().is_some_and(|stub| !stub.hook_set.only_watches())
    }

    /// Returns the target of a thread that executes the site, or the target before it was disabled.
    pub(super) fn leads(&self) -> Option<Avma> {
        let now = if let State::Enabled(target) = self.state { Some(target) } else { None };
        let target = self.stub().map(|stub| stub.target);
        target.or(now).or(self.stubs.all().next().map(|stub| stub.target))
    }

    /// Returns the change to the desired state, if one is needed.
    pub(super) fn change(&self) -> Option<Change<'_>> {
        let (from, to) = (self.state, self.desired_state());
        let is_writable = !self.refused && !self.held_back && !self.unjournaled;
        let is_needed = is_writable && (from != to || !self.torn.is_empty());
        is_needed.then_some(Change { site: &self.site, from, to, recover: &self.torn })
    }

    /// Records the result of a change.
    pub(super) fn settle(&mut self, to: State, failure: Option<&ChangeError<Errno>>) {
        match failure {
            None => {
                self.state = to;
                self.torn.clear();
            }
            // The site is not as expected: other bytes were there.
            Some(ChangeError::Mismatch(_)) => self.refused = true,
            // The site is between two states.
            Some(ChangeError::PartialWrite(_)) if !self.torn.contains(&to) => self.torn.push(to),
            Some(_) => {}
        }
    }

    /// Reads the current state.
    pub(super) fn read_states(&mut self, text: &mut ReadAhead<'_>) {
        let Ok(actual) = text.at(self.site.address(), self.site.len()) else {
            self.refused = true;
            return;
        };
        let targets = || self.stubs.all().map(|stub| stub.target).chain(self.lead).map(State::Enabled);
        match self.site.state_of(actual, targets()) {
            Some(state) => self.state = state,
            None => (self.state, self.torn) = (State::Disabled, targets().chain([State::Original]).collect()),
        }
        // The controller that enabled it had made sure of that. A site with the file's bytes has to
        // be normalized again.
        self.drained &= self.state != State::Original;
        self.drained |= matches!(self.state, State::Enabled(_))
            || self.site.demand(State::Original, State::Disabled) == Demand::Nothing;
    }
}
