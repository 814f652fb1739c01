//! Rules for a site of a function without room, once there is one.

use super::facts::SiteFacts;
use crate::reason::Reason;
use crate::site::SiteForm;

/// Each turn of a loop would count as a call.
pub(super) fn loops_to_entry(site: &SiteFacts<'_>) -> Option<Reason> {
    site.of.file.branches.loops_to(site.of.at).then_some(Reason::LoopsToEntry)
}

/// Breakpoints are used on request only.
pub(super) fn needs_breakpoint(site: &SiteFacts<'_>) -> Option<Reason> {
    let why = site.no_jump.filter(|_| matches!(site.form, SiteForm::Trap { .. }) && !site.of.file.int3)?;
    Some(Reason::OnlyBreakpoint { why: Box::new(why.clone()) })
}
