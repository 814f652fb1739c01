//! Writes chains as JSON: the content of the text, unabridged, with null for unknowns.

use super::chain::Chain;
use super::explained::{Explained, since_start};
use super::told::{Alike, Told, ToldWaker};
use calltap_trace::SiteId;
use serde_json::{Value, json};

/// Returns all chains.
pub(crate) fn chains(explained: &Explained, told: &Told<'_>) -> Value {
    let calls = explained.chains.iter().map(|(slow, chain)| {
        let call = &slow.call;
        json!({
            "function": told.names.function(call.site),
            "thread": told.names.comm(slow.thread),
            "tid": told.names.tid(slow.thread),
            "at_ns": since_start(told.source, call.start),
            "duration_ns": told.source.duration_ns(call.total),
            "returned": !call.ending.is_cut(),
            "did": did(told, chain, Some(call.site)),
        })
    });
    Value::Array(calls.collect())
}

pub(crate) fn did(told: &Told<'_>, chain: &Chain, from: Option<SiteId>) -> Value {
    let ns = |ticks: u64| told.source.duration_ns(ticks);
    let functions = |times: Vec<(String, u64)>| {
        let times = times.into_iter();
        times
            .map(|(function, ticks)| json!({ "function": function, "ns": ns(ticks) }))
            .collect::<Vec<Value>>()
    };
    let (ran, unknown) = (functions(told.ran(chain)), functions(told.unseen(chain)));
    let waits: Vec<Value> = told.alike(chain, from).iter().map(|one| wait(told, one)).collect();
    json!({
        "ran_ns": ns(chain.ran),
        "ran": ran,
        "runnable_ns": ns(chain.runnable),
        "unknown_ns": ns(chain.unknown),
        "unknown": unknown,
        "blocked": waits,
    })
}

fn wait(told: &Told<'_>, one: &Alike<'_>) -> Value {
    json!({
        "ns": told.source.duration_ns(one.ticks),
        "times": one.count,
        "longest_ns": told.source.duration_ns(one.longest.ticks),
        "longest_at_ns": since_start(told.source, one.longest.time.start),
        "in": one.cause.within,
        "path": one.cause.path,
        "woken_by": waker(told, &one.cause.waker),
        "meanwhile": one.longest.meanwhile.as_ref().map(|chain| did(told, chain, None)),
    })
}

pub(crate) fn waker(told: &Told<'_>, waker: &ToldWaker) -> Value {
    match waker {
        ToldWaker::Unknown => Value::Null,
        ToldWaker::Interrupt => json!({ "kind": "interrupt" }),
        ToldWaker::Recorder => json!({ "kind": "calltap" }),
        ToldWaker::Stopped => json!({ "kind": "stopped_by_calltap" }),
        ToldWaker::StoppedOrChild => json!({ "kind": "stopped_by_calltap_or_child" }),
        ToldWaker::Other { pid, comm } => json!({ "kind": "process", "pid": pid, "name": comm }),
        ToldWaker::Thread { thread, path } => json!({
            "kind": "thread",
            "thread": told.names.comm(*thread),
            "tid": told.names.tid(*thread),
            "path": path,
        }),
    }
}
