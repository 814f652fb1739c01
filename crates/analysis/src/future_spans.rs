//! Collects all futures of a recording.

use crate::answers::{EndedCall, Function, Listener, QueryContext, Question, seen_future};
use crate::futures::{Joiner, Role, Span};
use crate::sources::source::Source;
use serde_json::Value;
use std::collections::HashMap;

/// A question that keeps every span.
#[derive(Default)]
struct All {
    joiner: Joiner,
    roles: HashMap<Function, Option<u32>>,
    spans: Vec<Span>,
}

impl Question for All {
    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        let number = |role: &Role| self.joiner.role(role);
        let role = self.roles.entry(ended.function).or_insert_with(|| known.role(ended.function).map(number));
        if let Some(role) = *role {
            self.joiner.seen(seen_future(known, ended, role));
        }
    }

    fn finish(&mut self, _: &QueryContext) {
        self.joiner.finish(&mut |span| self.spans.push(span));
    }

    fn text(&self, _: &QueryContext) -> String {
        String::new()
    }

    fn json(&self, _: &QueryContext) -> Value {
        Value::Null
    }
}

/// Returns the futures of a recording with all their polls, in the order in which they began. Empty
/// unless the recording was made for futures.
pub fn future_spans(source: &dyn Source) -> Vec<Span> {
    if !source.meta().sites.iter().any(|site| Role::of(site).is_some()) {
        return Vec::new();
    }
    let all = All { joiner: Joiner::default().keeping_polls(), ..All::default() };
    let mut listener = Listener::new(QueryContext::new(Vec::new(), false, None), all);
    listener.read(source, None, &mut |_| false);
    let mut spans = listener.question.spans;
    spans.sort_by_key(|span| (span.start, span.id));
    spans
}
