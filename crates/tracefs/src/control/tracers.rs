//! The tracers: `current_tracer`, `function_tracers`, `function_profile_enabled`.
//!
//! One tracer is always the default: `set_ftrace_filter` and `set_ftrace_notrace` change its
//! filters. It is the tracer that was registered last, until the name of another is written to
//! `function_tracers`.

use super::{Effect, Model, Refusal};
use calltap_selection::TracerSelection;
use calltap_trace::TracerKind;

/// Name of the tracer that `current_tracer` registers.
pub const TRACE: &str = "trace";
/// Name of the tracer that `function_profile_enabled` registers.
pub const PROFILE: &str = "trace_profile";

impl Model<'_> {
    pub(crate) fn current_tracer(&self) -> String {
        let kind =
            self.words.tracers.iter().find(|tracer| tracer.name == TRACE).and_then(|tracer| tracer.kind);
        let name = match kind {
            Some(TracerKind::Function) => "function",
            Some(TracerKind::FunctionGraph) => "function_graph",
            Some(TracerKind::Profile) | None => "nop",
        };
        format!("{name}\n")
    }

    pub(crate) fn set_current_tracer(&mut self, text: &str) -> Result<(), Refusal> {
        let kind = match text.trim() {
            "function" => Some(TracerKind::Function),
            "function_graph" => Some(TracerKind::FunctionGraph),
            "nop" => None,
            other => {
                return Err(Refusal::invalid(format!("no tracer named '{other}' (see available_tracers)")));
            }
        };
        self.set_kind(TRACE, kind);
        Ok(())
    }

    pub(crate) fn function_tracers(&self) -> String {
        let default = self.default_tracer().map(|tracer| &tracer.name);
        let star = |name| if default == Some(name) { "*" } else { "" };
        self.registered().map(|tracer| format!("{}{}\n", star(&tracer.name), tracer.name)).collect()
    }

    pub(crate) fn set_default_tracer(&mut self, text: &str) -> Result<(), Refusal> {
        let name = text.trim();
        if !self.registered().any(|tracer| tracer.name == name) {
            return Err(Refusal::invalid(format!("no tracer '{name}' is registered (see function_tracers)")));
        }
        self.words.default = Some(name.to_owned());
        Ok(())
    }

    pub(crate) fn profile_enabled(&self) -> bool {
        self.registered().any(|tracer| tracer.name == PROFILE)
    }

    pub(crate) fn set_profile_enabled(&mut self, on: bool) -> Result<Effect, Refusal> {
        let begins = on && !self.profile_enabled();
        self.set_kind(PROFILE, on.then_some(TracerKind::Profile));
        Ok(Effect { resets_profile: begins })
    }

    /// Returns the tracer whose filters the files change: the chosen one if it is registered, else
    /// the last registered one, else the one that `current_tracer` would register.
    pub(crate) fn default_tracer(&self) -> Option<&TracerSelection> {
        let chosen = self.registered().find(|tracer| Some(&tracer.name) == self.words.default.as_ref());
        let unregistered = || self.words.tracers.iter().find(|tracer| tracer.name == TRACE);
        chosen.or_else(|| self.registered().last()).or_else(unregistered)
    }

    /// Returns the default tracer for changes.
    pub(crate) fn default_tracer_mut(&mut self) -> &mut TracerSelection {
        let name = self.default_tracer().map_or_else(|| TRACE.to_owned(), |tracer| tracer.name.clone());
        self.tracer(&name)
    }

    /// Sets a tracer's kind, and keeps its filters.
    fn set_kind(&mut self, name: &str, kind: Option<TracerKind>) {
        let tracer = self.tracer(name);
        let registers = tracer.kind.is_none() && kind.is_some();
        tracer.kind = kind;
        if registers {
            self.words.default = Some(name.to_owned());
        }
    }

    /// Returns the tracer with a name, for changes. The words that apply to all tracers are first
    /// moved to each of them.
    fn tracer(&mut self, name: &str) -> &mut TracerSelection {
        let words = &mut self.words;
        let new = |name: &str, kind| TracerSelection {
            name: name.to_owned(),
            kind,
            filter: vec![],
            notrace: vec![],
        };
        if words.tracers.is_empty() {
            words.tracers.push(new(TRACE, Some(TracerKind::FunctionGraph)));
        }
        let (filter, notrace) = (std::mem::take(&mut words.filter), std::mem::take(&mut words.notrace));
        for tracer in &mut words.tracers {
            tracer.filter.extend_from_slice(&filter);
            tracer.notrace.extend_from_slice(&notrace);
        }
        let place = words.tracers.iter().position(|tracer| tracer.name == name).unwrap_or_else(|| {
            words.tracers.push(new(name, None));
            words.tracers.len() - 1
        });
        &mut words.tracers[place]
    }
}
